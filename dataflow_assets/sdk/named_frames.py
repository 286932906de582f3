"""The rows of a user's frame through a function, whatever its columns are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def mapped(frame: DataFrame, work: Work, schema: str) -> DataFrame:
    """`mapInArrow`, which takes a dot in a column's name for the way into a struct."""
    names = tuple(frame.columns)
    plain = frame.toDF(*(f"c{number}" for number in range(len(names))))
    return plain.mapInArrow(_Named(work, names), schema)


@dataclass(frozen=True)
class _Named:
    work: Work
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.work(batch.rename_columns(list(self.names)) for batch in batches)
