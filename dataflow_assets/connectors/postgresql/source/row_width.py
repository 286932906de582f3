"""How many bytes the values of a row have, as SQL: what a part of it costs who keeps it.

The lengths of texts are known without reading them, also where they are compressed or kept outside
the row. Of other values that is true of what is stored alone: large ones are looked at.
"""

from __future__ import annotations

from dataflow_assets.connectors.postgresql.source.relation import Column, Relation, quoted

_FIXED = {
    **dict.fromkeys(("bool", "int2", "int4", "oid", "float4", "date"), 4),
    **dict.fromkeys(("int8", "float8", "time", "timestamp", "timestamptz"), 8),
    "uuid": 36,
}
_TEXTS = frozenset({"text", "varchar", "bpchar", "bytea"})
_LARGE = 1_000  # bytes from which PostgreSQL may have compressed a value


def width(relation: Relation) -> str:
    """The expression for one row."""
    fixed = sum(_FIXED.get(column.type.base, 0) for column in relation.columns)
    others = [_of(column) for column in relation.columns if column.type.base not in _FIXED]
    return " + ".join([f"{fixed}::bigint", *others])


def _of(column: Column) -> str:
    name = quoted(column)
    if column.type.base in _TEXTS:
        return f"coalesce(octet_length({name}), 0)"
    stored, whole = f"pg_column_size({name})", f"octet_length({name}::text)"
    return f"coalesce(CASE WHEN {stored} > {_LARGE} THEN {whole} ELSE {stored} END, 0)"
