"""Arrays as lists. PostgreSQL does not hold a column to the dimensions that it declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.source.fitted import Fitted
from dataflow_assets.connectors.postgresql.source.types import TypeOf
from dataflow_assets.formats.rows import cells, without

Nested = list[Any]
"""An array of any depth, its elements as PostgreSQL's text or None."""
Element = Callable[[pa.Array, pa.DataType], pa.Array]
"""Turns the texts of elements into values of a type; null where the type has no such value."""


def lists(values: Sequence[Nested | None], kind: TypeOf, name: str, element: Element) -> Fitted:
    """A column of arrays, as deep as declared, else as the first of them.

    Called inside tasks, for each batch of a table that is polled, loaded or followed.

    Args:
        values: the arrays.
        kind: of the column.
        name: of the column.
        element: reads elements.
    """
    depth = kind.dimensions or next((_depth(one) for one in values if one), 1)
    kind = replace(kind, dimensions=depth)
    others = {row: one for row, one in enumerate(values) if one and _depth(one) != depth}
    if others:
        values = [None if row in others else one for row, one in enumerate(values)]
    arrays, lost = _typed_lists(values, kind, element)
    unfit = {row: _json(one, kind, element) for row, one in others.items()}
    unfit |= {row: values[row] for row in lost}
    return Fitted(kind.field(name), without(arrays, lost), unfit)


def _depth(value: Nested) -> int:
    depth, inner = 1, value[0]
    while isinstance(inner, list):
        depth, inner = depth + 1, inner[0]
    return depth


def _json(value: Nested, kind: TypeOf, element: Element) -> Any:
    """An array of other dimensions as one of its own has them in JSON."""
    kind = replace(kind, dimensions=_depth(value))
    array, lost = _typed_lists([value], kind, element)
    return value if lost else cells(array, kind.field(""))[0]


def _typed_lists(
    values: Sequence[Nested | None], kind: TypeOf, element: Element
) -> tuple[pa.Array, list[int]]:
    """Lists of these dimensions, and the rows with an element that its type has no value for."""
    kind_of_list = kind.field_type
    texts = pa.array(values, _of_text(kind_of_list))
    arrays = leaves = _retype(texts, kind_of_list, element)
    bounds = np.arange(len(texts) + 1)
    while pa.types.is_list(texts.type):
        bounds, texts, leaves = texts.offsets.to_numpy()[bounds], texts.values, leaves.values
    if leaves.null_count == texts.null_count:
        return arrays, []
    lost = pc.and_(leaves.is_null(), texts.is_valid()).to_numpy(zero_copy_only=False)
    before = np.concatenate([[0], np.cumsum(lost)])[bounds]
    return arrays, np.flatnonzero(np.diff(before)).tolist()


def _of_text(kind: pa.DataType) -> pa.DataType:
    """Lists as deep as these, of texts."""
    return pa.list_(_of_text(kind.value_type)) if pa.types.is_list(kind) else pa.string()


def _retype(values: pa.Array, kind: pa.DataType, element: Element) -> pa.Array:
    """Lists of texts as lists of this type."""
    if not pa.types.is_list(kind):
        return element(values, kind)
    inner = _retype(values.values, kind.value_type, element)
    return pa.ListArray.from_arrays(
        values.offsets, inner, type=kind, mask=values.is_null() if values.null_count else None
    )
