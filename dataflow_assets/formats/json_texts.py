"""Structs as JSON texts, a column at a time, where their texts need no escapes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.records.record import exact_json

_QUOTE, _BACKSLASH, _BLANK = b'"\\ '


def json_texts(column: pa.Array) -> pa.Array:
    """Values of numbers, booleans, texts, and structs of these, as JSON; null stays null."""
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if pa.types.is_string(column.type):
        if _plain(column):
            return pc.binary_join_element_wise('"', column, '"', "")
        texts = [None if one is None else exact_json(one) for one in column.to_pylist()]
        return pa.array(texts, pa.string())
    assert pa.types.is_struct(column.type), column.type  # noqa: S101 - nothing else is asked for
    pieces: list[Any] = []
    for index, field in enumerate(column.type):
        comma = "," if index else "{"
        pieces.append(f"{comma}{json.dumps(field.name, ensure_ascii=False)}:")
        member = json_texts(column.field(index))
        pieces.append(pc.fill_null(member, "null") if member.null_count else member)
    joined = pc.binary_join_element_wise(*pieces, "}", "")
    return pc.if_else(column.is_valid(), joined, None) if column.null_count else joined


def _plain(column: pa.Array) -> bool:
    _, offsets, data = column.buffers()
    if data is None:
        return True
    bounds = np.frombuffer(offsets, np.int32)
    first, last = bounds[column.offset], bounds[column.offset + len(column)]
    letters = np.frombuffer(data, np.uint8)[first:last]
    return not np.any((letters < _BLANK) | (letters == _QUOTE) | (letters == _BACKSLASH))
