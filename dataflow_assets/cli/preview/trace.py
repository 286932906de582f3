"""The chain of a flow with a note of every step that ran: what becomes of one message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.flow import Flow
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.records.chain import Chain
from dataflow_assets.records.record import NotJson, Record, text
from dataflow_assets.records.step import Context
from dataflow_assets.records.wrapped import unwrap
from dataflow_assets.testing import Out, Rejected, Result, outcome

_OBJECTS = JsonDecoder(pa.schema([]), "ignore")
"""Takes every JSON object."""


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
        self._sinks = {route: branch.sink for branch in flow.branches for route in branch.routes}

    def trace(
        self, raw: bytes | None, metadata: Mapping[str, Any], unreadable: str | None = None
    ) -> Trace:
        """One message through all steps; `unreadable`: why its body cannot be decoded."""
        self._visits = []
        if unreadable is not None:
            return Trace((), Result(rejected=Rejected(None, "decode", unreadable)))
        result = outcome(self, raw, metadata)
        reasons = (reason for one in result.out if (reason := self._refusal(one)))
        if reason := next(reasons, None):
            result = Result(result.out, Rejected(None, "decode", reason))
        return Trace(tuple(self._visits), result)

    def _refusal(self, record: Out) -> str | None:
        """Why a sink of columns refuses a body that is no JSON object; its table is not asked."""
        sink = self._sinks.get(record.route)
        if sink is None or sink.takes == "messages" or sink.traits.whole_bodies:
            return None
        body = record.text
        if sink.traits.unwraps and not isinstance(record.body, NotJson):
            body = text(unwrap(record.body))
        if body is None:
            return None  # a tombstone: the source says what it means
        decoded = _OBJECTS.decode(pa.array([body], pa.binary()), pa.array([0], pa.int64()))
        return decoded.rejected[0].reason if decoded.rejected else None

    @override
    def apply(self, index: int, record: Record) -> Record | list[Record] | None:
        try:
            result = super().apply(index, record)
        except RejectedRecord as error:
            self._visits.append(Visit(index, record, reason=error.reason))
            raise
        after = () if result is None else (result,) if isinstance(result, Record) else tuple(result)
        holds = self._holds[index]
        skipped = result is record and holds is not None and not holds(record)
        self._visits.append(Visit(index, record, after, skipped))
        return result
