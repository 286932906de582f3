"""Finds what the JSON decoder accepts and no column may hold: lost members and NUL.

Looking into every body would cost more than decoding it, so whole batches are acquitted first:
without a backslash a body holds exactly the quotation marks of its members, so that a batch with
more of them than its decoded values account for has lost some. Only then are bodies parsed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET

from dataflow_assets.contracts import Kind, Note, kind_of
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.json_types import has_plain_keys
from dataflow_assets.records.record import exact_json

# Never more marks than were sent, or they would hide those of a lost member.
_QUOTE, _BACKSLASH, _MINUS, _ZERO, _NINE = b'"\\-09'


def check_bodies(bodies: pa.Array, quotes: int, nested: AbstractSet[str], *, no_nul: bool) -> None:
    """Raises RejectedRecord when a body of the batch repeats a key, or holds NUL where not allowed.

    `bodies` binary without nulls; `quotes`: how many quotation marks the decoded values account
    for, from `count_quotes`. `nested`: the columns in which no key may be a duplicate either.
    """
    escaped = _count(bodies, _BACKSLASH) > 0
    if not escaped and _count(bodies, _QUOTE) == quotes:
        return
    for value in bodies.to_pylist():
        check_unique(value, nested)
        if no_nul and escaped:
            check_nul(value)


def count_quotes(field: pa.Field, cells: Sequence[Any], array: pa.Array, absent: int) -> int:
    """Quotation marks that a column's members stand for: its keys, and its values."""
    keys = 2 * (len(cells) - absent)
    if kind_of(field) in (Kind.JSON, Kind.NUMERIC):
        return keys + _count(array, _QUOTE)
    if Note.SCALARS.marks(field):
        return keys + 2 * sum(bytes(cell)[:1] == b'"' for cell in cells if cell)
    if pa.types.is_nested(field.type):
        if not _is_decoded(field.type):
            return keys  # text may repeat a key: costs a look at the bodies
        present = [cell for cell in cells if cell is not UNSET]
        return keys + exact_json(present).count(b'"')
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        return keys
    if pa.types.is_boolean(field.type) or pa.types.is_decimal(field.type):
        return keys  # decimals sent as text cost a look at the bodies
    return keys + 2 * int(len(array) - array.null_count)


def _is_decoded(kind: pa.DataType) -> bool:
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    decoded = not pa.types.is_struct(kind) or has_plain_keys(kind)
    return decoded and all(map(_is_decoded, filter(pa.types.is_nested, inner)))


def only_numbers(texts: pa.Array) -> bool:
    """True when every JSON text is a number: valid JSON tells by its first byte."""
    present = texts.drop_null()
    if len(present) == 0:
        return True
    _, offsets, data = present.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32)[present.offset : present.offset + len(present)]
    first = np.frombuffer(data, dtype=np.uint8)[starts]
    return bool(np.all((first == _MINUS) | ((first >= _ZERO) & (first <= _NINE))))


def _count(array: pa.Array, byte: int) -> int:
    if len(array) == 0:
        return 0
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)
    start, end = bounds[array.offset], bounds[array.offset + len(array)]
    if data is None:
        return 0
    return int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8)[start:end] == byte))


def check_unique(value: bytes, nested: AbstractSet[str] = frozenset()) -> None:
    """Raises RejectedRecord when a key is a duplicate, in the body or in one of the nested columns.

    Cheap where the body's own members are compact.
    """
    members = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    sizes = sum(len(name.encode()) + len(bytes(raw)) + 4 for name, raw in members.items())
    if sizes + 1 != len(value):  # not every byte is accounted for: blanks, escapes or a lost key
        _unique(json.loads(value, object_pairs_hook=list))
    for name in nested & members.keys():
        json.loads(bytes(members[name]), object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RejectedRecord("decode", f"the key {twice!r} is a duplicate in one object")
    return members


def check_nul(value: bytes) -> None:
    """Raises RejectedRecord when a text of the body holds U+0000."""
    if b"\\u0000" in value and any("\x00" in text for text in _texts(json.loads(value))):
        raise RejectedRecord("decode", "holds the character NUL, which text cannot store")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
