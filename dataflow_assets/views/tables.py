"""Keys and what is kept under them, as files: looked up, and written again.

A file is Parquet with the columns `k` and `v`; without a `v` the key is kept no more. All that is
not touched stays in Arrow and never becomes objects of Python.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataflow_assets.views.manifest import File, Table

SCHEMA = pa.schema([("k", pa.binary()), ("v", pa.binary())])
Load = Callable[[File], pa.Table]
Puts = Mapping[bytes, bytes | None]


def bucket_of(key: bytes, buckets: int) -> int:
    """The bucket of a key; there are 2 to the power of something of them."""
    return zlib.crc32(key) & buckets - 1


def encoded(table: pa.Table) -> bytes:
    """As a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decoded(content: bytes) -> pa.Table:
    """From a file."""
    return pq.read_table(pa.BufferReader(content))


def table_of(puts: Puts) -> pa.Table:
    """Keys in their order: a repeated computation writes the same file."""
    keys = sorted(puts)
    return pa.table([keys, [puts[key] for key in keys]], schema=SCHEMA)


def found(table: Table, keys: Sequence[bytes], load: Load) -> dict[bytes, bytes | None]:
    """What is kept under some keys; those that are not there are left out, or None.

    Args:
        table: as the manifest names it.
        keys: each once.
        load: gives the rows of a file.
    """
    kept: dict[bytes, bytes | None] = {}
    parts: dict[int, list[bytes]] = {}
    for key in keys:
        parts.setdefault(bucket_of(key, len(table.buckets)), []).append(key)
    for bucket, some in sorted(parts.items()):
        file = table.buckets[bucket]
        if file is not None:
            kept |= matching(load(file), some)
    for file in table.recent:
        kept |= matching(load(file), keys)
    return kept


def matching(rows: pa.Table, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
    """What is kept under some keys of one file or bucket."""
    chosen = rows.filter(pc.is_in(rows["k"], pa.array(keys, pa.binary())))
    return dict(zip(chosen["k"].to_pylist(), chosen["v"].to_pylist(), strict=True))


def bucket_rows(table: Table, bucket: int, buckets: int, load: Load) -> pa.Table:
    """All that is kept in one bucket of so many, which may be more than the table has now."""
    size = len(table.buckets)
    file = table.buckets[bucket & size - 1]
    layers = [] if file is None else [load(file)]
    if buckets != size:
        layers = [_only(one, bucket, buckets) for one in layers]
    layers += [_only(load(one), bucket, buckets) for one in table.recent]
    return merged(layers)


def _only(rows: pa.Table, bucket: int, buckets: int) -> pa.Table:
    mask = [bucket_of(key, buckets) == bucket for key in rows["k"].to_pylist()]
    return rows.filter(pa.array(mask, pa.bool_()))


def merged(layers: Iterable[pa.Table]) -> pa.Table:
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
