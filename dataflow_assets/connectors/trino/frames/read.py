"""Trino table -> lazy Spark DataFrame.

One query reads it, in one task: two queries could see two states of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.client import TrinoClient, quote
from dataflow_assets.connectors.trino.decode import batches
from dataflow_assets.connectors.trino.frames.conditions import condition
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table.table import Column, TrinoPlace, TrinoTable, find
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.table_frames import choose, spark_type
from dataflow_assets.sdk.table_partitions import Partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def place_of(sink: TrinoSinkOptions) -> TrinoPlace:
    schema, name = sink.place()
    return TrinoPlace(sink.catalog or "", schema, name)


def find_table(client: TrinoClient, place: TrinoPlace) -> TrinoTable:
    """The table. Raises PermanentError where there is none, and Failure."""
    table = find(client, place)
    if table is None:
        raise PermanentError(f"table {place} does not exist")
    return table


def describe(sink: TrinoSinkOptions) -> tuple[pa.Schema, int | None]:
    place = place_of(sink)
    with (
        translate_errors(f"looking at {place}"),
        closing(TrinoClient(sink, "dataflow-frames")) as client,
    ):
        table = find_table(client, place)
        count = client.value(f"SELECT count(*) FROM {place.quoted_name}")  # noqa: S608 - quoted
    return table.schema(), int(count)


def read(
    sink: TrinoSinkOptions,
    spark: SparkSession,
    names: Sequence[str] | None,
    held: ExitStack,  # noqa: ARG001 - what other systems need
    partitions: Partitions | None = None,
) -> DataFrame:
    """As `TableFrames.read`: one query, read in one task, sees one state."""
    from pyspark.sql.pandas.types import from_arrow_schema

    place = place_of(sink)
    with (
        translate_errors(f"reading {place}"),
        closing(TrinoClient(sink, "dataflow-frames")) as client,
    ):
        table = find_table(client, place)
    by_name = {column.name: column for column in table.columns}
    columns = tuple(by_name[name] for name in choose(place, names, by_name))
    reader = _TrinoReader(sink, place, columns, condition(partitions, table) if partitions else "")
    return spark.range(0, 1, 1, 1).mapInArrow(reader, from_arrow_schema(reader.schema))


@dataclass(frozen=True)
class _TrinoReader:
    sink: TrinoSinkOptions
    place: TrinoPlace
    columns: tuple[Column, ...]
    only: str
    """A condition on the rows; empty for all of them."""

    @property
    def schema(self) -> pa.Schema:
        fields = [types.field(column.name, column.type) for column in self.columns]
        return pa.schema([pa.field(f.name, spark_type(f.type)) for f in fields])

    def __call__(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in given:
            for _ in range(batch.num_rows):
                yield from self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        selected = ", ".join(types.select_expression(quote(c.name), c.type) for c in self.columns)
        fields = [(c, types.field(c.name, c.type)) for c in self.columns]
        query = f"SELECT {selected} FROM {self.place.quoted_name}"  # noqa: S608 - quoted
        query += self.only and f" WHERE {self.only}"
        with (
            translate_errors(f"reading {self.place}"),
            closing(TrinoClient(self.sink, "frames")) as client,
        ):
            for batch in batches(client.pages(query), fields):
                yield self._fit(batch)

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """All other types are wider in Spark, which has microseconds only."""
        arrays = [
            column.cast(field.type, safe=False)
            for column, field in zip(batch.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
