"""Spark DataFrame -> ClickHouse table, for assets that users write themselves.

Tasks insert into a table beside the target, and the server builds another one of the rows of the
attempts that succeeded: its parts are attached to the target at once (partition by partition), or
the two tables are exchanged. Readers see all rows or none. Connection settings travel by closure.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import (
    connect,
    insert,
    listed,
    literal,
    query_rows,
    quote,
)
from dataflow_assets.connectors.clickhouse.errors import Failure, failing
from dataflow_assets.connectors.clickhouse.frames.frame_table import APPLICATION, FrameTable
from dataflow_assets.connectors.clickhouse.table.table import Table, find
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.server_failure import translated
from dataflow_assets.sdk.table_frames import ATTEMPT, Mode, refuse_unknown_columns, stage

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from pyspark.sql import DataFrame

INSERT_ROWS = 200_000  # of one INSERT: Spark's own batches would make thousands of parts
_VIEWS = """
SELECT length(dependencies_table) FROM system.tables
WHERE database = {database:String} AND name = {table:String}
"""


def write(place: FrameTable, frame: DataFrame, mode: Mode, key: Sequence[str]) -> int:
    """As `TableFrames.write`.

    `overwrite` exchanges the table for another of the same definition, `upsert` adds rows to a
    ReplacingMergeTree that is ordered by the key, `append` adds rows.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    columns: pa.Schema = to_arrow_schema(frame.schema)
    with translated(f"writing {place}"), closing(connect(place.connection, APPLICATION)) as client:
        work = _Write(client, place, columns, mode, tuple(key))
        table = work.target()
        try:
            work.create_stage()
            attempts, count = stage(frame, _Stager(work.stage))
            work.build(table, attempts)
            work.publish(table)
        finally:
            work.clear()
    return count


@dataclass(frozen=True)
class _Stager:
    """Inserts the rows of one Spark partition into the stage."""

    stage: FrameTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> None:
        with closing(connect(self.stage.connection, APPLICATION)) as client, failing():
            for table in _gathered(batches):
                insert(client, self.stage.name, table)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together until there are enough rows for an INSERT."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= INSERT_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


@dataclass(frozen=True)
class _Write:
    """One write: the driver's statements. Methods raise Failure or PermanentError."""

    client: Client
    place: FrameTable
    columns: pa.Schema
    mode: Mode
    key: tuple[str, ...]
    name: str = field(default_factory=lambda: f"_dataflow_{uuid.uuid4().hex[:12]}")

    @property
    def stage(self) -> FrameTable:
        """Where tasks put the rows of all attempts."""
        return self.place.beside(f"{self.name}_rows")

    @property
    def built(self) -> FrameTable:
        """A table like the target, of the rows that count."""
        return self.place.beside(self.name)

    def target(self) -> Table:
        """The table, made where it is missing."""
        table = self._find()
        if table is None:
            required = [
                f.with_nullable(f.nullable and f.name not in self.key) for f in self.columns
            ]
            engine = "ReplacingMergeTree" if self.mode == "upsert" else "MergeTree"
            self._create(self.place, required, engine, self.key)
            table = self._find()
        if table is None:
            raise self.place.missing()
        known = [column.name for column in table.columns]
        refuse_unknown_columns(self.place, self.columns.names, known)
        if self.mode == "upsert":
            self._check_upsert(table)
        return table

    def create_stage(self) -> None:
        """For the frame's own types: what does not fit the target's is told at once later."""
        mark = pa.field(ATTEMPT, pa.string(), nullable=False)
        self._create(self.stage, [*self.columns, mark], "MergeTree", ())

    def build(self, table: Table, attempts: Sequence[str]) -> None:
        """The rows of these attempts in the target's types; a value that does not fit raises."""
        counting = ", ".join(map(literal, attempts)) or "''"  # a frame without rows has none
        source = f"{self.stage.name} WHERE {quote(ATTEMPT)} IN ({counting})"
        if self.mode == "upsert":
            self._check_once(source)
        self._command(f"CREATE TABLE {self.built.name} AS {self.place.name}")
        kinds = {column.name: column.type for column in table.columns}
        values = ", ".join(
            f"accurateCast({quote(name)}, {literal(kinds[name])})" for name in self.columns.names
        )
        # S608: names and values are quoted
        rest = f"SELECT {values} FROM {source}"  # noqa: S608
        self._command(f"INSERT INTO {self.built.name} ({listed(self.columns.names)}) {rest}")

    def publish(self, table: Table) -> None:
        """Makes the rows those of the target."""
        if self.mode == "overwrite":
            self._command(f"EXCHANGE TABLES {self.built.name} AND {self.place.name}")
            return
        if table.engine.endswith("MergeTree") and not self._feeds_views():
            target, source = self.place.name, self.built.name
            self._command(f"ALTER TABLE {target} ATTACH PARTITION ALL FROM {source}")
            return
        names = listed([column.name for column in table.columns if column.given])
        # S608: names are quoted
        rest = f"({names}) SELECT {names} FROM {self.built.name}"  # noqa: S608
        self._command(f"INSERT INTO {self.place.name} {rest}")

    def clear(self) -> None:
        """Drops what stands beside the target; after an exchange that is the old one."""
        for leftover in (self.stage, self.built):
            with suppress(Failure):
                self._command(f"DROP TABLE IF EXISTS {leftover.name} SYNC")

    def _find(self) -> Table | None:
        return find(self.client, self.place.database, self.place.table)

    def _create(
        self, place: FrameTable, columns: Iterable[pa.Field], engine: str, key: Sequence[str]
    ) -> None:
        given = ", ".join(f"{quote(each.name)} {types.declared(each)}" for each in columns)
        order = f"({listed(key)})" if len(key) > 1 else listed(key) or "tuple()"
        self._command(f"CREATE TABLE {place.name} ({given}) ENGINE = {engine} ORDER BY {order}")

    def _check_upsert(self, table: Table) -> None:
        if not table.replaces or set(table.sorting_key) != set(self.key):
            raise PermanentError(
                f"{self.place}: mode upsert needs a ReplacingMergeTree ORDER BY "
                f"({', '.join(self.key)}); it is {table.engine} ORDER BY "
                f"({', '.join(table.sorting_key)})"
            )
        if table.version and table.version not in self.columns.names:
            raise PermanentError(
                f"{self.place} finds the newest row of a key by {table.version}, which the frame "
                "lacks: add that column, or the stored rows would win"
            )

    def _check_once(self, source: str) -> None:
        """Before they are in the table: it would keep any of them."""
        key = listed(self.key)
        # S608: names are quoted
        query = f"SELECT 1 FROM {source} GROUP BY {key} HAVING count() > 1 LIMIT 1"  # noqa: S608
        if query_rows(self.client, query):
            raise PermanentError(
                f"{self.place}: the frame has several rows of one key: say which of them counts"
            )

    def _feeds_views(self) -> bool:
        """Materialized views see what is inserted, not what is attached."""
        where = {"database": self.place.database, "table": self.place.table}
        return bool(query_rows(self.client, _VIEWS, where)[0][0])

    def _command(self, statement: str) -> None:
        with failing():
            self.client.command(statement)
