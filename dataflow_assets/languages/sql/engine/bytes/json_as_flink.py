"""JSON as Flink's own library writes it, byte for byte: keys are compared by their bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

import msgspec

from dataflow_assets.languages.sql.engine.bytes.layout import FlinkLayout
from dataflow_assets.languages.sql.engine.texts import double_text, float_text
from dataflow_assets.languages.sql.engine.types import FlinkType

Form = Callable[[Any], Any]
"""From the JSON value of a column, not null, to the one that is written."""
_EXACT = Context(prec=80)
_ZERO = Decimal(0)
_LEAST, _MOST = Decimal("1e-3"), Decimal("1e7")
"""Between them Java writes floating numbers without an exponent."""
_encode = msgspec.json.Encoder(decimal_format="number").encode
_LARGE = re.compile(rb"[\xf0-\xf4][\x80-\xbf]{3}")
_ESCAPES = re.compile(rb"\\(u[0-9a-f]{4}|.)", re.DOTALL)


def encoder(layout: FlinkLayout) -> Callable[[Mapping[str, Any]], bytes]:
    """Returns what makes the bytes of a row's JSON values; made once for each task."""
    pairs = zip(layout.names, layout.types, strict=True)
    forms = [(name, _form(kind, layout)) for name, kind in pairs]
    nulls = not layout.ignore_nulls

    def encode(row: Mapping[str, Any]) -> bytes:
        values = ((name, row[name], form) for name, form in forms)
        members = {
            name: value if form is None or value is None else form(value)
            for name, value, form in values
            if nulls or value is not None
        }
        return _escape(_encode(members))

    return encode


def _form(kind: FlinkType, layout: FlinkLayout) -> Form | None:
    if kind.kind == "DECIMAL":
        return _plain if layout.plain_decimals else strip_zeros
    if kind.kind in ("FLOAT", "DOUBLE"):
        text = float_text if kind.kind == "FLOAT" else double_text
        return lambda value: _floating(value, text)
    inner = [_form(one, layout) for one in kind.items]
    if kind.kind == "ROW" and (layout.ignore_nulls or any(inner)):
        return _row(dict(zip(kind.names, inner, strict=True)), nulls=not layout.ignore_nulls)
    form = inner[-1] if inner else None
    if form is None or kind.kind == "ROW":
        return None
    if kind.kind == "ARRAY":
        return lambda value: [None if one is None else form(one) for one in value]
    return lambda value: {name: one if one is None else form(one) for name, one in value.items()}


def _row(forms: Mapping[str, Form | None], *, nulls: bool) -> Form:
    def form(value: Mapping[str, Any]) -> dict[str, Any]:
        pairs = ((name, one, forms[name]) for name, one in value.items())
        return {
            name: one if one is None or made is None else made(one)
            for name, one, made in pairs
            if nulls or one is not None
        }

    return form


def strip_zeros(value: Decimal | int) -> Decimal:
    """Without zeros at the end, also in front of the point: `1.50` is `1.5`, and 100 `1E+2`."""
    return Decimal(value).normalize(_EXACT) if value else _ZERO


def _plain(value: Decimal | int) -> msgspec.Raw:
    """With all digits of its type, and without an exponent."""
    return msgspec.Raw(f"{Decimal(value):f}".encode())


def _floating(value: Any, text: Callable[[float], str]) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal) and (not value or _LEAST <= abs(value) < _MOST):
        return value
    return msgspec.Raw(text(float(value)).encode())


def _escape(text: bytes) -> bytes:
    """Characters beyond 16 bits as two escapes, and hexadecimal digits of escapes as capitals."""
    if b"\\u" in text:
        text = _ESCAPES.sub(lambda found: _capital(found.group()), text)
    return text if text.isascii() else _LARGE.sub(lambda found: _pair(found.group()), text)


def _capital(escape: bytes) -> bytes:
    return b"\\u" + escape[2:].upper() if escape.startswith(b"\\u") else escape


def _pair(character: bytes) -> bytes:
    code = ord(character.decode()) - 0x10000
    return b"\\u%04X\\u%04X" % (0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF))
