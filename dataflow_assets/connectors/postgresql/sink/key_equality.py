"""Values told apart as PostgreSQL tells them apart once they are stored, where that is known here.

A column stores what its type makes of a value: `numeric(6,2)` and `timestamptz(3)` round, `char(4)`
pads. Two values are one key when the stored ones are equal. Of types that are not listed here (and
of collations that take `a` for `A`) only the server knows; it is asked then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.table.column import COMPARED, TYPE
from dataflow_assets.formats.text_forms import all_have

_MODIFIER = re.compile(rb"\((-?[0-9]+)(?:,(-?[0-9]+))?\)")
_USUAL = r"^[-+]?[0-9]{1,38}(\.[0-9]{1,38})?$"
_SIMPLE_UUID = "^[0-9a-fA-F-]+$"
_DIGITS = Context(prec=200)
_EPOCH = 946_684_800_000_000  # 2000 in microseconds: PostgreSQL rounds away from there


def comparable(values: pa.Array, field: pa.Field) -> pa.Array | None:
    """Equal exactly where PostgreSQL finds the stored values equal, and ordered as it orders them.

    Text is equal, but not ordered. None where only PostgreSQL can tell. Nulls stay.
    """
    metadata = field.metadata or {}
    rule = _RULES.get(metadata.get(COMPARED, b"").decode())
    found = _MODIFIER.search(metadata.get(TYPE, b""))
    modifiers = [int(number or 0) for number in found.groups()] if found else []
    return rule(values, modifiers) if rule else None


def varies(field: pa.Field) -> bool:
    """Returns whether values that are equal may look different once they are stored."""
    return (field.metadata or {}).get(COMPARED, b"").decode() not in _ALIKE


def _same(values: pa.Array, _: list[int]) -> pa.Array:
    return values


def _varying(values: pa.Array, modifiers: list[int]) -> pa.Array | None:
    """Text that is too long loses blanks at its end."""
    longest = pc.max(pc.utf8_length(values)).as_py() or 0
    return None if modifiers and longest > modifiers[0] else values


def _without_padding(values: pa.Array, _: list[int]) -> pa.Array:
    return pc.utf8_rtrim(values, " ")


def _uuid(values: pa.Array, _: list[int]) -> pa.Array | None:
    if not all_have(_SIMPLE_UUID, values):
        return None
    return pc.replace_substring(pc.utf8_lower(values), "-", "")


def _float(values: pa.Array, _: list[int]) -> pa.Array | None:
    """-0 is 0; what is not a number is left to the server."""
    return None if pc.any(pc.is_nan(values)).as_py() else pc.add(values, pa.scalar(0, values.type))


def _ticks(values: pa.Array, modifiers: list[int]) -> pa.Array:
    """Rounded to so many digits of a second."""
    tick = 10 ** (6 - modifiers[0]) if modifiers else 1
    if tick == 1:
        return values
    epoch = _EPOCH if pa.types.is_timestamp(values.type) else 0
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    micros = values.view(pa.int64()).fill_null(0).to_numpy()
    limits = np.iinfo(np.int64)
    infinite = (micros < limits.min + epoch + tick) | (micros > limits.max - tick)
    since = np.where(infinite, 0, micros) - epoch
    rounded = np.sign(since) * ((np.abs(since) + tick // 2) // tick * tick) + epoch
    found = pa.array(np.where(infinite, micros, rounded), mask=~valid)
    return found.view(values.type)


def _numeric(values: pa.Array, modifiers: list[int]) -> pa.Array | None:
    """Each number's rank: fractions of any length, and no limit to compare them by."""
    if not all_have(_USUAL, values):
        return None
    encoded = values.dictionary_encode()
    scale = modifiers[1] if modifiers else None
    numbers = [_round(Decimal(text), scale) for text in encoded.dictionary.to_pylist()]
    rank = {number: place for place, number in enumerate(sorted(set(numbers)))}
    return pa.array([rank[number] for number in numbers], pa.int64()).take(encoded.indices)


def _round(number: Decimal, scale: int | None) -> Decimal:
    if scale is None:
        return number
    return number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _DIGITS)


Rule = Callable[[pa.Array, list[int]], pa.Array | None]

_RULES: dict[str, Rule] = {
    **dict.fromkeys(("bool", "int2", "int4", "int8", "date", "bytea", "text", "enum"), _same),
    **dict.fromkeys(("time", "timestamp", "timestamptz"), _ticks),
    **dict.fromkeys(("float4", "float8"), _float),
    "varchar": _varying,
    "bpchar": _without_padding,
    "uuid": _uuid,
    "numeric": _numeric,
}
_ALIKE = frozenset(_RULES) - {"float4", "float8", "numeric"}
