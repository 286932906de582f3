"""Which columns a record did not carry, per distinct mask: there are few."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dataflow_assets.sdk.key_folding import Bools, matrix


def by_columns(
    rows: pa.RecordBatch, schema: pa.Schema, optional: Bools
) -> Iterator[tuple[list[str], pa.RecordBatch]]:
    """The rows by the columns to name in a statement: absent ones of `optional` are left out."""
    codes, table = matrix(rows, len(schema))
    left_out, which = np.unique(table & optional, axis=0, return_inverse=True)
    if len(left_out) == 1:
        yield _named(schema, left_out[0]), rows
        return
    group = which.reshape(-1)[codes]
    for number, mask in enumerate(left_out):
        part = rows.filter(pa.array(group == number))
        if part.num_rows:
            yield _named(schema, mask), part


def _named(schema: pa.Schema, left_out: Bools) -> list[str]:
    return [name for name, out in zip(schema.names, left_out, strict=True) if not out]
