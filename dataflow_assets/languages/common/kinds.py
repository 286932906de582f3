"""Values of the wrong kind: text for a number, a mapping for a list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_WITH_UNIT = re.compile(r"\d+(\.\d+)?\s*[A-Za-zµ]{1,3}|\d+(\.\d+)?\s*%")
_NO_SPACE = re.compile(r"\w+:\S")
_UNITS = {
    "percent": "percent",
    "bytes": "bytes",
    "seconds": "seconds",
    "interval": "seconds",
    "freshness": "seconds",
}
"""By what is in a key: the unit of its number."""
_BLOCKS = {
    "bootstrap_brokers": "{hostname: broker, port: 9092}",
    "schemaRegistry": "{url: ...}",
    "schema_registry": "{url: ...}",
}
"""Blocks that are often written as the one text in them."""
_KINDS = ((bool, "a boolean"), (str, "text"), (list, "a list"), (dict, "a mapping"))


def kind(value: Any) -> str:
    """Returns what sort of value arrived, without the value."""
    if value is None:
        return "nothing"
    for sort, name in _KINDS:
        if isinstance(value, sort):
            return name
    return "a number"


def wrong_kind(allowed: Sequence[str], value: Any, key: str) -> str:
    """Returns what is wrong, and what to do about it.

    Args:
        allowed: the kinds that may be there, as people call them.
        value: what is there; it is not part of the message.
        key: of the value.
    """
    return f"must be {' or '.join(allowed)}, got {kind(value)}{_advice(allowed, value, key)}"


def _advice(allowed: Sequence[str], value: Any, key: str) -> str:
    if "text" in allowed:
        return _as_text(value, key)
    if "a list" in allowed and isinstance(value, str) and key == "transformations":
        return ": begin each step with `- type: ...`"
    if "a list" in allowed:
        lists = {str: ": write it as a list, [a, b]", dict: ": begin each entry with `- `"}
        return next((say for sort, say in lists.items() if isinstance(value, sort)), "")
    if "a mapping" in allowed:
        return _as_mapping(value, key)
    if allowed[0] in {"a whole number", "a number"}:
        return _as_number(value, key)
    if [*allowed] == ["true or false"] and value in ("true", "false"):
        return ": remove the quotes"
    return ""


def _as_text(value: Any, key: str) -> str:
    if isinstance(value, bool):
        return " (yes, no, on, off, true and false are): put it in quotes"
    if isinstance(value, int | float):
        return ": put it in quotes"
    if isinstance(value, list):
        return ": write one value, without [ ] and `- `"
    if isinstance(value, dict) and {"valueFrom", "secretKeyRef", "name"} & value.keys():
        return f": a value of a Secret is written {key}SecretRef: {{name: ..., key: ...}}"
    return ""


def _as_mapping(value: Any, key: str) -> str:
    if key.endswith("SecretRef"):
        return ": write {name: ..., key: ...}"
    if isinstance(value, list):
        return ": write `key: value`, without `- `"
    if value is True and key == "tls":
        return ": write tls: {} for the system's own CAs, or name a CA below it"
    if isinstance(value, str) and key in ("source", "sink", "errors"):
        return ": write `type: ...` and `config: ...` below it"
    if isinstance(value, str) and key in _BLOCKS:
        return f": write {_BLOCKS[key]}"
    if isinstance(value, str) and "//" not in value and _NO_SPACE.match(value):
        return ": put a space after the `:`"
    return ""


def _as_number(value: Any, key: str) -> str:
    if isinstance(value, float) and value.is_integer():
        return ": write it without a point or an exponent"
    if not isinstance(value, str):
        return ""
    if re.fullmatch(r"-?\d+(\.\d+)?", value):
        return ": remove the quotes"
    if not _WITH_UNIT.fullmatch(value):
        return ""
    unit = next((f", in {unit}" for ending, unit in _UNITS.items() if ending in key.lower()), "")
    return f": write it without a unit{unit}"
