"""Conditions as functions: closures put together once, nothing is interpreted per record."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.conditions.grammar import All, Node, Not, Some, Test
from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.paths.queries import as_number
from dataflow_assets.records.record import MISSING, Record, text_form

Holds = Callable[[Record], bool]
Check = Callable[[Any], bool]

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(node: Node) -> Holds:
    match node:
        case Not():
            inner = holds(node.inner)
            return lambda record: not inner(record)
        case All():
            return _all([holds(term) for term in node.terms])
        case Some():
            return _some([holds(term) for term in node.terms])
        case Test():
            check = _check(node.sign, node.values)
            return _metadata(node.key, check) if node.path is None else _body(node.path, check)


def _all(terms: list[Holds]) -> Holds:
    first, second, *more = terms
    if more:
        return lambda record: all(term(record) for term in terms)
    return lambda record: first(record) and second(record)


def _some(terms: list[Holds]) -> Holds:
    first, second, *more = terms
    if more:
        return lambda record: any(term(record) for term in terms)
    return lambda record: first(record) or second(record)


def _body(path: Path, check: Check) -> Holds:
    """A missing field fulfils nothing, not even `!=`."""
    get = path.getter()

    def test(record: Record) -> bool:
        value = get(record.body)
        try:  # not by `at`: a call more for every record
            return value is not MISSING and check(value)
        except RejectedRecord as error:
            raise RejectedRecord("step", f"{path.text}: {error.reason}") from None

    return test


def _metadata(key: str, check: Check) -> Holds:
    def test(record: Record) -> bool:
        value = record.metadata.get(key)
        return value is not None and check(value)

    return test


def _check(sign: str, values: tuple[str, ...]) -> Check:
    if sign == "==":
        return _equals(values[0])
    if sign == "!=":
        literal = values[0]

        def check(value: Any) -> bool:
            return bool((value if type(value) is str else text_form(value)) != literal)

        return check
    if sign == "in":
        return _among(frozenset(values))
    if sign == "=~":
        return _matches(re.compile(values[0]))
    return _compare(_ORDER[sign], values[0]) if sign else _true


def _true(value: Any) -> bool:
    if isinstance(value, str):
        return value not in {"", "false"}
    if isinstance(value, bool | int | Decimal | float):
        return value != 0
    return value is not None


def _equals(literal: str) -> Check:
    def check(value: Any) -> bool:
        return bool((value if type(value) is str else text_form(value)) == literal)

    return check


def _among(literals: frozenset[str]) -> Check:
    return lambda value: text_form(value) in literals


def _matches(pattern: re.Pattern[str]) -> Check:
    search = pattern.search
    return lambda value: search(text_form(value)) is not None


def _compare(compare: Callable[[Any, Any], bool], literal: str) -> Check:
    """Both sides exactly; what is no number, and no text of one, is in no order at all."""
    limit = as_number(literal)

    def check(value: Any) -> bool:
        number = as_number(value) if type(value) is str else value
        return type(number) in {int, Decimal} and compare(number, limit)

    return check
