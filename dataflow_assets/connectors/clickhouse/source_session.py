"""The driver's connection to a polled table: bounds and borders are fixed here before any read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import ticks
from dataflow_assets.connectors.clickhouse.client import connect
from dataflow_assets.connectors.clickhouse.failures import Failure
from dataflow_assets.connectors.clickhouse.polled import Table
from dataflow_assets.connectors.clickhouse.reading import read
from dataflow_assets.connectors.clickhouse.relation import Column, describe, identity
from dataflow_assets.contracts import Lag, Limit, PartSlice, Positions, SourceSession, Span
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.polling import (
    PARTITION,
    START,
    Part,
    Planner,
    Position,
    Rows,
    adopted,
    end,
    is_behind,
    seconds,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dataflow_assets.connectors.clickhouse.source import ClickhouseSource

log = logging.getLogger(__name__)


class ClickhouseSourceSession(SourceSession):
    """One table or query, seen by one flow; its only partition is `table`."""

    def __init__(self, source: ClickhouseSource, flow: str) -> None:
        self._source, self._flow = source, flow
        self._told = False
        with self._translated("connecting to"):
            self._client = connect(source.dsn(), "dataflow-source")
        try:
            with self._translated("opening"):
                self._identity = self._found()
        except BaseException:
            self.close()
            raise

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @override
    def start(self) -> Positions:
        return {PARTITION: START.dump()}

    @override
    def seek(self, where: str) -> Positions:
        if where == "earliest":
            return self.start()
        with self._asking() as table:
            found = end(table)
            if where != "latest":
                found = _since(table, where, found)
        return {PARTITION: found.dump()}

    @override
    def ends(self) -> Positions:
        with self._asking() as table:
            return {PARTITION: end(table).dump()}

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        position = Position.parse(_one(after))
        bound = None if until is None else Position.parse(_one(until))
        if bound is not None and bound == position:
            return Span(())
        with self._asking() as table:
            most = min(limit.records, self._source.read_batch_size or limit.records)
            step = Planner(table).step(position, bound, most)
            self._tell(table, position)
            own = table.relation.identity
        if step is None:
            return Span(())
        upto = step.upto.dump()
        parts = [Part(own, rows).dump() for rows in step.parts]
        slices = [PartSlice(f"part-{n}", None, upto, part) for n, part in enumerate(parts)]
        return Span(tuple(slices), step.full)

    @override
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        raise NotImplementedError("this source delivers columns")

    @override
    def fold(self, positions: Positions) -> Positions:
        return {PARTITION: _one(positions) or START.dump()}

    @override
    def behind(self, partition: str, position: int | str | None, end: int | str) -> bool:
        one, other = Position.parse(position), Position.parse(end)
        if one == other or other.at_start:
            return False
        with self._asking() as table:
            return is_behind(table, one, other, self._source.poll_interval)

    @override
    def release(self, upto: Positions) -> None:
        """Nothing is kept on the server."""

    @override
    def lag(self, after: Positions) -> Lag:
        position = Position.parse(_one(after))
        with self._asking() as table:
            last = end(table)
            records, age = _lag(table, position, last)
        return Lag(records, age, {PARTITION: last.dump()})

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        found = self.plan(after, Limit(records=limit))
        if not found.slices:
            return {}
        piece = found.slices[0]
        assert isinstance(piece, PartSlice)  # noqa: S101 - it was planned right here
        wanted = self._source.metadata_columns
        return {PARTITION: next(read(self._source, Part.parse(piece.part), wanted, limit))}

    @override
    def adopt(self, document: Mapping[str, Any]) -> Positions:
        position = adopted(document, self._source.type, 9)
        with self._asking() as table:
            return {PARTITION: _taken_over(table, position).dump()}

    @override
    def close(self) -> None:
        if hasattr(self, "_client"):
            self._client.close()

    def _found(self) -> str:
        if self._source.query:
            return "query"
        found = identity(self._client, self._source)
        if found is None:
            raise self._source.no_table()
        return found

    def _tell(self, table: Table, position: Position) -> None:
        """What a person should know, once per session: rows that are never read."""
        if self._told or table.wholly or position.state == "load":
            return
        self._told = True
        unread = table.unordered() - position.unordered
        if unread > 0:
            column = table.relation.change or table.relation.order
            log.warning(
                "flow %s: %s: %d rows that came after the first load have no %s: they have no "
                "place in the order and are not read",
                *(self._flow, self._source.title, unread, column and column.name),
            )

    @contextmanager
    def _asking(self) -> Iterator[Table]:
        """The table or query as it is now."""
        with self._translated("looking for new rows in"):
            relation = describe(self._client, self._source)
            if relation.identity not in {None, self._identity}:
                raise TransientError(f"{self._source.title} was made anew while the flow ran")
            yield Table(self._client, relation, self._source.title)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except Failure as failure:
            raise self._source.meaning(failure, what) from None


def _one(positions: Positions) -> str | None:
    """The table's position; where a span was folded yet by nobody, that of its parts."""
    found = positions.get(PARTITION)
    parts = (value for name, value in positions.items() if name.startswith("part-"))
    position = next(parts, found)
    return None if position is None else str(position)


def _since(table: Table, where: str, last: Position) -> Position:
    """The position right before a point in time, the last one at most."""
    change = table.relation.change
    if change is None or change.digits is None:
        raise PermanentError(
            f"cannot begin at {where!r}: no column of this source tells the time of a change; "
            "allowed: earliest, latest"
        )
    if last.at_start:
        return last
    time_of = ticks.before(where, change.digits, day=change.is_day)
    found = Position("rows", time_of, read_at=last.read_at)
    return last if table.is_before(last.bound, found.bound) else found


def _taken_over(table: Table, found: Position) -> Position:
    """A checkpoint of the DataFlow Operator as a position in this table.

    An order value alone, where changes are tracked, is how far a first load has come: the rows
    behind it are read up to the end there is now, and changes from there on.
    """
    if table.wholly:
        raise PermanentError("a query without changeTrackingColumn has no checkpoint to take over")
    change = table.relation.change
    if change is None:
        if found.order is None:
            raise PermanentError(
                "the checkpoint has no lastReadOrderByValue, and this source is read by its "
                "orderByColumn alone"
            )
        return Position("rows", None, found.order)
    if found.change is None:
        return Position("load", key=found.order)
    return Position("rows", _tick(change, found.change), found.order)


def _tick(change: Column, text: str) -> str:
    if change.digits is None:
        raise PermanentError(
            f"the checkpoint has a time, and changeTrackingColumn {change.name} is no time: it is "
            f"{change.type}"
        )
    return ticks.at(text, change.digits, day=change.is_day)


def _lag(table: Table, position: Position, last: Position) -> tuple[int, float]:
    """Rows behind, and the age of the oldest one by its own clock."""
    if table.wholly:
        return 0, max(0.0, seconds(position.read_at, last.read_at))
    if last.at_start:
        return 0, 0.0
    if position.state == "load":
        bound = position.bound if position.begun else last.bound
        rows = Rows(upto=bound, load=True, low=position.key)
    elif table.is_before(position.bound, last.bound):
        rows = Rows(position.bound, last.bound)
    else:
        return 0, 0.0
    records = table.count(rows)
    if not records:
        return 0, 0.0
    age = table.age(rows)
    if age is None:  # nothing tells the time of a change: it came after the last read
        age = seconds(position.read_at, last.read_at) if position.read_at else 0.0
    return records, max(0.0, age)
