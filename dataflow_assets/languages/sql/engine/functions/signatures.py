"""Declares the arguments that functions take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dataflow_assets.languages.sql.engine.function import Environment, Resolve, Resolved
from dataflow_assets.languages.sql.engine.types import NULL, FlinkType


def is_time(one: FlinkType) -> bool:
    """Returns whether it is a date, a time, or both."""
    return one.kind in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")


_FAMILIES: Mapping[str, Callable[[FlinkType], bool]] = {
    "text": lambda one: one.text,
    "bytes": lambda one: one.kind == "VARBINARY",
    "integer": lambda one: one.integer,
    "number": lambda one: one.numeric,
    "boolean": lambda one: one.kind == "BOOLEAN",
    "date": lambda one: one.kind == "DATE",
    "moment": lambda one: one.moment,
    "time": is_time,
    "array": lambda one: one.kind == "ARRAY",
    "map": lambda one: one.kind == "MAP",
    "any": lambda _: True,
}
Result = FlinkType | Callable[[Sequence[FlinkType]], FlinkType]


def takes(
    families: str, result: Result, call: Callable[..., Any], *, nulls: bool = False
) -> Resolve:
    """A function whose arguments are of these families.

    Args:
        families: separated by spaces; `?` at the end of one: it may be left out; `*`: any number.
        result: the type of the result, or what tells it from those of the arguments.
        call: computes it.
        nulls: `call` takes nulls.
    """
    words = families.split()

    def resolve(types: Sequence[FlinkType], _: Environment) -> Resolved:
        fit(types, words)
        kind = result if isinstance(result, FlinkType) else result(types)
        return Resolved(kind, call, nulls)

    return resolve


def fit(types: Sequence[FlinkType], words: Sequence[str]) -> None:
    """Raises ValueError where the arguments are not of these families."""
    least = sum(not word.endswith(("?", "*")) for word in words)
    endless = bool(words) and words[-1].endswith("*")
    if len(types) < least or (len(types) > len(words) and not endless):
        most = "or more" if endless else f"to {len(words)}" if least < len(words) else ""
        number = f"{least} {most}".strip()
        raise ValueError(f"takes {number} argument{'' if number == '1' else 's'}, not {len(types)}")
    for index, one in enumerate(types):
        word = words[min(index, len(words) - 1)].rstrip("?*")
        if one != NULL and not any(_FAMILIES[each](one) for each in word.split("|")):
            allowed = word.replace("|", " or ")
            raise ValueError(f"argument {index + 1} is of type {one}; allowed: {allowed}")
