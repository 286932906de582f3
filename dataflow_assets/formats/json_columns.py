"""A column's decoded values to Arrow; a column that cannot hold them is named.

JSON text and digits stay as sent. What is absent comes as UNSET, what is null as None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from dataflow_assets.contracts import Kind, Note, kind_of
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats import json_times
from dataflow_assets.formats.decimals import decimals
from dataflow_assets.formats.json_checks import only_numbers
from dataflow_assets.formats.json_structs import open_structs
from dataflow_assets.formats.json_types import is_optional
from dataflow_assets.formats.structs import struct_of
from dataflow_assets.formats.text_forms import NUMBER, all_have

Mask = np.ndarray[Any, np.dtype[np.bool_]]

"""Digits as text, and the numbers that JSON has no digits for."""
_UNFIT = (RejectedRecord, ValueError, pa.ArrowException, OverflowError, TypeError)


def column(field: pa.Field, cells: Sequence[Any]) -> tuple[pa.Array, Mask | None]:
    """The column, and where its key was absent (None: nowhere)."""
    if is_optional(field):
        # Looking for UNSET costs as much as a column of numbers, and no flat one can hold it.
        if not pa.types.is_nested(field.type):
            try:
                return array(field, cells), None
            except _UNFIT:
                pass
        if UNSET in cells:
            mask = np.fromiter((cell is UNSET for cell in cells), dtype=bool, count=len(cells))
            cells = [None if cell is UNSET else cell for cell in cells]
            return named_column(field, cells), mask
    return named_column(field, cells), None


def named_column(field: pa.Field, cells: Sequence[Any]) -> pa.Array:
    """The column; raises RejectedRecord that names it when it cannot hold the values."""
    try:
        return array(field, cells)
    except RejectedRecord as error:
        reason = error.reason
    except msgspec.ValidationError:
        raise
    except (ValueError, pa.ArrowException, OverflowError) as error:
        reason = " or ".join(dict.fromkeys(_limits(field.type))) or first_line(error)
    raise RejectedRecord("decode", f"column {field.name}: {reason}")


def _limits(kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_nested(kind):
        for index in range(kind.num_fields):
            yield from _limits(kind.field(index).type)
    elif pa.types.is_decimal(kind):
        whole, scale = kind.precision - kind.scale, kind.scale
        yield f"expected a number of at most {whole} digits before the point and {scale} behind it"
    elif kind == pa.uint64():
        yield "expected `int` <= 18446744073709551615"


def array(field: pa.Field, cells: Sequence[Any]) -> pa.Array:
    """The column of values that are all there, dates and times as text."""
    if json_times.is_served(field.type):
        return json_times.times(field, cells)
    kind = kind_of(field)
    if kind == Kind.JSON:
        return _raw_text(cells)
    if kind == Kind.NUMERIC:
        return _numbers(cells)
    if taken := Note.SCALARS.of(field):
        return pa.array([_scalar(cell, taken) for cell in cells], pa.string())
    if pa.types.is_floating(field.type):
        return _floats(field, cells)
    if pa.types.is_struct(field.type):
        return _struct(field, open_structs(field, cells))
    if pa.types.is_list(field.type):
        offsets, null = _bounds(cells)
        items = array(field.type.value_field, list(chain.from_iterable(c or () for c in cells)))
        return pa.ListArray.from_arrays(offsets, items, type=field.type, mask=null)
    if pa.types.is_map(field.type):
        offsets, null = _bounds(cells)
        keys = array(field.type.key_field, list(chain.from_iterable(c or () for c in cells)))
        items = [item for cell in cells for item in (cell or {}).values()]
        items = array(field.type.item_field, items)
        return pa.MapArray.from_arrays(offsets, keys, items, type=field.type, mask=null)
    if pa.types.is_decimal(field.type):
        return decimals(cells, field.type)
    return pa.array(cells, field.type)


def within(floats: pa.Array, *, given: int) -> pa.Array:
    """The floats; raises ValueError where more than `given` of them are infinite."""
    if pc.sum(pc.is_inf(floats), min_count=0).as_py() > given:
        raise ValueError(f"a number beyond the range of {floats.type}")
    return floats


def first_line(error: Exception) -> str:
    """Returns what an error of a library says, in short."""
    return str(error).splitlines()[0][:500]


def _floats(field: pa.Field, cells: Sequence[Any]) -> pa.Array:
    """Numbers; the texts `NaN`, `Infinity` and `-Infinity` are these, and no other text is one."""
    try:
        found, given = pa.array(cells, field.type), 0
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        texts = [cell for cell in cells if isinstance(cell, str)]
        if not set(texts) <= {"NaN", "Infinity", "-Infinity"}:
            raise RejectedRecord("decode", "expected a number") from None
        numbers = [float(cell) if isinstance(cell, str) else cell for cell in cells]
        found, given = pa.array(numbers, field.type), len(texts) - texts.count("NaN")
    return within(found, given=given) if field.type == pa.float32() else found


def _bounds(cells: Sequence[Sized | None]) -> tuple[pa.Array, pa.Array | None]:
    offsets = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(np.fromiter((len(cell or ()) for cell in cells), np.int32), out=offsets[1:])
    return pa.array(offsets), _nulls(cells)


def _nulls(cells: Sequence[Any]) -> pa.Array | None:
    return pa.array([cell is None for cell in cells], pa.bool_()) if None in cells else None


def _struct(field: pa.Field, cells: Sequence[Any]) -> pa.Array:
    """Column by column, which costs half of what a dictionary for each cell does."""
    children = []
    for index, child in enumerate(field.type):
        member = attrgetter(f"c{index}")
        inner = [None if cell is None else member(cell) for cell in cells]
        if UNSET in inner:  # inside an object, absent and null are the same
            inner = [None if value is UNSET else value for value in inner]
        children.append(array(child, inner))
    return struct_of(children, list(field.type), _nulls(cells))


def _raw_text(cells: Sequence[Any]) -> pa.Array:
    """JSON text as sent; a JSON null is a null. The cast proves that it is valid UTF-8.

    The texts are joined once: bytes for each would cost three times as much.
    """
    try:
        data = b"".join(cells)
    except TypeError:  # None
        cells = [b"null" if cell is None else cell for cell in cells]
        data = b"".join(cells)
    bounds = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, cells), np.int32, len(cells)), out=bounds[1:])
    valid = np.frombuffer(data, np.uint8)[bounds[:-1]] != ord("n")  # what begins so is null
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(cells), buffers).cast(pa.string())


def _scalar(cell: Any, taken: str) -> str | None:
    """The text of a JSON value; raises RejectedRecord where it is of another type."""
    text = "null" if cell is None else bytes(cell).decode()
    if text[0] == '"':
        return msgspec.json.decode(text, type=str)
    if text == "null":
        return None
    kind = "boolean" if text[0] in "tf" else "number" if text[0] in "-0123456789" else "other"
    if kind != taken:
        raise RejectedRecord("decode", f"expected text or a {taken}")
    return text


def _numbers(cells: Sequence[Any]) -> pa.Array:
    """Digits as sent, from a number or from a string that holds one."""
    texts = _raw_text(cells)
    if only_numbers(texts):
        return texts
    texts = pc.utf8_trim(texts, '"')
    if not all_have(NUMBER, texts):
        raise RejectedRecord("decode", "expected a number")
    return texts
