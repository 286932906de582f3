"""PostgreSQL table -> lazy Spark DataFrame: read in tasks as CSV, all in the same snapshot."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.client import TextLink, quote
from dataflow_assets.connectors.postgresql.frames.frame_table import (
    APPLICATION,
    FrameTable,
    is_bytes,
    translated_frames,
)
from dataflow_assets.connectors.postgresql.table import table
from dataflow_assets.errors import PermanentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_BYTES = 64 * 1024 * 1024
MOST_PARTS = 64


@dataclass(frozen=True)
class _Column:
    name: str
    select: str
    type: pa.DataType
    """As it is read from CSV."""
    final: pa.DataType


def read(
    place: FrameTable, spark: SparkSession, names: Sequence[str] | None, held: ExitStack
) -> DataFrame:
    """As `TableFrames.read`: read in tasks, in one snapshot that is open as long as the stack."""
    from pyspark.sql.pandas.types import from_arrow_schema

    with (
        translated_frames(place, "reading"),
        closing(TextLink(place.connection, APPLICATION)) as link,
    ):
        columns = _columns(link, place, names)
        ranges = _ranges(*_blocks(link, place))
    # Also where there is one range: a lazy frame may be read more than once.
    reader = _Reader(place, tuple(columns), tuple(ranges), _exported(place, held))
    schema = from_arrow_schema(pa.schema([(c.name, c.final) for c in columns]))
    return spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(reader, schema)


def _exported(place: FrameTable, held: ExitStack) -> str:
    """The name of a snapshot of now; later changes do not show in it."""
    conninfo = dsn.conninfo(place.connection, APPLICATION)
    link = held.enter_context(closing(psycopg.connect(conninfo, autocommit=True)))
    link.execute("SET idle_in_transaction_session_timeout = 0")
    link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    ((name,),) = link.execute("SELECT pg_export_snapshot()").fetchall()
    return str(name)


def describe(place: FrameTable) -> tuple[pa.Schema, int | None]:
    """As `TableFrames.describe`; PostgreSQL only estimates its rows."""
    with (
        translated_frames(place, "looking at"),
        closing(TextLink(place.connection, APPLICATION)) as link,
    ):
        found = table.find(link, place.schema, place.table)
    if found is None:
        raise PermanentError(f"{place.name} does not exist")
    return found.schema(()), None


@dataclass(frozen=True)
class _Reader:
    place: FrameTable
    columns: tuple[_Column, ...]
    ranges: tuple[str, ...]
    snapshot: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from self._read(self.ranges[index])

    def _read(self, where: str) -> Iterator[pa.RecordBatch]:
        selected = ", ".join(column.select for column in self.columns)
        # S608: every name is quoted
        rows = f"SELECT {selected} FROM {self.place.name}{where}"  # noqa: S608
        query = f"COPY ({rows}) TO STDOUT (FORMAT csv)"
        conninfo = dsn.conninfo(self.place.connection, APPLICATION)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{self.snapshot}'".encode())
            with connection.cursor().copy(query.encode()) as copy:
                yield from self._parsed(_Stream(iter(copy)))

    def _parsed(self, stream: _Stream) -> Iterator[pa.RecordBatch]:
        if not stream.peek():
            return
        names = [column.name for column in self.columns]
        reader = arrow_csv.open_csv(
            pa.PythonFile(stream, mode="r"),
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=4 * 1024 * 1024),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types={column.name: column.type for column in self.columns},
                true_values=["t"],
                false_values=["f"],
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in reader:
            arrays = [_final(batch.column(i), c) for i, c in enumerate(self.columns)]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


class _Stream(io.RawIOBase):
    """COPY's output as a file."""

    def __init__(self, chunks: Iterator[Any]) -> None:
        self._chunks = chunks
        self._rest = b""

    def peek(self) -> bytes:
        self._rest = self._rest or bytes(next(self._chunks, b""))
        return self._rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        found = bytearray()
        while (size < 0 or len(found) < size) and self.peek():
            take = len(self._rest) if size < 0 else size - len(found)
            found += self._rest[:take]
            self._rest = self._rest[take:]
        return bytes(found)


def _final(column: pa.Array, wanted: _Column) -> pa.Array:
    if wanted.final == column.type:
        return column
    if is_bytes(wanted.final):
        values = [None if v is None else bytes.fromhex(v[2:]) for v in column.to_pylist()]
        return pa.array(values, wanted.final)
    if pa.types.is_timestamp(wanted.final) and wanted.final.tz:
        return pc.assume_timezone(column, "UTC").cast(wanted.final)
    return column.cast(wanted.final)


def _columns(link: TextLink, place: FrameTable, names: Sequence[str] | None) -> list[_Column]:
    query = (
        f"SELECT attname, {table.TYPE_NAME}, atttypmod FROM pg_attribute "  # noqa: S608 - our own text
        "JOIN pg_type t ON t.oid = atttypid JOIN pg_namespace s ON s.oid = t.typnamespace "
        "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    found = [_column(*row) for row in link.execute(query, place.name)]
    if not found:
        raise PermanentError(f"{place.name} does not exist, so there is nothing to read")
    return [column for column in found if names is None or column.name in names]


def _column(name: str, kind: str, modifier: int) -> _Column:
    quoted = quote(name)
    simple = {
        "bool": pa.bool_(),
        "int2": pa.int16(),
        "int4": pa.int32(),
        "int8": pa.int64(),
        "float4": pa.float32(),
        "float8": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
    }
    if kind in simple:
        return _Column(name, quoted, simple[kind], simple[kind])
    if kind == "timestamptz":
        final = pa.timestamp("us", "UTC")
        return _Column(name, f"{quoted} AT TIME ZONE 'UTC'", pa.timestamp("us"), final)
    if kind == "numeric":
        decimal = _decimal(modifier)
        return _Column(name, quoted, decimal, decimal)
    if kind == "bytea":
        return _Column(name, quoted, pa.string(), pa.binary())
    return _Column(name, f"{quoted}::text", pa.string(), pa.string())


def _decimal(modifier: int) -> pa.DataType:
    """numeric(p, s); without them the widest that Spark has, as Spark's own reader takes it."""
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (modifier - 4) & 0x7FF
    fits = modifier > 0 and precision <= 38 and scale <= precision
    return pa.decimal128(precision, scale) if fits else pa.decimal128(38, 18)


def _blocks(link: TextLink, place: FrameTable) -> tuple[int, int]:
    """The table's blocks, and of what size they are."""
    query = "SELECT pg_relation_size(to_regclass($1)), current_setting('block_size')::int"
    size, block = link.execute(query, place.name)[0]
    return int(size) // int(block) + 1, int(block)


def _ranges(blocks: int, size: int) -> list[str]:
    """Conditions that cut the table into parts of some megabytes; one part needs none."""
    parts = min(MOST_PARTS, blocks * size // PART_BYTES + 1)
    if parts == 1:
        return [""]
    edges = [blocks * part // parts for part in range(parts)]
    uppers = [f" AND ctid < '({edge},0)'::tid" for edge in edges[1:]] + [""]
    return [f" WHERE ctid >= '({low},0)'::tid{up}" for low, up in zip(edges, uppers, strict=True)]
