"""Keys and what is kept under them, as files: looked up, and written again.

A file is Parquet with the columns `k`, `v` and `t`; without a `v` the key is kept no more. `t` is
when the key was touched last, in milliseconds. All that is not touched stays in Arrow and never
becomes objects of Python.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataflow_assets.languages.sql.engine.changes import BINARY, KEPT
from dataflow_assets.languages.sql.engine.windows import FRONT, at_front, front
from dataflow_assets.languages.sql.state.manifest import StateFile, StateTable

SCHEMA = pa.schema([*KEPT, ("t", pa.int64())])
Load = Callable[[StateFile], pa.Table]


def buckets_of(keys: pa.Array, buckets: int) -> npt.NDArray[np.uint32]:
    """The bucket of each key; there are 2 to the power of something of them."""
    hashes = np.fromiter(map(zlib.crc32, keys.to_pylist()), np.uint32, len(keys))
    return hashes & np.uint32(buckets - 1)


def encode(table: pa.Table) -> bytes:
    """Writes a file that does not say how large its columns were in memory."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, store_schema=False)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode(content: bytes) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)


def touch(puts: pa.Table, at: int) -> pa.Table:
    """Returns rows that are kept from now on, sorted by key: a repetition writes the same file."""
    times = pa.array(np.full(puts.num_rows, at, np.int64))
    return puts.append_column("t", times).sort_by("k").combine_chunks()


def alive(rows: pa.Table, since: int | None) -> pa.Table:
    """Returns the rows that were touched later than that; None: all."""
    return rows if since is None else rows.filter(pc.greater(rows["t"], since))


def find(table: StateTable, keys: pa.Array, load: Load) -> pa.Table:
    """Returns what is kept under some keys.

    Args:
        table: as the manifest names it.
        keys: each once.
        load: gives the rows of a file.
    """
    buckets = np.unique(buckets_of(keys, len(table.buckets))).tolist()
    files = [file for bucket in buckets if (file := table.buckets[bucket]) is not None]
    base = [matching(load(file), keys) for file in files]
    layers = [pa.concat_tables(base)] if base else []
    return merge([*layers, *(matching(load(file), keys) for file in table.recent)])


def matching(rows: pa.Table, keys: pa.Array) -> pa.Table:
    """Returns what a file or bucket has under some keys."""
    return rows.filter(pc.is_in(rows["k"], keys))


def bucket_rows(table: StateTable, bucket: int, buckets: int, load: Load) -> pa.Table:
    """All that is kept in one bucket of so many, which may be more than the table has now."""
    size = len(table.buckets)
    file = table.buckets[bucket & size - 1]
    layers = [] if file is None else [load(file)]
    if buckets != size:
        layers = [_only(one, bucket, buckets) for one in layers]
    layers += [_only(load(one), bucket, buckets) for one in table.recent]
    return merge(layers)


def final_rows(table: StateTable, upto: int, load: Load) -> dict[bytes, bytes]:
    """Returns what is kept under the keys of windows that are final up to a time."""
    buckets = [load(file) for file in table.buckets if file is not None]
    layers = [pa.concat_tables(buckets)] if buckets else []
    layers += [load(file) for file in table.recent]
    found, _ = divide(merge(one.filter(_is_final(one, upto)) for one in layers), upto)
    return found


def divide(rows: pa.Table, upto: int) -> tuple[dict[bytes, bytes], pa.Table]:
    """Separates rows under the keys of windows that are final up to a time from the others."""
    mask = _is_final(rows, upto)
    final = rows.filter(mask)
    finals = dict(zip(final["k"].to_pylist(), final["v"].to_pylist(), strict=True))
    return finals, rows.filter(pc.invert(mask))


def _is_final(rows: pa.Table, upto: int) -> pa.ChunkedArray:
    return pc.less_equal(_fronts(rows), pa.scalar(front(upto), BINARY))


def first(layers: Iterable[pa.Table], behind: int | None = None) -> int | None:
    """When the first window of some rows is final, of those that are final behind a time."""
    columns = [_fronts(one) for one in layers]
    if behind is not None:
        least = pa.scalar(front(behind), BINARY)
        columns = [one.filter(pc.greater(one, least)) for one in columns]
    firsts = [one for fronts in columns if (one := pc.min(fronts).as_py()) is not None]
    return at_front(min(firsts)) if firsts else None


def _fronts(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_slice(rows["k"], 0, FRONT)


def _only(rows: pa.Table, bucket: int, buckets: int) -> pa.Table:
    return rows.filter(pa.array(buckets_of(rows["k"], buckets) == bucket))


def merge(layers: Iterable[pa.Table]) -> pa.Table:
    """The newest of each key, the oldest layer first; what is kept no more is left out."""
    newest: pa.Table | None = None
    for layer in reversed(list(layers)):
        if newest is None:
            newest = layer
            continue
        rest = layer.filter(pc.invert(pc.is_in(layer["k"], newest["k"].combine_chunks())))
        newest = pa.concat_tables([newest, rest])
    if newest is None:
        return SCHEMA.empty_table()
    return newest.filter(newest["v"].is_valid()).combine_chunks()
