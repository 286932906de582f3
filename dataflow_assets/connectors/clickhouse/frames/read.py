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
from dataflow_assets.connectors.clickhouse.frames.frame_table import APPLICATION, FrameTable
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.free_names import free_stem
from dataflow_assets.sdk.server_failure import translated

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from pyspark.sql import DataFrame, SparkSession

_TABLE = """
SELECT engine, total_rows FROM system.tables
WHERE database = {database:String} AND name = {table:String}
"""
_COLUMNS = """
SELECT name, type FROM system.columns
WHERE database = {database:String} AND table = {table:String}
AND default_kind NOT IN ('MATERIALIZED', 'ALIAS', 'EPHEMERAL') ORDER BY position
"""
_FOLDED = ("Replacing", "Collapsing", "Summing", "Aggregating")
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


@dataclass(frozen=True)
class Found:
    """What the server knows of a table. `rows`: in all; None where they are not known exactly."""

    columns: tuple[tuple[str, str], ...]
    final: bool
    rows: int | None

    @property
    def schema(self) -> pa.Schema:
        """As flows show it."""
        return pa.schema([types.field(name, kind) for name, kind in self.columns])


def describe(place: FrameTable) -> tuple[pa.Schema, int | None]:
    """As `TableFrames.describe`; ClickHouse does not know how many of its rows were replaced."""
    with (
        translated(f"looking at {place}"),
        closing(connect(place.connection, APPLICATION)) as client,
    ):
        found = _found(client, place)
    return found.schema, found.rows


def read(
    place: FrameTable,
    spark: SparkSession,
    names: Sequence[str] | None,
    held: ExitStack,  # noqa: ARG001 - what other systems need
) -> DataFrame:
    """As `TableFrames.read`: one query, read in one task, sees one state."""
    from pyspark.sql.pandas.types import from_arrow_schema

    with translated(f"reading {place}"), closing(connect(place.connection, APPLICATION)) as client:
        found = _found(client, place)
    known = dict(found.columns)
    if absent := [name for name in names or () if name not in known]:
        raise PermanentError(
            f"{place} has no column {', '.join(absent)}; it has {', '.join(known)}"
        )
    chosen = {name: known[name] for name in names or known}
    reader = _Reader(place, chosen, final=found.final)
    return spark.range(0, 1, 1, 1).mapInArrow(reader, from_arrow_schema(reader.schema))


@dataclass(frozen=True)
class _Reader:
    place: FrameTable
    columns: dict[str, str]
    final: bool

    @property
    def schema(self) -> pa.Schema:
        """In types that Spark has."""
        fields = [types.field(name, kind) for name, kind in self.columns.items()]
        return pa.schema([pa.field(f.name, _spark_type(f.type), f.nullable) for f in fields])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(batch.num_rows):
                yield from self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        stem = free_stem(self.columns, "#")
        chosen = ", ".join(
            f"{types.selected(name, kind)} AS {quote(f'{stem}{n}')}"
            for n, (name, kind) in enumerate(self.columns.items())
        )
        # S608: every name is quoted
        query = f"SELECT {chosen} FROM {self.place.name}{' FINAL' if self.final else ''}"  # noqa: S608
        settings = types.settings_of(query)
        with (
            closing(connect(self.place.connection, APPLICATION)) as client,
            stream(client, query, settings=settings) as batches,
        ):
            for batch in batches:
                yield self._fitted(batch)

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Microseconds are all that Spark has."""
        arrays = [
            column.cast(field.type, safe=not pa.types.is_timestamp(field.type))
            for column, field in zip(batch.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _found(client: Client, place: FrameTable) -> Found:
    where = {"database": place.database, "table": place.table}
    known = query_rows(client, _TABLE, where)
    if not known:
        raise place.missing()
    engine, total = known[0]
    final = engine.endswith("MergeTree") and any(kind in engine for kind in _FOLDED)
    columns = tuple((str(name), str(kind)) for name, kind in query_rows(client, _COLUMNS, where))
    return Found(columns, final, None if final else total)


def _spark_type(arrow: pa.DataType) -> pa.DataType:
    """Spark has no unsigned integers, no nanoseconds and no more than 38 digits."""
    if arrow in _WIDER:
        return _WIDER[arrow]
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", arrow.tz)
    if pa.types.is_decimal256(arrow):
        return pa.string()
    if pa.types.is_list(arrow):
        item = arrow.value_field
        return pa.list_(item.with_type(_spark_type(item.type)))
    if pa.types.is_struct(arrow):
        return pa.struct([each.with_type(_spark_type(each.type)) for each in arrow])
    return arrow
