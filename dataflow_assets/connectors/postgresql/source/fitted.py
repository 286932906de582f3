"""Columns of a batch, and those of their values that do not fit them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dataflow_assets.formats.rows import is_beside, unfit_column


@dataclass(frozen=True)
class Fitted:
    """A column of a batch."""

    field: pa.Field
    values: pa.Array
    """Null where a value does not fit the field."""
    unfit: dict[int, Any] = field(default_factory=dict)
    """Those values, by row, as the JSON encoder takes them."""


def batch_of(columns: Sequence[Fitted]) -> pa.RecordBatch:
    """The columns, and one of what does not fit them, where there is any.

    Called inside tasks, for each batch of a table that is polled, loaded or followed.
    """
    fields = [column.field for column in columns]
    arrays = [column.values for column in columns]
    unfit = defaultdict[int, dict[str, Any]](dict)
    for column in columns:
        if not is_beside(column.field):
            for row, value in column.unfit.items():
                unfit[row][column.field.name] = value
    if unfit:
        marked, texts = unfit_column(unfit, len(arrays[0]))
        fields, arrays = [*fields, marked], [*arrays, texts]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
