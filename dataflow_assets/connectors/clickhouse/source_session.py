"""The driver's connection to a polled table: bounds and borders are fixed here before any read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import places
from dataflow_assets.connectors.clickhouse.client import connect
from dataflow_assets.connectors.clickhouse.failures import Failure
from dataflow_assets.connectors.clickhouse.polled import Table
from dataflow_assets.connectors.clickhouse.reading import read
from dataflow_assets.connectors.clickhouse.relation import describe, identity
from dataflow_assets.contracts import Lag, Limit, PartSlice, Positions, SourceSession, Span, folded
from dataflow_assets.errors import TransientError
from dataflow_assets.polling import (
    PARTITION,
    START,
    Part,
    Planner,
    Position,
    adopted,
    end,
    is_behind,
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
                found = places.since(table, where, found)
        return {PARTITION: found.dump()}

    @override
    def ends(self) -> Positions:
        with self._asking() as table:
            return {PARTITION: end(table).dump()}

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        position = Position.parse(folded(after, PARTITION))
        bound = None if until is None else Position.parse(folded(until, PARTITION))
        if bound is not None and bound == position:
            return Span(())
        with self._asking() as table:
            most = min(limit.records, self._source.read_batch_size or limit.records)
            step = Planner(table).step(position, bound, most)
            self._tell(table, position)
            own = table.relation.identity
        if step is None:
            return Span(())
        parts = (Part(own, rows).dump() for rows in step.parts)
        return Span.of_parts(step.upto.dump(), parts, full=step.full)

    @override
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        raise NotImplementedError("this source delivers columns")

    @override
    def fold(self, positions: Positions) -> Positions:
        return {PARTITION: folded(positions, PARTITION) or START.dump()}

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
        position = Position.parse(folded(after, PARTITION))
        with self._asking() as table:
            last = end(table)
            records, age = places.lag(table, position, last)
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
            return {PARTITION: places.taken_over(table, position).dump()}

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
