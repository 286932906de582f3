"""Spark DataFrame -> ClickHouse table, for assets that users write themselves.

Tasks insert into a table beside the target, and the server builds another one of the rows of the
attempts that succeeded: its parts are attached to the target at once (partition by partition), or
the two tables are exchanged. Readers see all rows or none. Connection settings travel by closure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.connectors.clickhouse.client import (
    connect,
    insert,
    literal,
    name_list,
    query_rows,
    quote,
)
from dataflow_assets.connectors.clickhouse.errors import ClickhouseFailure, failing
from dataflow_assets.connectors.clickhouse.frames.conditions import condition
from dataflow_assets.connectors.clickhouse.frames.frame_table import (
    APPLICATION,
    ClickhouseFrameTable,
)
from dataflow_assets.connectors.clickhouse.frames.target import ClickhouseTarget
from dataflow_assets.connectors.clickhouse.table.table import ClickhouseTable, Column
from dataflow_assets.connectors.clickhouse.table.unfit_values import EXACT, unfit
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.formats.columns import fit, refusal
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.table_frames import (
    STAGES,
    Mode,
    attempt_column,
    left_behind,
    refuse_null_keys,
    several_of_one_key,
    stage,
    stage_name,
)
from dataflow_assets.sdk.table_partitions import Partitions

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)
INSERT_ROWS = 200_000  # of one INSERT: Spark's own batches would make thousands of parts
_UNSEEN = (
    "%s: materialized views of the table keep what they have made of the old rows, and see nothing "
    "of the new ones, which take their place at once: make such a view refreshable, or fill its "
    "table again"
)
_VIEWS = """
SELECT length(dependencies_table) FROM system.tables
WHERE database = {database:String} AND name = {table:String}
"""

_STAGED = """
SELECT name FROM system.tables
WHERE database = {database:String} AND startsWith(name, {stages:String})
"""


def write(
    place: ClickhouseFrameTable,
    frame: DataFrame,
    mode: Mode,
    key: Sequence[str],
    partitions: Partitions | None = None,
) -> int:
    """As `TableFrames.write`.

    `overwrite` exchanges the table for another of the same definition, or replaces partition after
    partition, `upsert` adds rows to a ReplacingMergeTree that is ordered by the key, `append` adds
    rows.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    columns: pa.Schema = to_arrow_schema(frame.schema)
    with (
        translate_errors(f"writing {place}"),
        closing(connect(place.connection, APPLICATION)) as client,
    ):
        table = ClickhouseTarget(client, place, columns, mode, tuple(key), partitions).table()
        work = _Write(client, place, table, columns, mode, tuple(key), partitions)
        work.drop_left()
        try:
            work.create_stage()
            attempts, count = stage(
                frame, _ClickhouseStager(place, work.stage, work.schema(), work.match_key)
            )
            work.build(attempts)
            work.publish()
        finally:
            work.clear()
    return count


