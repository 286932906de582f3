"""Changes between the tasks of two jobs: a file for each task, in it a part for each bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from dataflow_assets.languages.sql.engine.changes import SCHEMA, concatenate
from dataflow_assets.languages.sql.state.files import StateFiles
from dataflow_assets.languages.sql.state.tables import buckets_of


@dataclass(frozen=True)
class StagedState:
    """One file of changes of a table."""

    name: str
    buckets: tuple[int, ...]
    """The bucket of each part of the file; one may have several parts."""
    rows: tuple[int, ...]
    """How many changes each part has."""
    size: int
    """Bytes of all changes in memory."""


def stage(files: StateFiles, name: str, changes: pa.Table, buckets: int) -> StagedState:
    """Writes the changes of a table that has so many buckets."""
    numbers = buckets_of(changes["k"], buckets)
    order = np.argsort(numbers, kind="stable")
    ordered = changes.take(pa.array(order)).combine_chunks()
    there, rows = np.unique(numbers, return_counts=True)
    parts = _parts(ordered, there.tolist(), rows.tolist())
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, SCHEMA, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        for _, batch in parts:
            writer.write_batch(batch)
    files.write(name, sink.getvalue().to_pybytes(), changes.num_rows)
    rows_of = tuple(one.num_rows for _, one in parts)
    return StagedState(name, tuple(one for one, _ in parts), rows_of, ordered.nbytes)


def _parts(
    ordered: pa.Table, buckets: Sequence[int], rows: Sequence[int]
) -> list[tuple[int, pa.RecordBatch]]:
    parts: list[tuple[int, pa.RecordBatch]] = []
    first = 0
    for bucket, count in zip(buckets, rows, strict=True):
        parts += ((bucket, one) for one in ordered.slice(first, count).to_batches())
        first += count
    return parts


def changes_of(files: StateFiles, staged: Iterable[StagedState], bucket: int) -> pa.Table:
    """The changes of one bucket, of all files."""
    return concatenate(
        _read(files, one, [at for at, other in enumerate(one.buckets) if other == bucket])
        for one in staged
        if bucket in one.buckets
    )


def all_changes(files: StateFiles, staged: Iterable[StagedState]) -> pa.Table:
    return concatenate(_read(files, one, range(len(one.buckets))) for one in staged)


def _read(files: StateFiles, one: StagedState, parts: Sequence[int] | range) -> pa.Table:
    with files.open(one.name) as opened:
        file = ipc.open_file(opened)
        return pa.Table.from_batches([file.get_batch(at) for at in parts], SCHEMA)
