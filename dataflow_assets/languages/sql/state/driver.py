"""The driver's side of a computation: a cache of files, Spark, and when it needs Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.languages.sql.state.manifest import StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = 20_000
"""Keys of a table that are merged on the driver."""
FOLDED = 8
"""Times as many changes the driver adds up, to find out how many keys they are of."""
FEW_BYTES = 32 * 1024 * 1024
"""The most bytes of changes that the driver adds up: as objects of Python they take ten times as
much, and the values of MIN and MAX are all of them in the change of one key."""
BUCKETS = 16
"""The fewest of a table."""
FULL = 250_000
"""Keys of a bucket, above which a table gets twice as many."""
MOST_RECENT = 100_000
"""Keys beside the buckets, above which they are merged into them."""
MOST_FILES = 24
"""The same of files."""
CACHED = 256 * 1024 * 1024
"""Bytes of tables that the driver keeps in memory."""


@dataclass
class Cache:
    """Rows of files that were read or written last; files never change."""

    most: int = CACHED
    _rows: dict[str, pa.Table] = field(default_factory=dict)

    def get(self, file: StateFile, read: Callable[[], pa.Table]) -> pa.Table:
        rows = self._rows.pop(file.name, None)
        rows = read() if rows is None else rows
        self.put(file.name, rows)
        return rows

    def put(self, name: str, rows: pa.Table) -> None:
        """Keeps rows; the ones that were not used for longest make room."""
        self._rows[name] = rows
        size = sum(one.nbytes for one in self._rows.values())
        while size > self.most and len(self._rows) > 1:
            oldest = next(iter(self._rows))
            size -= self._rows.pop(oldest).nbytes


@dataclass(frozen=True)
class Limits:
    """When something is done in another way; tests have smaller ones."""

    few: int = FEW
    few_bytes: int = FEW_BYTES
    buckets: int = BUCKETS
    full: int = FULL
    most_recent: int = MOST_RECENT
    most_files: int = MOST_FILES


@dataclass(frozen=True)
class QueryDriver:
    """The resources of the driver for a computation."""

    cache: Cache
    spark: Callable[[], SparkSession]
    """Gives a live session; called only where there is much to do."""
    limits: Limits = Limits()
