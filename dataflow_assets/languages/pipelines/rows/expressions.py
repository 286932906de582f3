"""Expressions on JSON: what they are, what they read, and their value for one row.

PostgreSQL and ClickHouse compute the same ones by themselves: their connectors translate them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.pipelines.rows.types import PipelineType, as_text, fit, number, whole
from dataflow_assets.records.record import NotJson, encode, parse, value_at

Form = Literal["STRING", "DOUBLE", "BIGINT", "JSON"]
Evaluate = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True)
class PipelineColumnReference:
    """A column of the row."""

    name: str
    is_json: bool


@dataclass(frozen=True)
class PipelineConstant:
    """A value that is written out."""

    value: str | int | Decimal | bool | None


@dataclass(frozen=True)
class Extract:
    """JSON_EXTRACT_<form>, and the operators `::`, `::$` and `::%`.

    `path`: keys of objects, and places in arrays, which begin at 0.
    """

    form: Form
    given: Expression
    path: tuple[str | int, ...]


@dataclass(frozen=True)
class FromBase64:
    """The text that base64 stands for; null where it is no base64, or no UTF-8."""

    given: Expression


Expression = PipelineColumnReference | PipelineConstant | Extract | FromBase64


def columns(expression: Expression) -> Iterator[str]:
    if isinstance(expression, PipelineColumnReference):
        yield expression.name
    elif isinstance(expression, Extract | FromBase64):
        yield from columns(expression.given)


def is_json(expression: Expression) -> bool:
    """Returns whether its values are JSON, and not text or numbers."""
    if isinstance(expression, PipelineColumnReference):
        return expression.is_json
    return isinstance(expression, Extract) and expression.form == "JSON"


def compile_expression(expression: Expression) -> Evaluate:
    """Its value for a row, which has JSON columns as values and not as text."""
    if isinstance(expression, PipelineColumnReference):
        name = expression.name
        return lambda row: row.get(name)
    if isinstance(expression, PipelineConstant):
        value = expression.value
        return lambda _: value
    inner = compile_expression(expression.given)
    if isinstance(expression, FromBase64):
        return lambda row: decode_base64(inner(row))
    read = _FORMS[expression.form]
    path, of_json = expression.path, is_json(expression.given)

    def extract(row: Mapping[str, Any]) -> Any:
        value = inner(row)
        member = value_at(value if of_json else _parse(value), path)
        return None if member is None else read(member)

    return extract


def convert(expression: Expression, kind: PipelineType) -> Evaluate:
    """Its value as a column of a type takes it.

    What is returned raises ValueError for a value that does not fit.
    """
    make, of_json = compile_expression(expression), is_json(expression)
    if of_json and kind.kind == "text":
        return lambda row: fit(_write(make(row)), kind)
    if not of_json and kind.kind == "json":
        return lambda row: _read(make(row))
    return lambda row: fit(make(row), kind)


def _write(value: Any) -> str | None:
    if isinstance(value, str):
        return encode(value).decode()
    return None if value is None else as_text(value)


def _read(value: Any) -> Any:
    parsed = _parse(value)
    if parsed is None and value not in (None, "null"):
        raise ValueError("a text is not JSON")
    return parsed


def decode_base64(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return base64.b64decode("".join(as_text(value).split()), validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _parse(value: Any) -> Any:
    """Text that is no JSON has nothing in it."""
    if not isinstance(value, str):
        return value
    try:
        parsed = parse(value.encode())
    except (RejectedRecord, UnicodeEncodeError):
        return None
    return None if isinstance(parsed, NotJson) else parsed


def _bigint(value: Any) -> int | None:
    exact = number(value)
    return None if exact is None else whole(exact)


_FORMS: Mapping[Form, Callable[[Any], Any]] = {
    "STRING": as_text,
    "DOUBLE": number,
    "BIGINT": _bigint,
    "JSON": lambda value: value,
}
