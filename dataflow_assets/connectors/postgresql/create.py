"""CREATE TABLE from a sample of JSON types, as the DataFlow Operator would make it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.connectors.postgresql.link import Link, qualified, quote
from dataflow_assets.errors import PermanentError

if TYPE_CHECKING:
    from dataflow_assets.connectors.postgresql.sink import PostgresqlSink

_LOCK = "SELECT pg_advisory_xact_lock(hashtext('dataflow'), hashtext($1))"
_STAMP = "TIMESTAMPTZ DEFAULT now()"


def create(link: Link, sink: PostgresqlSink, sample: pa.Schema) -> None:
    """Makes the target unless a racing flow has; inside the caller's transaction."""
    if not sink.auto_create_table:
        raise sink.no_table()
    schema, name = sink.place()
    link.execute(_LOCK, f"{schema}.{name}")
    link.execute(statement(sink, sample))


def statement(sink: PostgresqlSink, sample: pa.Schema) -> str:
    """The DDL: the sample's columns sorted, the manifest's types over them, a primary key."""
    types = {field.name: _type(field.type) for field in sample} | dict(sink.columns)
    if not types:
        raise PermanentError(
            f"table {sink.address().name} cannot be made: the first records hold no JSON object "
            "that tells its columns; name them under `columns`, or create the table"
        )
    key = _primary(sink, set(types))
    lines = [f"{quote(column)} {types[column]}" for column in sorted(types)]
    lines += [f"{quote(name)} {kind}" for name, kind in _added(sink) if name not in types]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    body = ",\n  ".join(lines)
    return f"CREATE TABLE IF NOT EXISTS {qualified(*sink.place())} (\n  {body}\n)"


def _added(sink: PostgresqlSink) -> list[tuple[str, str]]:
    soft = [(sink.soft_delete_column, "TIMESTAMP")] if sink.soft_delete_column else []
    return [("created_at", _STAMP), ("updated_at", _STAMP), *soft]


def _primary(sink: PostgresqlSink, columns: set[str]) -> tuple[str, ...]:
    if not sink.upsert_mode:
        return ()  # the original's key on `id` would drop what an append shall keep
    key = sink.conflict_key or (("id",) if "id" in columns else ())
    if absent := [name for name in key if name not in columns]:
        raise PermanentError(
            f"table {sink.address().name} cannot be made: conflictKey {', '.join(absent)} is in "
            "none of the first records; name it under `columns` with its type, or mend conflictKey"
        )
    return key


def _type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "NUMERIC"
    if pa.types.is_null(kind) or pa.types.is_string(kind):
        return "TEXT"
    return "JSONB"
