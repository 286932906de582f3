"""Frames of users' assets without Spark: an Arrow table that knows what the IO managers ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tests.in_process import BATCH_ROWS, Frame


class LocalFrame(Frame):
    """The rows of a table; each BATCH_ROWS of them are a partition."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(lambda: _partitions(table), _no_spark)
        object.__setattr__(self, "table", table)

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return list(self.table.column_names)

    @property
    def schema(self) -> StructType:
        """In Spark's types."""
        return from_arrow_schema(self.table.schema)

    def toDF(self, *names: str) -> LocalFrame:  # noqa: N802 - Spark's name
        """The same under other names."""
        return LocalFrame(self.table.rename_columns(list(names)))


def local_frame(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> LocalFrame:
    """A frame as Spark would hand it over."""
    spark: pa.Schema = to_arrow_schema(from_arrow_schema(schema))
    return LocalFrame(pa.Table.from_pylist(list(rows), spark))


def _partitions(table: pa.Table) -> list[Any]:
    starts = range(0, max(1, table.num_rows), BATCH_ROWS)
    return [iter(table.slice(start, BATCH_ROWS).to_batches()) for start in starts]


def _no_spark() -> Any:
    raise AssertionError("this frame is not on Spark")
