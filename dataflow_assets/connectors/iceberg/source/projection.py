"""Rows of a data file in the columns that its table has now, in interchange types.

Columns are found by their field ids: renamed ones under their new names, widened ones widened,
those that the file lacks with the partition's value, their default, or null. PyIceberg's own
projection is not used: it makes empty lists of null lists of structs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from dataflow_assets.connectors.iceberg.source.types import TRAVELLING, typed_schema
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.structs import nulls, struct_of
from dataflow_assets.records.record import exact_json

Values = Mapping[int, Any]

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]  # between dashes


def project(batch: pa.RecordBatch, file: Schema, schema: Schema, values: Values) -> pa.RecordBatch:
    """The batch in the schema's columns; `values` by field id are what its partition tells.

    `batch` holds columns of the file, in any order, under their names there.
    """
    held = {column.field_id: column for column in file.fields if column.name in batch.schema.names}
    arrays = []
    for column in schema.fields:
        stored = held.get(column.field_id)
        if stored is None:
            arrays.append(_default_column(column, batch.num_rows, values))
        else:
            arrays.append(_cast(batch.column(stored.name), stored.field_type, column.field_type))
    return pa.RecordBatch.from_arrays(arrays, schema=typed_schema(schema))


def _default_column(column: ice.NestedField, rows: int, values: Values) -> pa.Array:
    value = values.get(column.field_id, column.initial_default)
    if value is None and column.required:
        raise PermanentError(
            f"column {column.name} is required, but a data file lacks it: the table is damaged"
        )
    if isinstance(column.field_type, ice.UUIDType) and value is not None:
        value = str(value)
    kind = TRAVELLING.arrow(column.field_type)
    return nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def _cast(array: pa.Array, have: ice.IcebergType, want: ice.IcebergType) -> pa.Array:
    if isinstance(want, ice.UUIDType):
        return _uuid_texts(array)
    if isinstance(want, ice.StructType) and isinstance(have, ice.StructType):
        return _struct(array, have, want)
    if isinstance(want, ice.ListType) and isinstance(have, ice.ListType):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        inner = array.values.slice(first, last - first)
        values = _cast(inner, have.element_type, want.element_type)
        offsets = pc.subtract(array.offsets, array.offsets[0]).cast(pa.int32())
        return pa.ListArray.from_arrays(
            offsets, values, type=TRAVELLING.arrow(want), mask=array.is_null()
        )
    if isinstance(want, ice.MapType) and isinstance(have, ice.MapType):
        return _map_texts(array, have, want)
    kind = TRAVELLING.arrow(want)
    finer = pa.types.is_timestamp(kind) and array.type.unit == "ns"
    return array if array.type == kind else array.cast(kind, safe=not finer)


def _struct(array: pa.StructArray, have: ice.StructType, want: ice.StructType) -> pa.Array:
    held = dict(zip((one.field_id for one in have.fields), array.flatten(), strict=True))
    kinds = {one.field_id: one.field_type for one in have.fields}
    arrays = [
        _cast(held[one.field_id], kinds[one.field_id], one.field_type)
        if one.field_id in held
        else _default_column(one, len(array), {})
        for one in want.fields
    ]
    return struct_of(arrays, list(TRAVELLING.arrow(want)), array.is_null())


def _map_texts(array: pa.MapArray, have: ice.MapType, want: ice.MapType) -> pa.Array:
    """Each map as a JSON object; the text of a key is its JSON without quotes."""
    offsets = array.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    keys = array.keys.slice(first, last - first)
    items = array.items.slice(first, last - first)
    names = [_name(key) for key in _cast(keys, have.key_type, want.key_type).to_pylist()]
    values = _plain(_cast(items, have.value_type, want.value_type), want.value_type)
    pairs = list(zip(names, values, strict=True))
    bounds = zip(offsets[:-1], offsets[1:], array.is_valid().to_pylist(), strict=True)
    texts = [
        exact_json(dict(pairs[low - first : high - first])) if valid else None
        for low, high, valid in bounds
    ]
    return pa.array(texts, pa.binary()).cast(pa.string())


def _name(key: Any) -> str:
    return key if isinstance(key, str) else exact_json(key).decode().strip('"')


def _plain(array: pa.Array, kind: ice.IcebergType) -> list[Any]:
    """The values of a map; a map inside of it is JSON text by now."""
    if isinstance(kind, ice.MapType):
        return [None if text is None else msgspec.Raw(text.encode()) for text in array.to_pylist()]
    values: list[Any] = array.to_pylist()
    return values


def _uuid_texts(array: pa.Array) -> pa.Array:
    stored = array.storage if isinstance(array, pa.ExtensionArray) else array
    filled = pc.fill_null(stored, pa.scalar(bytes(16), pa.binary(16)))
    octets = np.frombuffer(filled.buffers()[1], np.uint8)[filled.offset * 16 :][: len(filled) * 16]
    nibbles = np.stack([octets >> 4, octets & 15], axis=1).reshape(len(filled), 32)
    texts = np.full((len(filled), 36), ord("-"), np.uint8)
    texts[:, _DIGITS] = _HEX[nibbles]
    buffers = [None, pa.py_buffer(texts.tobytes())]
    spelled = pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), len(filled), buffers)
    return pc.if_else(stored.is_valid(), spelled.cast(pa.binary()).cast(pa.string()), None)
