"""The contract of a step: a pure function on one record, made once per task from its options.

A step is one file in `transforms/` with one class. Its options are its fields; its `examples` are
unit test, documentation and evidence of conformance at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from dataflow_assets.records.record import Record
from dataflow_assets.spec import Spec

Apply = Callable[[Record], Record | list[Record] | None]
"""One record in; out comes a record (the same object where nothing changed), several, or none.

Raises RejectedRecord("step", reason) for a record that it cannot transform: the reason names the
path, never the value.
"""

Change = Callable[[Any], Any]
"""body -> another body, or the very same object where nothing changes."""


Origins = frozenset[str] | None
"""Fields of the body (its own keys) from which one is made; None: that cannot be told."""


@dataclass(frozen=True)
class Context:
    """The facts besides the record that a step may use."""

    now: datetime
    """When the micro-batch was planned, in the local zone: a replay writes the same rows."""


@dataclass(frozen=True)
class Example:
    """One record through one step. Bodies are JSON as text; text that is no JSON stands as it is.

    `out`: the bodies that come out, none when the record is filtered. `error`: part of the reason
    instead, when the record is rejected. Metadata is compared only where `out_metadata` is given
    (the first record's). `now` is 2026-07-20T10:00:00Z.
    """

    about: str
    config: Mapping[str, Any]
    given: str | None
    out: tuple[str | None, ...] = ()
    error: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    out_metadata: Mapping[str, Any] | None = None


class Step(Spec):
    """A declared step: the `config` block of one entry of `transformations`."""

    type: ClassVar[str]
    addition: ClassVar[bool] = False
    """Ours, not the DataFlow Operator's."""
    makes_deletes: ClassVar[bool] = False
    """Whether a record may leave it as the deletion of its key."""
    examples: ClassVar[tuple[Example, ...]]

    @abstractmethod
    def compile(self, context: Context) -> Apply:
        """The function that runs on each record; everything that can be known before is done."""

    def origins(self, column: str) -> Origins:  # noqa: ARG002 - what overrides need
        """Returns what a field of the body that comes out is made from."""
        return None

    def reads(self) -> frozenset[str]:
        """The metadata keys it looks at; sources leave out what costs and nobody reads."""
        return frozenset()

    @property
    def event_fields(self) -> frozenset[str] | None:
        """The fields of rows in change events whose types it is told; None: it reads no events."""
        return None

    @property
    def by_metadata(self) -> bool:
        """Returns whether it does nothing but choose a route, by metadata alone."""
        return False


def on_body(*changes: Change) -> Apply:
    """For steps that look at nothing but the body: its changes, one after another."""

    def apply(record: Record) -> Record:
        body = record.body
        for change in changes:
            body = change(body)
        return record if body is record.body else Record(body, record.metadata, record.route)

    return apply
