"""Frames of users' assets without Spark: an Arrow table that knows what the IO managers ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tests.in_process import BATCH_ROWS, Frame


class LocalFrame(Frame):
    """The rows of a table; each BATCH_ROWS of them are a partition."""

    def __init__(self, table: pa.Table, session: SparkSession) -> None:
        names = tuple(table.column_names)
        super().__init__(lambda: _partitions(table), lambda: _on_spark(table, session), names)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "sparkSession", session)

    @property
    def schema(self) -> StructType:
        """In Spark's types."""
        return from_arrow_schema(self.table.schema)


def local_frame(
    rows: Sequence[Mapping[str, Any]], schema: pa.Schema, session: SparkSession
) -> DataFrame:
    """A frame as Spark would hand it over."""
    spark: pa.Schema = to_arrow_schema(from_arrow_schema(schema))
    return cast("DataFrame", LocalFrame(pa.Table.from_pylist(list(rows), spark), session))


def _partitions(table: pa.Table) -> list[Any]:
    starts = range(0, max(1, table.num_rows), BATCH_ROWS)
    return [iter(table.slice(start, BATCH_ROWS).to_batches()) for start in starts]


def _on_spark(table: pa.Table, session: SparkSession) -> DataFrame:
    return session.createDataFrame(table)
