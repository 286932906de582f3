"""Arrays in PostgreSQL's own writing: their elements as PostgreSQL itself would write them.

The server would read more: words for the current time, dates by the role's DateStyle, 0x10.
"""

from __future__ import annotations

import re
from functools import cache

import pyarrow as pa

from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.sink.encode_texts import text_values
from dataflow_assets.connectors.postgresql.table.column import DELIMITER, TYPE
from dataflow_assets.contracts import Kind, kind_of

_BOUNDS = re.compile(r"(\[[^\]]*\])+=")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_DATE = r"\d{4,7}-\d\d-\d\d"
_TIME = r"\d\d:\d\d:\d\d(\.\d+)?"
_ZONE = r"(Z|[+-]\d\d(:?\d\d(:?\d\d)?)?)"
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|[+-]?inf(inity)?"
_FORMS = {
    "bool": r"t|f|true|false",
    "float": _NUMBER,
    "double": _NUMBER,
    "binary": r"\\x([0-9a-f]{2})*",
    "date32[day]": rf"{_DATE}( BC)?|-?infinity",
    "time64[us]": _TIME,
    "timestamp[us]": rf"{_DATE}[ T]{_TIME}( BC)?|-?infinity",
    "timestamp[us, tz=UTC]": rf"{_DATE}[ T]{_TIME}{_ZONE}( BC)?|-?infinity",
    **dict.fromkeys(("int16", "int32", "int64"), r"[+-]?\d+"),
}


def delimiter(element: pa.Field) -> str:
    """Returns what separates elements of a type in an array: `;` in those of boxes.

    Called inside tasks, where arrays are written.
    """
    found: bytes = (element.metadata or {}).get(DELIMITER, b",")
    return found.decode()


def check_literal(text: str, element: pa.Field, name: str) -> None:
    """Raises Failure where an element is none that a plain column would take.

    `name`: of the column. Whether the text is an array at all is for the server to say.
    """
    form = _NUMBER if kind_of(element) == Kind.NUMERIC else _FORMS.get(str(element.type))
    pieces = _tokens(delimiter(element)).finditer(_BOUNDS.sub("", text, 1))
    tokens = [_unescape(*found.groups()) for found in pieces]
    values = [token for token in tokens if token is not None]
    if form is None:
        text_values(pa.array(values, pa.string()), element.with_name(name))
        return
    pattern = re.compile(form, re.IGNORECASE | re.ASCII)
    wrong = next((value for value in values if not pattern.fullmatch(value)), None)
    if wrong is not None:
        declared = element.metadata[TYPE].decode()
        message = f'"{wrong}" is not how PostgreSQL writes a value of type {declared}'
        raise PostgresqlFailure(message, "22P02", column=name)


@cache
def _tokens(between: str) -> re.Pattern[str]:
    return re.compile(rf'"((?:[^"\\]|\\.)*)"|([^{{}}{re.escape(between)}"]+)', re.DOTALL)


def _unescape(quoted: str | None, bare: str | None) -> str | None:
    if quoted is not None:
        return _ESCAPED.sub(r"\1", quoted)
    found = _ESCAPED.sub(r"\1", (bare or "").strip())
    return None if not found or found.lower() == "null" else found
