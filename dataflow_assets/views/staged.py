"""Changes between the tasks of two jobs: a file for each task, in it a part for each bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from dataflow_assets.views.files import StateFiles
from dataflow_assets.views.hops import Change
from dataflow_assets.views.tables import bucket_of

_SCHEMA = pa.schema([("k", pa.binary()), ("x", pa.binary()), ("n", pa.int64())])


@dataclass(frozen=True)
class Staged:
    """One file of changes of a table."""

    name: str
    buckets: tuple[int, ...]
    """The bucket of each part of the file."""
    rows: tuple[int, ...]
    """How many changes each part has."""

    def count(self, bucket: int) -> int:
        """The changes of a bucket."""
        pairs = zip(self.buckets, self.rows, strict=True)
        return sum(rows for one, rows in pairs if one == bucket)


def stage(files: StateFiles, name: str, changes: Iterable[Change], buckets: int) -> Staged:
    """Writes the changes of a table that has so many buckets."""
    parts: dict[int, list[Change]] = {}
    for change in changes:
        parts.setdefault(bucket_of(change.key, buckets), []).append(change)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, _SCHEMA, compression="zstd", use_dictionary=False) as writer:
        for bucket in sorted(parts):
            columns = [list(one) for one in zip(*parts[bucket], strict=True)]
            writer.write_table(pa.table(columns, schema=_SCHEMA), row_group_size=1 << 30)
    rows = tuple(len(parts[bucket]) for bucket in sorted(parts))
    files.write(name, sink.getvalue().to_pybytes(), sum(rows))
    return Staged(name, tuple(sorted(parts)), rows)


def changes_of(files: StateFiles, staged: Iterable[Staged], bucket: int) -> Iterator[Change]:
    """The changes of one bucket, of all files."""
    for one in staged:
        if bucket in one.buckets:
            yield from _read(files, one, [one.buckets.index(bucket)])


def all_changes(files: StateFiles, staged: Iterable[Staged]) -> Iterator[Change]:
    """Those of all buckets."""
    for one in staged:
        yield from _read(files, one, range(len(one.buckets)))


def _read(files: StateFiles, one: Staged, parts: Sequence[int] | range) -> Iterator[Change]:
    with files.open(one.name) as opened:
        rows = pq.ParquetFile(opened).read_row_groups(list(parts))
    columns = (rows[name].to_pylist() for name in _SCHEMA.names)
    yield from map(Change._make, zip(*columns, strict=True))
