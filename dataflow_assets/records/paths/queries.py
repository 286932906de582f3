"""Compares in queries: `#(price>10)`, `#(name%"A*")`; numbers exactly, patterns in linear time."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from dataflow_assets.records.record import MISSING

Test = Callable[[Any], bool]

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_TRUE_WORDS = ("1", "t", "true")
_FALSE_WORDS = ("0", "f", "false")


def glob(pattern: str) -> re.Pattern[str]:
    r"""`*` any text, `?` one character, `\` before a character taken as it is.

    Atomic groups: the first place where a piece fits is the best one, so nothing is tried twice.
    """
    pieces = [""]
    for sign in re.findall(r"\\.|.", pattern, re.DOTALL):
        if sign == "*":
            pieces.append("")
        else:
            pieces[-1] += "." if sign == "?" else re.escape(sign[-1])
    first, *inner = pieces
    if not inner:
        return re.compile(first, re.DOTALL)
    between = "".join(f"(?>.*?{piece})" for piece in inner[:-1] if piece)
    return re.compile(f"{first}{between}.*{inner[-1]}", re.DOTALL)


def test(sign: str, literal: str) -> Test:
    """The comparison of one element; no sign: it only has to be there."""
    if literal in LOOSE and sign in {"=", "!="}:
        return _loose(sign, literal)
    if not sign:
        return lambda value: value is not MISSING
    if sign in {"%", "!%"}:
        matches, wanted = glob(literal).fullmatch, sign == "%"
        return lambda value: isinstance(value, str) and bool(matches(value)) is wanted
    return _compare(_ORDER[sign], literal, as_number(literal))


def as_number(text: str) -> Decimal | None:
    """The number that a text spells out, blanks around it aside; None when it is none."""
    try:
        return Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        return None  # an exponent of twenty digits


def _compare(holds: Callable[[Any, Any], bool], literal: str, number: Decimal | None) -> Test:
    """Objects, arrays, null: never. A number and a text that is none: only `!=` holds."""
    truth = {"true": True, "false": False}.get(literal)

    def compare(value: Any) -> bool:
        if isinstance(value, str):
            return holds(value, literal)
        if isinstance(value, bool):
            return holds(value, truth) if truth is not None else holds is operator.ne
        if isinstance(value, int | Decimal):
            return holds(value, number) if number is not None else holds is operator.ne
        return False

    return compare


def _loose(sign: str, word: str) -> Test:
    holds, wanted = LOOSE[word], sign == "="
    return lambda value: holds(value) is wanted


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        word = value.lower()
        return True if word in _TRUE_WORDS else False if word in _FALSE_WORDS else None
    return value != 0 if isinstance(value, bool | int | Decimal) else None


LOOSE: Mapping[str, Test] = {
    "~*": lambda value: value is not MISSING,
    "~null": lambda value: value is None or value is MISSING,
    "~true": lambda value: _truth(value) is True,
    "~false": lambda value: value is None or value is MISSING or _truth(value) is False,
}
"""By kind instead of by value; `~null` and `~false` hold also where nothing is."""
