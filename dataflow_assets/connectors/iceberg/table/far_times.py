"""Rows with times beyond the years 1 to 9999: PyIceberg has no statistics of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.formats.json_times import YEARS

_YEARS = tuple(pa.scalar(micros, pa.timestamp("us")) for micros in YEARS)


def datable(rows: pa.RecordBatch) -> pa.Array:
    """Which rows have no such time, neither as a value nor inside of it.

    Called by writers inside tasks for each batch: a far time would end the task, not its record.
    """
    far = np.zeros(rows.num_rows, np.bool_)
    for values in rows.columns:
        far[far_times(values)] = True
    return pa.array(~far)


def far_times(values: pa.Array) -> Any:
    """The indices of values that have one. Called in tasks, for each column of a batch."""
    kind = values.type
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit != "ns"):
        first, last = (year.cast(kind) for year in _YEARS)
        outside = pc.or_(pc.less(values, first), pc.greater(values, last))
        return np.flatnonzero(outside.fill_null(False).to_numpy(zero_copy_only=False))
    if not pa.types.is_nested(kind):
        return np.zeros(0, np.int64)
    if pa.types.is_struct(kind):
        return np.concatenate([far_times(child) for child in values.flatten()])
    if pa.types.is_map(kind):
        values = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    return pc.list_parent_indices(values).to_numpy()[far_times(pc.list_flatten(values))]
