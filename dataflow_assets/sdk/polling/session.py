"""The driver's side of a polled table: bounds and borders are fixed here before any read."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts import (
    Lag,
    Limit,
    PartSlice,
    Positions,
    SourceSession,
    Span,
    fold_parts,
)
from dataflow_assets.contracts.capabilities import AdoptsCheckpoints, ReplansParts
from dataflow_assets.contracts.looking import Peeks
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.polling import seek
from dataflow_assets.sdk.polling.planning import Planner
from dataflow_assets.sdk.polling.source import PolledSource
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sql_table import PolledSqlTable
from dataflow_assets.sdk.sql_table.positions import (
    PARTITION,
    START,
    Part,
    PolledPosition,
    position_of_operator,
)

log = logging.getLogger(__name__)
_COMPLETE = (
    "flow %s: %s: complete. All its rows were read at %s, and they are appended, so that it is not "
    "read again. For rows that come or change later set changeTrackingColumn, or upsertMode in the "
    "sink; to read it once more start from earliest with table: truncate"
)


class PolledSession(SourceSession, AdoptsCheckpoints, Peeks, ReplansParts):
    """One table or query, seen by one flow; its only partition is `table`."""

    def __init__(self, source: PolledSource, flow: str) -> None:
        self._source, self._flow = source, flow
        self._told: set[str] = set()

    @abstractmethod
    def asking(self) -> AbstractContextManager[PolledSqlTable[Any]]:
        """The table or query as it is now: all answers are about one moment, where that can be.

        Raises TransientError where it is another table than the one this session has opened.
        """

    @override
    def start(self, where: str | None = None) -> Positions:
        if where in (None, "earliest"):
            return {PARTITION: START.dump()}
        with self.asking() as polled:
            found = seek.end(polled)
            if where != "latest":
                found = seek.since(polled, where, found)
        return {PARTITION: found.dump()}

    @override
    def end(self) -> Positions:
        return self.start("latest")

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        position = PolledPosition.parse(fold_parts(after, PARTITION))
        bound = None if until is None else PolledPosition.parse(fold_parts(until, PARTITION))
        if self._source.once and self._is_complete(position):
            return Span(())
        if bound is not None and bound == position:
            return Span(())
        with self.asking() as polled:
            step = self._planner(polled, limit).step(position, bound)
            self._tell(polled, position)
            own, by = polled.identity, polled.order_kinds
        if step is None:
            return Span(())
        parts = (Part(own, rows, by).dump() for rows in step.parts)
        return Span.of_parts(step.upto.dump(), parts, full=step.full)

    @override
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        part = Part.parse(piece.part)
        if part.rows is None:
            return (piece.part,)
        with self.asking() as polled:
            found = self._planner(polled, limit).smaller(part.rows)
        return tuple(replace(part, rows=rows).dump() for rows in found)

    def _planner(self, polled: PolledSqlTable[Any], limit: Limit) -> Planner:
        source = self._source
        most = min(limit.records, source.read_batch_size or limit.records)
        return Planner(polled, source.overlap, replace(limit, records=most))

    @override
    def fold(self, positions: Positions) -> Positions:
        return {PARTITION: fold_parts(positions, PARTITION) or START.dump()}

    @override
    def lags(self, partition: str, position: int | str | None, end: int | str) -> bool:
        one, other = PolledPosition.parse(position), PolledPosition.parse(end)
        if one == other or other.at_start:
            return False  # without a question
        if self._source.once:
            return one.state != other.state
        interval, overlap = self._source.poll_interval, self._source.overlap
        with self.asking() as polled:
            return seek.lags(polled, one, other, interval=interval, overlap=overlap)

    @override
    def lag(self, after: Positions) -> Lag:
        position = PolledPosition.parse(fold_parts(after, PARTITION))
        if self._source.once and position.state == "query":
            return Lag(0, 0.0, {PARTITION: position.dump()})
        with self.asking() as polled:
            last = seek.end(polled)
            records, age = seek.lag(polled, position, last)
        return Lag(records, age, {PARTITION: last.dump()})

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        found = self.plan(after, Limit(records=limit))
        if not found.slices:
            return {}
        piece = found.slices[0]
        assert isinstance(piece, PartSlice)  # noqa: S101 - it was planned right here
        wanted = self._source.metadata_columns
        return {PARTITION: next(self._source.read(Part.parse(piece.part), wanted, limit))}

    @override
    def adopt(self, document: Mapping[str, Any]) -> Positions:
        position = position_of_operator(document, self._source.type)
        with self.asking() as polled:
            return {PARTITION: seek.from_operator(polled, position).dump()}

    def _is_complete(self, position: PolledPosition) -> bool:
        title = self._source.title
        if position.state == "rows" or position.begun or position.key is not None:
            raise PermanentError(
                f"the checkpoint of {title} is of a query that was read by its "
                "changeTrackingColumn, and without one all its rows would be appended again: set "
                "changeTrackingColumn as it was, or start from earliest with table: truncate"
            )
        if position.state == "query" and "complete" not in self._told:
            self._told.add("complete")
            log.warning(_COMPLETE, self._flow, title, position.read_at)
        return position.state == "query"

    def _tell(self, polled: PolledSqlTable[Any], position: PolledPosition) -> None:
        if position.state in self._told:
            return
        self._told.add(position.state)
        for note in (*seek.unread(polled, position), *polled.notes(position)):
            log.warning("flow %s: %s: %s", self._flow, polled.title, note)


class PolledSqlSession(PolledSession):
    """One table or query; each answer is of its own moment."""

    def __init__(
        self,
        source: PolledSource,
        flow: str,
        connection: AbstractContextManager[Any],
        identify: Callable[[Any], str | None],
    ) -> None:
        """Opens a session; `close` ends its connection.

        Args:
            source: what is read.
            flow: its name.
            connection: the client; entered here. Raises the client's error.
            identify: the id of the table itself; None where there is no such table.
        """
        super().__init__(source, flow)
        self._ask = source.describe
        with ExitStack() as held:
            with translate_errors(f"connecting to {source.title}"):
                self._client = held.enter_context(connection)
            with translate_errors(f"opening {source.title}"):
                identity = "query" if source.query else identify(self._client)
            if identity is None:
                raise source.no_table()
            self._identity, self._held = identity, held.pop_all()

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @override
    def close(self) -> None:
        self._held.close()

    @override
    @contextmanager
    def asking(self) -> Iterator[PolledSqlTable[Any]]:
        with translate_errors(f"looking for new rows in {self._source.title}"):
            table = self._ask(self._client)
            if table.identity not in {None, self._identity}:
                raise self._source.recreated_error()
            yield table
