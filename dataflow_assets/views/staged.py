"""Changes between the tasks of two jobs: a file for each task, in it a part for each bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from dataflow_assets.sql.changes import SCHEMA, joined
from dataflow_assets.views.files import StateFiles
from dataflow_assets.views.tables import buckets_of


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


def stage(files: StateFiles, name: str, changes: pa.Table, buckets: int) -> Staged:
    """Writes the changes of a table that has so many buckets."""
    numbers = buckets_of(changes["k"], buckets)
    order = np.argsort(numbers, kind="stable")
    ordered = changes.take(pa.array(order)).combine_chunks()  # so each part is one batch
    there, rows = np.unique(numbers, return_counts=True)
    ends = np.cumsum(rows)
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, SCHEMA, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        for end, count in zip(ends.tolist(), rows.tolist(), strict=True):
            writer.write_table(ordered.slice(end - count, count))
    files.write(name, sink.getvalue().to_pybytes(), changes.num_rows)
    return Staged(name, tuple(there.tolist()), tuple(rows.tolist()))


def changes_of(files: StateFiles, staged: Iterable[Staged], bucket: int) -> pa.Table:
    """The changes of one bucket, of all files."""
    return joined(
        _read(files, one, [one.buckets.index(bucket)]) for one in staged if bucket in one.buckets
    )


def all_changes(files: StateFiles, staged: Iterable[Staged]) -> pa.Table:
    """Those of all buckets."""
    return joined(_read(files, one, range(len(one.buckets))) for one in staged)


def _read(files: StateFiles, one: Staged, parts: Sequence[int] | range) -> pa.Table:
    with files.open(one.name) as opened:
        file = ipc.open_file(opened)
        return pa.Table.from_batches([file.get_batch(at) for at in parts], SCHEMA)
