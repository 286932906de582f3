"""Structs that are null though they have required fields: nothing of such a field is null.

Arrow keeps the fields of a null struct too. Where one is declared as required and is null there,
Parquet refuses the column, though the value that people see, the struct, may well be null.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def struct_of(
    children: Sequence[pa.Array], fields: Sequence[pa.Field], mask: pa.Array | None
) -> pa.StructArray:
    """The struct of these children, null where the mask is true."""
    hidden = (
        not field.nullable and child.null_count
        for field, child in zip(fields, children, strict=True)
    )
    if mask is None or not any(hidden):
        return pa.StructArray.from_arrays(children, fields=list(fields), mask=mask)
    kept = pc.invert(mask)
    there = [child.filter(kept) for child in children]
    whole = pa.StructArray.from_arrays(there, fields=list(fields))
    null = pa.array([None], whole.type)  # whose required fields have some value
    places = np.where(mask, len(whole), np.cumsum(kept) - 1)
    return pa.concat_arrays([whole, null]).take(pa.array(places, pa.int64()))


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """So many nulls of a type, whose required fields have some value."""
    if not pa.types.is_nested(kind):
        return pa.nulls(count, kind)
    return pa.array([None], kind).take(pa.array(np.zeros(count, np.int64)))


def sound(array: pa.Array) -> pa.Array:
    """Returns the same values, with no null in a required field of a null struct, however deep."""
    return _like(array, array.type) if _hides(array) else array


def cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in another type, whose fields may be required where those of the array are not."""
    if array.type == kind:
        return sound(array)
    return _like(array, kind).cast(kind)


def cast_rows(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the types of a schema with the same names."""
    arrays = [cast(rows.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _hides(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_struct(kind):
        children = [array.field(at) for at in range(kind.num_fields)]
        hidden = (not f.nullable and c.null_count for f, c in zip(kind, children, strict=True))
        return any(hidden) or any(map(_hides, children))
    if pa.types.is_map(kind):
        return _hides(array.keys) or _hides(array.items)
    return pa.types.is_list(kind) and _hides(array.values)


def _like(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in their own types, whose fields are required where those of `kind` are.

    Texts in place of 16 bytes are UUIDs, and the other way round.
    """
    if pa.types.is_string(array.type) and kind == pa.binary(16):
        texts = array.to_pylist()
        return pa.array([t if t is None else uuid.UUID(t).bytes for t in texts], kind)
    if pa.types.is_string(kind) and array.type in (pa.binary(16), pa.uuid()):
        octets = array.cast(pa.binary(16)).to_pylist()
        return pa.array([o if o is None else str(uuid.UUID(bytes=o)) for o in octets], kind)
    if pa.types.is_binary(array.type) and pa.types.is_fixed_size_binary(kind):
        return array.cast(kind)  # before a null struct gets bytes of some length
    for is_kind, rebuilt in _REBUILT:
        if is_kind(array.type) and is_kind(kind):
            return rebuilt(array, kind)
    return array


def _struct(array: pa.StructArray, kind: pa.StructType) -> pa.Array:
    by_name = {field.name: field for field in kind}
    children, fields = [], []
    for field, child in zip(array.type, array.flatten(), strict=True):
        target = by_name.get(field.name, field)
        children.append(_like(child, target.type))
        fields.append(field.with_nullable(target.nullable).with_type(children[-1].type))
    return struct_of(children, fields, _nulls(array))


def _list(array: pa.ListArray, kind: pa.ListType) -> pa.Array:
    offsets, (values,) = _inside(array, array.values)
    values = _like(values, kind.value_field.type)
    field = array.type.value_field.with_nullable(kind.value_field.nullable)
    sound_kind = pa.list_(field.with_type(values.type))
    return pa.ListArray.from_arrays(offsets, values, type=sound_kind, mask=_nulls(array))


def _map(array: pa.MapArray, kind: pa.MapType) -> pa.Array:
    offsets, (keys, items) = _inside(array, array.keys, array.items)
    keys, items = _like(keys, kind.key_field.type), _like(items, kind.item_field.type)
    field = array.type.item_field.with_nullable(kind.item_field.nullable)
    sound_kind = pa.map_(array.type.key_field.with_type(keys.type), field.with_type(items.type))
    return pa.MapArray.from_arrays(offsets, keys, items, type=sound_kind, mask=_nulls(array))


_REBUILT: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any], pa.Array]], ...] = (
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
)


def _inside(array: Any, *inner: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Offsets from 0 on, and the parts of the values that they are about."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    offsets = pc.subtract(array.offsets, array.offsets[0]).cast(pa.int32())
    return offsets, [values.slice(first, last - first) for values in inner]


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
