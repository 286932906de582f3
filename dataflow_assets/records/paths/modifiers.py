"""gjson's modifiers: `@reverse`, `@keys` and the like, on values that are read already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dataflow_assets.records.record import MISSING, NotJson, encode, parse


def _same(value: Any) -> Any:
    return value


def _reverse(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(reversed(value.items()))
    return value[::-1] if isinstance(value, list) else value


def _keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value)
    return [None] * (len(value) if isinstance(value, list) else 1)


def _values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else [value]


def _flatten(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [inner for item in value for inner in (item if isinstance(item, list) else [item])]


def flatten_deep(value: Any) -> Any:
    """`@flatten:{"deep":true}`: arrays in arrays in arrays too."""
    if not isinstance(value, list):
        return value
    flat, waiting = [], value[::-1]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item[::-1]
        else:
            flat.append(item)
    return flat


def _join(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return {key: it for item in value if isinstance(item, dict) for key, it in item.items()}


def _tostr(value: Any) -> str:
    return encode(value).decode()


def _fromstr(value: Any) -> Any:
    parsed = parse(value.encode("utf-8", "replace")) if isinstance(value, str) else MISSING
    return MISSING if isinstance(parsed, NotJson) else parsed


SUPPORTED: Mapping[str, Callable[[Any], Any]] = {
    "flatten": _flatten,
    "fromstr": _fromstr,
    "join": _join,
    "keys": _keys,
    "reverse": _reverse,
    "this": _same,
    "tostr": _tostr,
    "ugly": _same,
    "valid": _same,
    "values": _values,
}

KNOWN = frozenset({*SUPPORTED, "dig", "group", "pretty"})
"""What gjson takes for a modifier; any other `@word` is a key, as the `@timestamp` of log lines."""
