"""Changes of one table of a state, and what it keeps, as columns of Arrow.

| column | in `rows` of an upsert table | elsewhere |
|---|---|---|
| `k` | the PRIMARY KEY | the key |
| `x` | the row; null: deleted | what has changed of the key |
| `n` | when it came: of several the highest number counts, of these the last | how many times |

What is kept has the columns `k` and `v`; without a `v` the key is kept no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
BINARY = pa.large_binary()
"""Arrow joins no more than 2 GiB of `binary` into one array; a table may have more."""
SCHEMA = pa.schema([("k", BINARY), ("x", BINARY), ("n", pa.int64())])
KEPT = pa.schema([("k", BINARY), ("v", BINARY)])
# `empty_table` would import pandas.
NONE = pa.table([pa.nulls(0, field.type) for field in SCHEMA], SCHEMA)


def changes(
    keys: Sequence[bytes] | pa.Array,
    besides: Sequence[bytes | None] | pa.Array,
    numbers: Sequence[int] | Ints | pa.Array,
) -> pa.Table:
    return pa.table([keys, besides, numbers], schema=SCHEMA)


def concatenate(parts: Iterable[pa.Table]) -> pa.Table:
    """Changes of one table in their order."""
    table = pa.concat_tables([NONE, *parts])
    return table.combine_chunks()


def latest(given: pa.Table) -> pa.Table:
    """Keeps the change with the highest number of each key, of equal ones the last."""
    keys = given["k"].combine_chunks().dictionary_encode()
    if len(keys.dictionary) == given.num_rows:
        return given
    codes = keys.indices.to_numpy()
    order = np.lexsort((given["n"].to_numpy(), codes))
    ordered = codes[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    return given.take(pa.array(np.sort(order[last])))


def added_up(given: pa.Table) -> pa.Table:
    """Changes that are equal together, and how many times they come in all."""
    sums = given.group_by(["k", "x"], use_threads=False).aggregate([("n", "sum")])
    return sums.rename_columns(SCHEMA.names)


def without_zeros(given: pa.Table) -> pa.Table:
    return given.filter(pc.not_equal(given["n"], 0))


def kept_rows(values: Mapping[bytes, bytes | None]) -> pa.Table:
    return pa.table([list(values), list(values.values())], schema=KEPT)


def by_key(rows: pa.Table) -> dict[bytes, bytes | None]:
    return dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


def looked_up(rows: pa.Table, keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns what is kept under keys, in their order; null where nothing is."""
    at = pc.index_in(keys, rows["k"].combine_chunks())
    return rows["v"].take(at)
