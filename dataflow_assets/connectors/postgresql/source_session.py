"""The driver's connection to a polled table: bounds and borders are fixed here before any read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.postgresql import comparing
from dataflow_assets.connectors.postgresql.failures import Failure
from dataflow_assets.connectors.postgresql.link import TextLink, qualified
from dataflow_assets.connectors.postgresql.planning import Planner
from dataflow_assets.connectors.postgresql.reading import read
from dataflow_assets.connectors.postgresql.relation import Relation, describe, identity
from dataflow_assets.contracts import Lag, Limit, PartSlice, Positions, SourceSession, Span, folded
from dataflow_assets.errors import TransientError
from dataflow_assets.polling import PARTITION, START, Part, Position, adopted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dataflow_assets.connectors.postgresql.source import PostgresqlSource

log = logging.getLogger(__name__)

COUNTED = 10_000  # rows behind up to which they are counted; beyond that they are estimated
_MAKE = """
CREATE TABLE IF NOT EXISTS {place} (
  id SERIAL PRIMARY KEY, created_at TIMESTAMPTZ DEFAULT now(), updated_at TIMESTAMPTZ DEFAULT now()
)
"""


class PostgresqlSourceSession(SourceSession):
    """One table or query, seen by one flow; its only partition is `table`."""

    def __init__(self, source: PostgresqlSource, flow: str) -> None:
        self._source, self._flow = source, flow
        self._told: set[str] = set()
        with self._translated("connecting to"):
            self._link = TextLink(source.dsn(), "dataflow-source")
        try:
            self._prepare()
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
        with self._asking() as relation:
            found = comparing.end(self._link, relation)
            if where != "latest":
                found = comparing.since(self._link, relation, where, found)
        return {PARTITION: found.dump()}

    @override
    def ends(self) -> Positions:
        return self.seek("latest")

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        position = Position.parse(folded(after, PARTITION))
        bound = None if until is None else Position.parse(folded(until, PARTITION))
        if bound is not None and bound == position:
            return Span(())
        with self._asking() as relation:
            most = min(limit.records, self._source.read_batch_size or limit.records)
            planner = Planner(self._link, self._source, relation)
            step = planner.step(position, bound, most)
            self._tell(planner, position)
        if step is None:
            return Span(())
        parts = (Part(relation.oid, rows).dump() for rows in step.parts)
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
        with self._asking() as relation:
            return comparing.is_behind(self._link, self._source, relation, one, other)

    @override
    def release(self, upto: Positions) -> None:
        """Nothing is kept on the server."""

    @override
    def lag(self, after: Positions) -> Lag:
        position = Position.parse(folded(after, PARTITION))
        with self._asking() as relation:
            end = comparing.end(self._link, relation)
            records, seconds = comparing.lag(self._link, relation, position, end, COUNTED)
        return Lag(records, seconds, {PARTITION: end.dump()})

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        found = self.plan(after, Limit(records=limit))
        rows = None
        if found.slices:
            piece = found.slices[0]
            assert isinstance(piece, PartSlice)  # noqa: S101 - it was planned right here
            wanted = self._source.metadata_columns
            rows = next(read(self._source, Part.parse(piece.part), wanted, limit))
        return {} if rows is None else {PARTITION: rows}

    @override
    def adopt(self, document: Mapping[str, Any]) -> Positions:
        position = adopted(document, self._source.type)
        with self._asking() as relation:
            return {PARTITION: comparing.taken_over(relation, position).dump()}

    @override
    def close(self) -> None:
        if hasattr(self, "_link"):
            self._link.close()

    def _prepare(self) -> None:
        with self._translated("opening"):
            if self._source.auto_create_table and self._source.names_table:
                self._make()
            database, oid = identity(self._link, self._source)
            if oid is None and not self._source.query:
                raise self._source.no_table()
            self._identity = f"{database}.{oid or 'query'}"

    def _make(self) -> None:
        """A role that may not create tables may well read one that is there."""
        place = qualified(*self._source.place())
        ((there,),) = self._link.execute("SELECT to_regclass($1::text) IS NOT NULL", place)
        if not there:
            self._link.execute(_MAKE.format(place=place))

    def _tell(self, planner: Planner, position: Position) -> None:
        """What a person should know, once per session and state."""
        if position.state in self._told:
            return
        self._told.add(position.state)
        for note in planner.notes(position):
            log.warning("flow %s: %s: %s", self._flow, self._source.title, note)

    @contextmanager
    def _asking(self) -> Iterator[Relation]:
        """The relation as of now, in one transaction: all answers are about one moment."""
        with self._translated("looking for new rows in"):
            relation = describe(self._link, self._source)
            self._check(relation)
            self._link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield relation
                self._link.execute("COMMIT")
            except BaseException:
                with suppress(Failure):
                    self._link.execute("ROLLBACK")
                raise

    def _check(self, relation: Relation) -> None:
        if relation.oid is not None and not self._identity.endswith(f".{relation.oid}"):
            raise TransientError(f"{self._source.title} was made anew while the flow ran")

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except Failure as failure:
            raise self._source.meaning(failure, what) from None
