"""Numbers of JSON that become texts, kept as they are written: parsing would respell them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.languages.sql.engine.bytes.layout import ChangeLayout, FlinkLayout
from dataflow_assets.languages.sql.engine.types import FlinkType

_RESPELLED = r"[:\[,]\s*-?(?:[0-9]+(?:\.[0-9]+)?[eE]|0\.000000|0\s*[,}\]])"
"""Numbers that are not spelled again as they were: exponents, small fractions, and -0."""
ROWS = ("before", "after", "data", "old")
"""Where the rows of a change are in its envelope."""
_encode = msgspec.json.Encoder().encode
Keep = Callable[[Any], Any]


class _Number(str):
    """The text of a number."""

    __slots__ = ()


def keeper(layout: FlinkLayout) -> Callable[[pa.Array], pa.Array] | None:
    """Returns the function that keeps texts of numbers in JSON; None if nothing needs it."""
    keeps = [_keep(kind) for kind in layout.types]
    if layout.kind != "json" or not any(keeps):
        return None
    fields = {
        name: keep for name, keep in zip(layout.names, keeps, strict=True) if keep is not None
    }
    if isinstance(layout, ChangeLayout):
        sides = dict.fromkeys(ROWS, partial(_fields, fields=fields))
        fields = {**sides, "payload": partial(_fields, fields=sides)}

    def keep_texts(texts: pa.Array) -> pa.Array:
        matches = pc.match_substring_regex(texts, _RESPELLED)
        if not pc.any(matches).as_py():
            return texts
        pairs = zip(texts.to_pylist(), matches.to_pylist(), strict=True)
        return pa.array(
            [_keep_numbers(one, fields) if yes else one for one, yes in pairs], texts.type
        )

    return keep_texts


def _keep_numbers(text: bytes, fields: dict[str, Keep]) -> bytes:
    try:
        body = _DECODER.decode(text.decode())
        return _encode(_fields(body, fields))
    except (ValueError, RecursionError):
        return text


def _fields(body: Any, fields: Mapping[str, Keep]) -> Any:
    if isinstance(body, list):
        return [_fields(one, fields) for one in body]
    if not isinstance(body, dict):
        return _plain(body)
    return {name: fields.get(name, _plain)(value) for name, value in body.items()}


def _keep(kind: FlinkType) -> Keep | None:
    if kind.text:
        return lambda value: str(value) if isinstance(value, _Number) else _plain(value)
    if kind.kind in ("FLOAT", "DOUBLE"):
        return lambda value: msgspec.Raw(b"-0.0") if value == "-0" else _plain(value)
    inner = [_keep(one) for one in kind.items]
    if not any(inner):
        return None
    if kind.kind == "ROW":
        members = {
            name: one for name, one in zip(kind.names, inner, strict=True) if one is not None
        }
        return lambda value: _fields(value, members) if isinstance(value, dict) else _plain(value)
    return _of_parts(inner[-1] or _plain, dict if kind.kind == "MAP" else list)


def _of_parts(keep: Keep, wanted: type[dict[Any, Any] | list[Any]]) -> Keep:
    def keep_texts(value: Any) -> Any:
        if not isinstance(value, wanted):
            return _plain(value)
        if isinstance(value, dict):
            return {name: keep(one) for name, one in value.items()}
        return [keep(one) for one in value]

    return keep_texts


def _plain(value: Any) -> Any:
    """A value in which numbers stay numbers, digit by digit."""
    if isinstance(value, _Number):
        return msgspec.Raw(value.encode())
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key twice")
    return members


_DECODER = json.JSONDecoder(
    parse_float=_Number, parse_int=_Number, object_pairs_hook=_unique, strict=True
)