@dataclass(frozen=True)
class _ClickhouseStager:
    """Inserts the rows of one Spark partition into the stage."""

    place: ClickhouseFrameTable
    stage: ClickhouseFrameTable
    schema: pa.Schema
    key: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> None:
        with (
            translate_errors(f"writing {self.place}"),
            closing(connect(self.stage.connection, APPLICATION)) as client,
            failing(),
        ):
            for table in _gather(map(self._fit, batches)):
                insert(client, self.stage.name, table.replace_schema_metadata(None))

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        refuse_null_keys(self.place, batch, self.key)
        rows = fit(self.place, batch, self.schema)
        for reason in unfit(rows, self.schema, EXACT).values():
            raise refusal(self.place, reason)
        return rows


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
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
    place: ClickhouseFrameTable
    table: ClickhouseTable
    columns: pa.Schema
    mode: Mode
    key: tuple[str, ...]
    partitions: Partitions | None
    name: str = field(default_factory=stage_name)

    @property
    def stage(self) -> ClickhouseFrameTable:
        """Returns where tasks put the rows of all attempts."""
        return self.place.beside(f"{self.name}_rows")

    @property
    def new_table(self) -> ClickhouseFrameTable:
        """A table like the target, of the rows that count."""
        return self.place.beside(self.name)

    @property
    def mark(self) -> str:
        """The stage's column that says which attempt a row is of."""
        return attempt_column(self.columns.names)

    @property
    def match_key(self) -> tuple[str, ...]:
        """The key that rows are matched by; empty where they are not."""
        return self.key if self.mode == "upsert" else ()

    def schema(self) -> pa.Schema:
        """The columns of the stage as rows are inserted."""
        fields = [_field(self._column(field.name), field) for field in self.columns]
        return pa.schema([*fields, pa.field(self.mark, pa.string())])

    def drop_left(self) -> None:
        """One that this user may not drop stays."""
        where = {"database": self.place.database, "stages": STAGES}
        for name in left_behind(name for (name,) in query_rows(self.client, _STAGED, where)):
            with suppress(ClickhouseFailure):
                self._command(f"DROP TABLE IF EXISTS {self.place.beside(name).name} SYNC")

    def create_stage(self) -> None:
        parts = [f"{quote(name)} {self._column(name).type}" for name in self.columns.names]
        columns = ", ".join([*parts, f"{quote(self.mark)} String"])
        self._command(
            f"CREATE TABLE {self.stage.name} ({columns}) ENGINE = MergeTree ORDER BY tuple()"
        )

    def _column(self, name: str) -> Column:
        return next(column for column in self.table.columns if column.name == name)

    def build(self, attempts: Sequence[str]) -> None:
        counting = ", ".join(map(literal, attempts)) or "''"  # a frame without rows has none
        source = f"{self.stage.name} WHERE {quote(self.mark)} IN ({counting})"
        self._command(f"CREATE TABLE {self.new_table.name} AS {self.place.name}")
        rows = f"SELECT {name_list(self.columns.names)} FROM {source}"  # noqa: S608
        if self.mode != "upsert":
            self._insert(self.columns.names, rows)
        else:
            self._check_keys(source)
            self._insert_upserts(rows)
        if self.partitions is not None:
            self._check_inside(self.partitions)

    def _insert(self, names: Sequence[str], rows: str) -> None:
        self._command(f"INSERT INTO {self.new_table.name} ({name_list(names)}) {rows}")

    def _insert_upserts(self, rows: str) -> None:
        """Columns that the frame lacks keep the values of the rows that are replaced."""
        names, key = list(self.columns.names), name_list(self.key)
        others = [c.name for c in self.table.columns if c.takes_values and c.name not in names]
        if not others:
            self._insert(names, rows)
            return
        # S608: names and values are quoted
        stored = (
            f"(SELECT {name_list([*self.key, *others])} FROM {self.place.name} FINAL "  # noqa: S608
            f"WHERE ({key}) IN (SELECT {key} FROM ({rows})))"
        )
        every = name_list([*names, *others])
        joined = f"SELECT {every} FROM ({rows}) AS s INNER JOIN {stored} AS t USING ({key})"  # noqa: S608
        new = (
            f"SELECT {name_list(names)} FROM ({rows}) AS s "  # noqa: S608
            f"LEFT ANTI JOIN {stored} AS t USING ({key})"
        )
        self._insert([*names, *others], joined)
        self._insert(names, new)

    def _check_keys(self, source: str) -> None:
        """Before they are in the table: it would keep any row of a key."""
        key = name_list(self.key)
        # S608: names are quoted
        query = f"SELECT 1 FROM {source} GROUP BY {key} HAVING count() > 1 LIMIT 1"  # noqa: S608
        if query_rows(self.client, query):
            raise several_of_one_key(self.place)

    def _check_inside(self, partitions: Partitions) -> None:
        names = partitions.columns
        texts = ", ".join(f"toString({quote(name)})" for name in names)
        # S608: names and values are quoted
        query = (
            f"SELECT {texts} FROM {self.new_table.name} "  # noqa: S608
            f"WHERE NOT ifNull({self._only(partitions)}, 0) LIMIT 1"
        )
        if rows := query_rows(self.client, query):
            raise partitions.outside(self.place, dict(zip(names, rows[0], strict=True)))

    def _only(self, partitions: Partitions) -> str:
        kinds = {column.name: column.type for column in self.table.columns}
        return f"({condition(partitions, self.place, kinds)})"

    def publish(self) -> None:
        """Makes the rows those of the target."""
        target, source = self.place.name, self.new_table.name
        if (self.partitions or self.mode == "overwrite") and self._feeds_views():
            log.warning(_UNSEEN, self.place)
        if self.partitions is not None:
            self._replace(self.partitions)
        elif self.mode == "overwrite":
            self._command(f"EXCHANGE TABLES {source} AND {target}")
        elif self.table.engine.endswith("MergeTree") and not self._feeds_views():
            self._command(f"ALTER TABLE {target} ATTACH PARTITION ALL FROM {source}")
        else:
            names = name_list([column.name for column in self.table.columns if column.takes_values])
            # S608: names are quoted
            self._command(f"INSERT INTO {target} ({names}) SELECT {names} FROM {source}")  # noqa: S608

    def _replace(self, partitions: Partitions) -> None:
        """Partition after partition, each at once; none of them has rows of others."""
        new = self._partition_ids(self.new_table, "1")
        for each in sorted(self._partition_ids(self.place, self._only(partitions)) | new):
            change = f"REPLACE PARTITION ID {literal(each)} FROM {self.new_table.name}"
            drop = f"DROP PARTITION ID {literal(each)}"
            self._command(f"ALTER TABLE {self.place.name} {change if each in new else drop}")

    def _partition_ids(self, place: ClickhouseFrameTable, condition: str) -> set[str]:
        # S608: names and values are quoted
        query = f"SELECT DISTINCT _partition_id FROM {place.name} WHERE {condition}"  # noqa: S608
        return {str(id_) for (id_,) in query_rows(self.client, query)}

    def clear(self) -> None:
        """Drops what stands beside the target; after an exchange that is the old one."""
        for leftover in (self.stage, self.new_table):
            with suppress(ClickhouseFailure):
                self._command(f"DROP TABLE IF EXISTS {leftover.name} SYNC")

    def _feeds_views(self) -> bool:
        """Materialized views see what is inserted, not what is attached."""
        where = {"database": self.place.database, "table": self.place.table}
        return bool(query_rows(self.client, _VIEWS, where)[0][0])

    def _command(self, statement: str) -> None:
        with failing():
            self.client.command(statement, settings={"max_partitions_per_insert_block": 0})


def _field(column: Column, given: pa.Field) -> pa.Field:
    """Bytes go into text as they are."""
    is_text = ClickhouseType.of(column.type).bare.name in {"String", "FixedString"}
    if is_text and pa.types.is_binary(given.type):
        return pa.field(column.name, pa.binary(), nullable=ClickhouseType.of(column.type).nullable)
    return column.field()
