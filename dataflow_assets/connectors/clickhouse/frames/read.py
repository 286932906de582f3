"""ClickHouse table -> lazy Spark DataFrame.

One query reads it, in one task: of a query the server keeps all parts that it began with, but two
queries see two states. Of a ReplacingMergeTree the last row of each key is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import connect, query_rows, quote, stream
from dataflow_assets.connectors.clickhouse.frames.conditions import condition
from dataflow_assets.connectors.clickhouse.frames.frame_table import (
    APPLICATION,
    BYTES,
    ClickhouseFrameTable,
    is_bytes,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.free_names import free_stem
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.table_frames import choose, spark_type
from dataflow_assets.sdk.table_partitions import Partitions

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from pyspark.sql import DataFrame, SparkSession

_TABLE = """
SELECT engine, total_rows FROM system.tables
WHERE database = {database:String} AND name = {table:String}
"""
_COLUMNS = """
SELECT name, type, comment FROM system.columns
WHERE database = {database:String} AND table = {table:String}
AND default_kind NOT IN ('MATERIALIZED', 'ALIAS', 'EPHEMERAL') ORDER BY position
"""
_FOLDED = ("Replacing", "Collapsing", "Summing", "Aggregating")


@dataclass(frozen=True)
class ClickhouseStatistics:
    """What the server knows of a table. `rows`: in all; None where they are not known exactly."""

    columns: tuple[tuple[str, str], ...]
    final: bool
    rows: int | None
    bytes: frozenset[str] = frozenset()
    """The columns whose text is bytes."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([types.field(name, kind) for name, kind in self.columns])


def describe(place: ClickhouseFrameTable) -> tuple[pa.Schema, int | None]:
    """As `TableFrames.describe`; ClickHouse does not know how many of its rows were replaced."""
    with (
        translate_errors(f"looking at {place}"),
        closing(connect(place.connection, APPLICATION)) as client,
    ):
        stats = _find(client, place)
    return stats.schema, stats.rows


def read(
    place: ClickhouseFrameTable,
    spark: SparkSession,
    names: Sequence[str] | None,
    held: ExitStack,  # noqa: ARG001 - what other systems need
    partitions: Partitions | None = None,
) -> DataFrame:
    """As `TableFrames.read`: one query, read in one task, sees one state."""
    from pyspark.sql.pandas.types import from_arrow_schema

    with (
        translate_errors(f"reading {place}"),
        closing(connect(place.connection, APPLICATION)) as client,
    ):
        stats = _find(client, place)
    types = dict(stats.columns)
    columns = {name: types[name] for name in choose(place, names, types)}
    only = condition(partitions, place, types) if partitions else ""
    reader = _ClickhouseReader(place, columns, stats.final, stats.bytes, only)
    return spark.range(0, 1, 1, 1).mapInArrow(reader, from_arrow_schema(reader.schema))


@dataclass(frozen=True)
class _ClickhouseReader:
    place: ClickhouseFrameTable
    columns: dict[str, str]
    final: bool
    bytes: frozenset[str]
    only: str
    """A condition on the rows; empty for all of them."""

    @property
    def schema(self) -> pa.Schema:
        fields = [types.field(name, kind) for name, kind in self.columns.items()]
        kinds = [pa.binary() if f.name in self.bytes else spark_type(f.type) for f in fields]
        return pa.schema(
            [pa.field(f.name, kind, f.nullable) for f, kind in zip(fields, kinds, strict=True)]
        )

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(batch.num_rows):
                yield from self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        stem = free_stem(self.columns, "#")
        listed = ", ".join(
            f"{types.select_expression(name, kind)} AS {quote(f'{stem}{n}')}"
            for n, (name, kind) in enumerate(self.columns.items())
        )
        # S608: every name is quoted
        query = f"SELECT {listed} FROM {self.place.name}{' FINAL' if self.final else ''}"  # noqa: S608
        query += self.only and f" WHERE {self.only}"
        settings = types.settings_of(query)
        with (
            translate_errors(f"reading {self.place}"),
            closing(connect(self.place.connection, APPLICATION)) as client,
            stream(client, query, settings=settings) as batches,
        ):
            for batch in batches:
                yield self._fit(batch)

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """All other types are wider in Spark, which has microseconds only; text is UTF-8."""
        renamed = batch.rename_columns(self.schema.names)
        texts = renamed.select([name for name in renamed.schema.names if name not in self.bytes])
        types.text_checked(texts, texts.schema, self._not_text)
        arrays = [
            column.cast(field.type, safe=False)
            for column, field in zip(batch.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _not_text(self, column: str) -> PermanentError:
        spelled = self.columns[column]
        return PermanentError(
            f"column {column} of {self.place} holds bytes that are no UTF-8 text: leave it out "
            "(metadata `columns` of the input), or say that it is read as bytes: ALTER TABLE "
            f"{self.place.name} MODIFY COLUMN {quote(column)} {spelled} COMMENT '{BYTES}'"
        )


def _find(client: Client, place: ClickhouseFrameTable) -> ClickhouseStatistics:
    where = {"database": place.database, "table": place.table}
    facts = query_rows(client, _TABLE, where)
    if not facts:
        raise place.missing()
    engine, total = facts[0]
    final = engine.endswith("MergeTree") and any(kind in engine for kind in _FOLDED)
    rows = [tuple(map(str, row)) for row in query_rows(client, _COLUMNS, where)]
    marked = frozenset(name for name, kind, comment in rows if is_bytes(kind, comment))
    columns = tuple((name, kind) for name, kind, _ in rows)
    return ClickhouseStatistics(columns, final, None if final else total, marked)
