"""JSON in texts: values at a path of keys and indexes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dataflow_assets.records.exact_json import exact_json
from dataflow_assets.records.record import MISSING
from dataflow_assets.sql.function import Environment, Function, Resolved
from dataflow_assets.sql.functions.signatures import fit, takes
from dataflow_assets.sql.types import BOOLEAN, STRING, Type

_PART = re.compile(r"""\.([\w$-]+)|\['([^']*)'\]|\["([^"]*)"\]|\[(\d+)\]""")


@lru_cache(maxsize=256)
def parsed(path: str) -> tuple[str | int, ...]:
    """Keys and indexes. Raises ValueError for anything else that a path may have."""
    text = re.sub(r"^(lax|strict)\s+", "", path.strip())
    if not text.startswith("$"):
        raise ValueError("a path begins with $")
    parts: list[str | int] = []
    at = 1
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            raise ValueError("a path has keys and indexes only, like $.a.b[0]")
        key = next((one for one in found.groups()[:3] if one is not None), None)
        parts.append(int(found[4]) if key is None else key)
        at = found.end()
    return tuple(parts)


def _found(text: str, path: str) -> Any:
    """MISSING where nothing is there, or the text is not JSON."""
    parts = parsed(path)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return MISSING
    for part in parts:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part] if part < len(value) else MISSING
        else:
            return MISSING
    return value


def _value(text: str, path: str) -> str | None:
    """A scalar as text; null for objects, arrays and what is not there."""
    found = _found(text, path)
    if found is MISSING or found is None or isinstance(found, dict | list):
        return None
    if isinstance(found, bool):
        return "true" if found else "false"
    return found if isinstance(found, str) else exact_json(found).decode()


def _query(text: str, path: str) -> str | None:
    """Objects and arrays as JSON; null for scalars and what is not there."""
    found = _found(text, path)
    return exact_json(found).decode() if isinstance(found, dict | list) else None


def _exists(text: str, path: str) -> bool:
    return _found(text, path) is not MISSING


def _is_json(types: Sequence[Type], _: Environment) -> Resolved:
    fit(types, ("text",))
    return Resolved(
        BOOLEAN, lambda text: text is not None and _found(text, "$") is not MISSING, nulls=True
    )


_GROUP = "JSON"
_PATH = "Paths have keys and indexes: `$.a.b[0]`."
_TEXT = """'{"a": {"b": [1, "x"]}}'"""
FUNCTIONS = (
    Function(
        "JSON_VALUE",
        "JSON_VALUE(text, path [RETURNING type])",
        f"A text, number or boolean; null for anything else. {_PATH} ON EMPTY and ON ERROR are "
        "refused unless they say NULL.",
        takes("text text", STRING, _value),
        (
            (f"JSON_VALUE({_TEXT}, '$.a.b[1]')", "x"),
            (f"JSON_VALUE({_TEXT}, '$.a.b[0]' RETURNING INT) + 1", "2"),
            (f"JSON_VALUE({_TEXT}, '$.a')", None),
        ),
        _GROUP,
    ),
    Function(
        "JSON_QUERY",
        "JSON_QUERY(text, path)",
        f"An object or array as text; null for anything else. {_PATH}",
        takes("text text", STRING, _query),
        ((f"JSON_QUERY({_TEXT}, '$.a')", '{"b":[1,"x"]}'),),
        _GROUP,
    ),
    Function(
        "JSON_EXISTS",
        "JSON_EXISTS(text, path)",
        _PATH,
        takes("text text", BOOLEAN, _exists),
        ((f"JSON_EXISTS({_TEXT}, '$.a.c')", "FALSE"),),
        _GROUP,
    ),
    Function(
        "IS JSON",
        "a IS [NOT] JSON",
        "Whether a text is JSON.",
        _is_json,
        (("'{}' IS JSON", "TRUE"), ("'{' IS JSON", "FALSE")),
        _GROUP,
    ),
)
