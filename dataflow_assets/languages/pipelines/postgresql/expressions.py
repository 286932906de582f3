"""Expressions of computed columns as PostgreSQL computes them."""

from __future__ import annotations

from dataflow_assets.connectors.postgresql.client import quote
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
    "TINYINT": "SMALLINT",
    "SMALLINT": "SMALLINT",
    "MEDIUMINT": "INTEGER",
    "INT": "INTEGER",
    "BIGINT": "BIGINT",
    "FLOAT": "DOUBLE PRECISION",
    "DOUBLE": "DOUBLE PRECISION",
    "JSON": "JSONB",
    "BOOL": "BOOLEAN",
    "DATE": "DATE",
    "DATETIME": "TIMESTAMP",
}


def column_type(kind: PipelineType) -> str:
    if kind.kind == "text":
        return f"VARCHAR({kind.length})" if kind.length is not None else "TEXT"
    if kind.kind == "decimal":
        return f"NUMERIC({kind.length}, {kind.scale})"
    return _TYPES[kind.name]


def generate(expression: Expression, kind: PipelineType, schema: str) -> str:
    """The value of a generated column: null where what is computed is none of its type."""
    text, prefix = translate(expression, schema), f"{quote(schema)}."
    if kind.kind == "json":
        return text if is_json(expression) else f"{prefix}dataflow_json(({text})::text)"
    number = _number(expression, schema)
    if kind.kind == "text":
        of_double = isinstance(expression, Extract) and expression.form == "DOUBLE"
        return f"trim_scale({number})::text" if of_double else f"({text})::text"
    if kind.kind == "integer":
        cast = column_type(kind).lower()
        return f"{prefix}dataflow_integer({number}, {kind.bits})::{cast}"
    if kind.kind == "decimal":
        return f"{prefix}dataflow_decimal({number}, {kind.length}, {kind.scale})"
    if kind.kind == "bool":
        return f"{prefix}dataflow_boolean({_text(expression, schema)}, {number})"
    return f"{prefix}dataflow_double({number})"


def _number(expression: Expression, schema: str) -> str:
    """All digits of the number: a double precision on the way would keep 15 of them."""
    if isinstance(expression, Extract) and expression.form == "DOUBLE":
        text = _json_at(expression, schema)
    else:
        text = translate(expression, schema)
        text = text if is_json(expression) else f"({text})::text"
    return f"{quote(schema)}.dataflow_number({text})"


def _text(expression: Expression, schema: str) -> str:
    """A text without the quotes of JSON."""
    text = translate(expression, schema)
    return f"({text}) #>> '{{}}'" if is_json(expression) else f"({text})::text"


def translate(expression: Expression, schema: str) -> str:
    """The expression itself, its functions in a schema."""
    if isinstance(expression, PipelineColumnReference):
        return quote(expression.name)
    if isinstance(expression, PipelineConstant):
        return _constant(expression.value)
    if isinstance(expression, FromBase64):
        return f"{quote(schema)}.from_base64({translate(expression.given, schema)})"
    function = f"json_extract_{expression.form.lower()}"
    return f"{quote(schema)}.{function}({_json_at(expression, schema)})"


def _json_at(expression: Extract, schema: str) -> str:
    """The JSON at the path: a number is a place in an array, a text a key of an object."""
    inner = translate(expression.given, schema)
    of_json = is_json(expression.given)
    value = inner if of_json else f"{quote(schema)}.dataflow_json(({inner})::text)"
    for part in expression.path:
        value = f"({value} -> {part if isinstance(part, int) else _constant(part)})"
    return value


def _constant(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "''")
        return f"E'{escaped}'"
    return "NULL" if value is None else str(value).upper()
