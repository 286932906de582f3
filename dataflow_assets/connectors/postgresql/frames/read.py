"""PostgreSQL table -> lazy Spark DataFrame: read in tasks as CSV, all in the same snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.csv as arrow_csv

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.frames.columns import (
    FrameColumn,
    read_columns,
    refusal_of,
)
from dataflow_assets.connectors.postgresql.frames.conditions import condition
from dataflow_assets.connectors.postgresql.frames.frame_table import (
    APPLICATION,
    PostgresqlFrameTable,
    translated_frames,
)
from dataflow_assets.connectors.postgresql.table import table
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_partitions import Partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_BYTES = 64 * 1024 * 1024
MOST_PARTS = 64
BLOCK_BYTES = 4 * 1024 * 1024


def read(
    place: PostgresqlFrameTable,
    spark: SparkSession,
    names: Sequence[str] | None,
    held: ExitStack,
    partitions: Partitions | None = None,
) -> DataFrame:
    """As `TableFrames.read`: read in tasks, in one snapshot that is open as long as the stack."""
    from pyspark.sql.pandas.types import from_arrow_schema

    with (
        translated_frames(place, "reading"),
        closing(TextLink(place.connection, APPLICATION)) as link,
    ):
        columns, kinds = read_columns(link, place, names)
        only = condition(partitions, place.name, kinds) if partitions else ""
        ranges = _ranges(*_blocks(link, place))
    # Also where there is one range: a lazy frame may be read more than once.
    reader = _PostgresqlReader(place, tuple(columns), tuple(ranges), only, _export(place, held))
    schema = from_arrow_schema(pa.schema([(c.name, c.final) for c in columns]))
    return spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(reader, schema)


def _export(place: PostgresqlFrameTable, held: ExitStack) -> str:
    """The name of a snapshot of now; later changes do not show in it."""
    conninfo = dsn.conninfo(place.connection, APPLICATION)
    link = held.enter_context(closing(psycopg.connect(conninfo, autocommit=True)))
    link.execute("SET idle_in_transaction_session_timeout = 0")
    link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    ((name,),) = link.execute("SELECT pg_export_snapshot()").fetchall()
    return str(name)


def describe(place: PostgresqlFrameTable) -> tuple[pa.Schema, int | None]:
    """As `TableFrames.describe`; PostgreSQL only estimates its rows."""
    with (
        translated_frames(place, "looking at"),
        closing(TextLink(place.connection, APPLICATION)) as link,
    ):
        target = table.find(link, place.schema, place.table)
    if target is None:
        raise PermanentError(f"{place.name} does not exist")
    return target.schema(()), None


@dataclass(frozen=True)
class _PostgresqlReader:
    place: PostgresqlFrameTable
    columns: tuple[FrameColumn, ...]
    ranges: tuple[str, ...]
    only: str
    """A condition on the rows; empty for all of them."""
    snapshot: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from self._read(self.ranges[index])

    def _read(self, where: str) -> Iterator[pa.RecordBatch]:
        # A constant behind them: a row of one null alone would be an empty line, which is no row.
        selected = ", ".join([*(column.select for column in self.columns), "0"])
        parts = " AND ".join(f"({part})" for part in (where, self.only) if part)
        # S608: every name is quoted
        rows = f"SELECT {selected} FROM {self.place.name}{parts and f' WHERE {parts}'}"  # noqa: S608
        snapshot = f"SET TRANSACTION SNAPSHOT '{self.snapshot}'"
        with (
            translated_frames(self.place, "reading"),
            closing(TextLink(self.place.connection, APPLICATION)) as link,
        ):
            link.execute("SET statement_timeout = 0")  # who reads may take its time
            link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            link.execute(snapshot)
            messages = link.copy_out(f"COPY ({rows}) TO STDOUT (FORMAT csv)")
            for lines in _gather(messages):
                yield from self._parse(lines)

    def _parse(self, lines: pa.Buffer) -> Iterator[pa.RecordBatch]:
        try:
            table = _read_csv(lines, [column.type for column in self.columns])
            for batch in table.to_batches():
                pairs = zip(self.columns, batch.columns, strict=True)
                arrays = [column.finish(values, self.place) for column, values in pairs]
                yield pa.RecordBatch.from_arrays(arrays, names=[c.name for c in self.columns])
        except pa.ArrowInvalid as error:
            raise refusal_of(error, self.columns, self.place) from None


def _gather(messages: Iterable[memoryview]) -> Iterator[pa.Buffer]:
    """Some megabytes of whole rows at a time: of COPY each message is a row, however large."""
    lines = bytearray()
    for message in messages:
        lines += message
        if len(lines) >= BLOCK_BYTES:
            yield pa.py_buffer(lines)
            lines = bytearray()
    if lines:
        yield pa.py_buffer(lines)


def _read_csv(lines: pa.Buffer, kinds: Sequence[pa.DataType]) -> pa.Table:
    """Columns of these types, and one more that is left out."""
    names = [f"c{number}" for number in range(len(kinds))]
    return arrow_csv.read_csv(
        pa.BufferReader(lines),
        read_options=arrow_csv.ReadOptions(
            column_names=[*names, "end"],
            block_size=lines.size + 1,  # one block: a row must lie within two
            use_threads=False,
        ),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict(zip(names, kinds, strict=True)),
            include_columns=names,
            true_values=["t"],
            false_values=["f"],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _blocks(link: TextLink, place: PostgresqlFrameTable) -> tuple[int, int]:
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
    return [f"ctid >= '({low},0)'::tid{up}" for low, up in zip(edges, uppers, strict=True)]
