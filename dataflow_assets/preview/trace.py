"""The chain of a flow with a note of every step that ran: what becomes of one message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.flow import Flow
from dataflow_assets.records.chain import Chain
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Context
from dataflow_assets.testing import Rejected, Result, outcome


@dataclass(frozen=True)
class Visit:
    """One record at one step. `after`: none where it is filtered or rejected."""

    step: int
    before: Record
    after: tuple[Record, ...] = ()
    skipped: bool = False
    """The step's `when` does not hold."""
    reason: str | None = None
    """Why the step rejects the record."""


@dataclass(frozen=True)
class Trace:
    """One message, every step on its way, and what becomes of it.

    Of a record that becomes several, the first one's whole way comes before that of the second.
    """

    visits: tuple[Visit, ...]
    result: Result


class Tracer(Chain):
    """The chain of the pass, with a note of every step that ran."""

    def __init__(self, flow: Flow, now: datetime) -> None:
        super().__init__(flow.transformations, Context(now))
        whens = (one.when for one in flow.transformations)
        self._holds = tuple(when.compile() if when else None for when in whens)
        self._visits: list[Visit] = []

    def trace(
        self, raw: bytes | None, metadata: Mapping[str, Any], unreadable: str | None = None
    ) -> Trace:
        """One message through all steps; `unreadable`: why its body cannot be decoded."""
        self._visits = []
        if unreadable is not None:
            return Trace((), Result(rejected=Rejected(None, "decode", unreadable)))
        result = outcome(self, raw, metadata)
        return Trace(tuple(self._visits), result)

    @override
    def apply(self, index: int, record: Record) -> Record | list[Record] | None:
        try:
            found = super().apply(index, record)
        except RejectedRecord as error:
            self._visits.append(Visit(index, record, reason=error.reason))
            raise
        after = () if found is None else (found,) if isinstance(found, Record) else tuple(found)
        holds = self._holds[index]
        skipped = found is record and holds is not None and not holds(record)
        self._visits.append(Visit(index, record, after, skipped))
        return found
