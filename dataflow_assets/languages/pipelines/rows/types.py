"""Types of columns as SingleStore names them, and values that fit into them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Literal

from dataflow_assets.records.record import encode, text_form

Kind = Literal["text", "json", "bool", "integer", "double", "decimal", "date", "datetime"]
BIGGEST = 2**63 - 1
_NUMBER = re.compile(r"\s*[+-]?(\d{1,255}\.?\d{0,255}|\.\d{1,255})([eE][+-]?\d{1,3})?\s*", re.ASCII)
_MOST = Decimal("1e308")
_DIGITS = Context(prec=80)  # more than the 65 digits of the longest DECIMAL; Python's own are 28
_BITS: Mapping[str, int] = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 32, "INT": 32, "BIGINT": 64}
KINDS: Mapping[str, Kind] = {
    "VARCHAR": "text",
    "CHAR": "text",
    "TEXT": "text",
    "JSON": "json",
    "BOOL": "bool",
    **dict.fromkeys(_BITS, "integer"),
    "FLOAT": "double",
    "DOUBLE": "double",
    "DECIMAL": "decimal",
    "DATE": "date",
    "DATETIME": "datetime",
}
ALIASES: Mapping[str, str] = {
    "STRING": "TEXT",
    "TINYTEXT": "TEXT",
    "MEDIUMTEXT": "TEXT",
    "LONGTEXT": "TEXT",
    "CHARACTER": "CHAR",
    "BOOLEAN": "BOOL",
    "INTEGER": "INT",
    "REAL": "DOUBLE",
    "NUMERIC": "DECIMAL",
    "DEC": "DECIMAL",
    "FIXED": "DECIMAL",
    "TIMESTAMP": "DATETIME",
}


@dataclass(frozen=True)
class PipelineType:
    """One type; `length` of texts and decimals, `scale` of decimals."""

    name: str
    length: int | None = None
    scale: int = 0

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def bits(self) -> int:
        return _BITS[self.name]

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"{self.name}({self.length},{self.scale})"
        return f"{self.name}({self.length})" if self.length is not None else self.name


TEXT, JSON = PipelineType("TEXT"), PipelineType("JSON")


def fit(value: Any, kind: PipelineType) -> Any:
    """A value as one of a type; null stays null. Raises ValueError that does not quote it."""
    return None if value is None else _FIT[kind.kind](value, kind)


def _text(value: Any, kind: PipelineType) -> str:
    text = as_text(value)
    if kind.length is not None and len(text) > kind.length:
        raise ValueError(f"a text of {len(text)} characters is too long for {kind}")
    return text


def _json(value: Any, kind: PipelineType) -> Any:  # noqa: ARG001 - one signature
    return value


def number(value: Any) -> Decimal | None:
    """A number, true and false as 1 and 0, or a text that reads as a number; None for all else."""
    if isinstance(value, bool | int):
        return Decimal(value)
    if isinstance(value, Decimal):
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value.strip())
    return None


def whole(value: Decimal) -> int | None:
    """Rounded half away from zero; None beyond 64 bits."""
    if value.adjusted() > 20:
        return None
    rounded = int(value.quantize(Decimal(1), ROUND_HALF_UP)) if value.adjusted() >= -1 else 0
    return rounded if -BIGGEST - 1 <= rounded <= BIGGEST else None


def _numeric(value: Any, kind: PipelineType) -> Decimal:
    exact = number(value)
    if exact is None:
        raise ValueError(f"{_describe(value)} is not a number, as {kind} needs one")
    return exact


def _integer(value: Any, kind: PipelineType) -> int:
    rounded = whole(_numeric(value, kind))
    half = 1 << (kind.bits - 1)
    if rounded is None or not -half <= rounded < half:
        raise ValueError(f"a number is beyond the range of {kind}")
    return rounded


def _double(value: Any, kind: PipelineType) -> Decimal:
    exact = _numeric(value, kind)
    if abs(exact) >= _MOST:
        raise ValueError(f"a number is beyond the range of {kind}")
    return exact


def _decimal(value: Any, kind: PipelineType) -> Decimal:
    found, places = _numeric(value, kind), (kind.length or 0) - kind.scale
    if found.adjusted() < places or not found:
        rounded = found.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, _DIGITS)
        if rounded.adjusted() < places or not rounded:  # rounding may add a digit
            return rounded
    raise ValueError(f"a number is beyond the range of {kind}")


def _bool(value: Any, kind: PipelineType) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return bool(_numeric(value, kind))


def _moment(value: Any, kind: PipelineType) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_describe(value)} is not the text of a {kind}")  # noqa: TRY004
    return value


def _describe(value: Any) -> str:
    if isinstance(value, str):
        return "a text"
    return (
        "an object"
        if isinstance(value, dict)
        else "a list"
        if isinstance(value, list)
        else ("a value")
    )


_FIT: Mapping[Kind, Callable[[Any, PipelineType], Any]] = {
    "text": _text,
    "json": _json,
    "bool": _bool,
    "integer": _integer,
    "double": _double,
    "decimal": _decimal,
    "date": _moment,
    "datetime": _moment,
}


def as_text(value: Any) -> str:
    """A JSON value as `::$` gives it: a text without its quotes, all else as JSON."""
    if isinstance(value, dict | list):
        return encode(value).decode()
    return text_form(value)
