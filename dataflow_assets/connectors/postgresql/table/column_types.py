"""The type of a column that a sink makes: the narrowest that loses nothing.

A column that comes from PostgreSQL gets the type it is declared with there, where that exists in
the target's database: domains, enums and composites too.
"""

from __future__ import annotations

import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.table.column import TYPE
from dataflow_assets.contracts import Kind, Note, kind_of

_KINDS = {Kind.JSON: "JSONB", Kind.NUMERIC: "NUMERIC", Kind.UUID: "UUID"}
_NAMES = {
    pa.null(): "TEXT",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "SMALLINT",
    pa.uint8(): "SMALLINT",
    pa.int16(): "SMALLINT",
    pa.uint16(): "INTEGER",
    pa.int32(): "INTEGER",
    pa.uint32(): "BIGINT",
    pa.int64(): "BIGINT",
    pa.uint64(): "NUMERIC(20, 0)",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE PRECISION",
    pa.string(): "TEXT",
    pa.binary(): "BYTEA",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
}

_OF_JSON = (pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.null(), pa.json_())


def declarations(link: Link, sample: pa.Schema) -> dict[str, str]:
    """The types by column: of a table's columns, or of what JSON messages hold.

    Steps leave some columns of a table as they are: those keep their types.
    """
    typed = Note.TYPED.marks(sample)
    return {
        field.name: _known_type(link, field)
        or (of_column(field) if typed or not _of_json(field.type) else of_json(field))
        for field in sample
    }


def of_column(field: pa.Field) -> str:
    """By the column's Arrow type and KIND."""
    kind = kind_of(field)
    if kind in _KINDS:
        return _KINDS[kind]
    if pa.types.is_list(field.type):
        return _array(field.type.value_field)
    if pa.types.is_struct(field.type):
        return "JSONB"
    if pa.types.is_decimal(field.type):
        return f"NUMERIC({field.type.precision}, {field.type.scale})"
    if pa.types.is_timestamp(field.type):
        return "TIMESTAMPTZ" if field.type.tz else "TIMESTAMP"
    return _NAMES.get(field.type, "TEXT")


def of_json(field: pa.Field) -> str:
    """By the JSON type, as the DataFlow Operator does it."""
    kind = field.type
    if kind_of(field) in _KINDS:
        return of_column(field)
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "NUMERIC"
    if pa.types.is_null(kind) or pa.types.is_string(kind):
        return "TEXT"
    return "JSONB"


def _of_json(kind: pa.DataType) -> bool:
    return kind in _OF_JSON or pa.types.is_nested(kind)


def _array(item: pa.Field) -> str:
    """PostgreSQL's arrays have any number of dimensions; objects it keeps better as JSON."""
    inner = of_column(item)
    if inner == "JSONB":
        return inner
    return inner if inner.endswith("[]") else f"{inner}[]"


def _known_type(link: Link, field: pa.Field) -> str | None:
    """The type with which the source declares the column, where this database has it."""
    name = (field.metadata or {}).get(TYPE)
    if name is None:
        return None
    ((exists,),) = link.execute("SELECT to_regtype($1::text) IS NOT NULL", name.decode())
    return name.decode() if exists else None
