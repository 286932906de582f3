"""Expressions of computed columns as ClickHouse computes them."""

from __future__ import annotations

from dataclasses import replace

from dataflow_assets.connectors.clickhouse.client import literal, quote
from dataflow_assets.connectors.clickhouse.table.table import JSON_TEXT
from dataflow_assets.languages.pipelines.rows.expressions import (
    Expression,
    Extract,
    FromBase64,
    PipelineColumnReference,
    PipelineConstant,
    is_json,
)
from dataflow_assets.languages.pipelines.rows.types import PipelineType

_TYPES = {
    "TINYINT": "Int8",
    "SMALLINT": "Int16",
    "MEDIUMINT": "Int32",
    "INT": "Int32",
    "BIGINT": "Int64",
    "FLOAT": "Float64",
    "DOUBLE": "Float64",
    "BOOL": "Bool",
    "DATE": "Date32",
    "DATETIME": "DateTime64(6, 'UTC')",
}
_NUMBER = literal(r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$")


def column_type(kind: PipelineType, *, nullable: bool) -> str:
    """A type as ClickHouse declares it; JSON is text, with a comment that says so."""
    name = _TYPES.get(kind.name, "String")
    if kind.kind == "decimal":
        name = f"Decimal({kind.length}, {kind.scale})"
    return f"Nullable({name})" if nullable else name


def comment(kind: PipelineType) -> str:
    """Returns what is said behind a column of JSON."""
    return f" COMMENT {literal(JSON_TEXT)}" if kind.kind == "json" else ""


def materialize(expression: Expression, kind: PipelineType) -> str:
    """The value of a column: null where what is computed is none of its type."""
    if kind.kind in ("text", "json"):
        of_double = isinstance(expression, Extract) and expression.form == "DOUBLE"
        text = _number(expression) if of_double else translate(expression)
        kept = kind.kind == "text" or is_json(expression) or of_double
        return text if kept else _let("t", text, "if(isValidJSON(ifNull(t, '')), t, NULL)")
    number = _number(expression)
    if kind.kind == "integer":
        return _integer(number, kind.bits)
    if kind.kind == "decimal":
        digits = kind.scale + 1  # a quotient would be a floating number
        half = f"toDecimal256('0.{'0' * kind.scale}5', {digits})"
        rounded = f"trunc(if(x < 0, x - {half}, x + {half}), {kind.scale})"
        most = f"toDecimal256('{10 ** ((kind.length or 0) - kind.scale)}', {digits})"
        inside = f"if(abs({rounded}) < {most}, toString({rounded}), NULL)"
        converted = _let("x", f"toDecimal256OrNull({number}, {digits})", inside)
        return f"toDecimal128OrNull({converted}, {kind.scale})"
    if kind.kind == "bool":
        word = f"lower(ifNull({_word(expression)}, ''))"
        truth = f"multiIf(w = 'true', true, w = 'false', false, toFloat64OrNull({number}) != 0)"
        return _let("w", word, truth)
    return f"toFloat64OrNull({number})"


def translate(expression: Expression) -> str:
    if isinstance(expression, PipelineColumnReference):
        return quote(expression.name)
    if isinstance(expression, PipelineConstant):
        value = expression.value
        return literal(value) if isinstance(value, str) else "NULL" if value is None else str(value)
    if isinstance(expression, FromBase64):
        text = "if(isValidUTF8(d), nullIf(d, ''), NULL)"
        sql = _let("d", "tryBase64Decode(ifNull(b, ''))", f"if(b = '', '', {text})")
        return _let("b", translate(expression.given), sql)
    if expression.form == "DOUBLE":
        return f"toFloat64OrNull({_number(expression)})"
    if expression.form == "BIGINT":
        return _integer(_of_text(_spelling(expression)), 64)
    text = "if(JSONType({at}) = 'String', JSONExtractString({at}), JSONExtractRaw({at}))"
    return _extract(expression, text if expression.form == "STRING" else "JSONExtractRaw({at})")


def _let(name: str, value: str, body: str) -> str:
    """A value that is computed once, under a name that the body uses."""
    return f"arrayMap({name} -> {body}, [{value}])[1]"


def _extract(expression: Extract, made: str) -> str:
    """Returns what is made of the value at a path; null where there is none.

    Arrays begin at 1 there, and a number is also a place among the keys of an object.
    """
    path, checks = ["j"], []
    for part in expression.path:
        kind = "Array" if isinstance(part, int) else "Object"
        checks.append(f"JSONType({', '.join(path)}) = '{kind}'")
        path.append(str(part + 1) if isinstance(part, int) else literal(part))
    at = ", ".join(path)
    holds = " AND ".join([*checks, f"JSONType({at}) != 'Null'"])
    text = f"ifNull({translate(expression.given)}, '')"
    return _let("j", text, f"if({holds}, {made.replace('{at}', at)}, NULL)")


def _number(expression: Expression) -> str:
    """The digits of a number as text, null for what is none."""
    if isinstance(expression, Extract) and expression.form in ("DOUBLE", "JSON"):
        return _of_text(_spelling(expression))
    return _of_text(f"toString({translate(expression)})")


def _of_text(text: str) -> str:
    bare = r"replaceRegexpAll(s, '\\s', '')"
    return _let("s", text, f"if(match(ifNull(s, ''), {_NUMBER}), {bare}, NULL)")


def _word(expression: Expression) -> str:
    """The text that may be true or false."""
    if isinstance(expression, Extract) and expression.form == "JSON":
        return translate(replace(expression, form="STRING"))
    return f"toString({translate(expression)})"


def _spelling(expression: Extract) -> str:
    """A text, a number, or 1 and 0 for true and false; null for all else."""
    return _extract(
        expression,
        "multiIf(JSONType({at}) = 'Bool', toString(toUInt8(JSONExtractBool({at}))), "
        "JSONType({at}) = 'String', JSONExtractString({at}), "
        "JSONType({at}) IN ('Array', 'Object'), NULL, JSONExtractRaw({at}))",
    )


def _integer(number: str, bits: int) -> str:
    """Rounded half away from zero; null beyond the range."""
    half = "toDecimal256('0.5', 20)"
    whole = f"trunc(if(x < 0, x - {half}, x + {half}))"
    exact = f"toDecimal256OrNull({number}, 20)"
    return f"toInt{bits}OrNull({_let('x', exact, f'toString({whole})')})"
