"""The table of a pipeline: made as its statements declare it, and changed where they add to it."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.connectors.postgresql.client import Link, lock_name, qualified_name, quote
from dataflow_assets.languages.pipelines.postgresql.expressions import column_type, generate
from dataflow_assets.languages.pipelines.rows.table import PipelineColumn, PipelineTable

_COLUMNS = """
SELECT a.attname, a.attgenerated <> '' FROM pg_attribute a
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
"""


def prepare(link: Link, place: tuple[str, str], table: PipelineTable) -> None:
    """Makes the table, the columns and the indexes that are missing; in the caller's transaction.

    Raises PermanentError where the table has a column that is filled by hand and should be
    computed, or the other way round.
    """
    schema, name = place
    lock_name(link, f"{schema}.{name}")
    link.execute(create_statement(place, table))
    columns: dict[str, bool] = dict(link.execute(_COLUMNS, qualified_name(schema, name)))
    for column in table.columns:
        if column.name not in columns:
            link.execute(
                f"ALTER TABLE {qualified_name(*place)} ADD COLUMN {_declaration(column, schema)}"
            )
        elif columns[column.name] != (column.computed is not None):
            raise column.differs(place)
    for statement in index_statements(place, table):
        link.execute(statement)


def create_statement(place: tuple[str, str], table: PipelineTable) -> str:
    lines = [_declaration(column, place[0]) for column in table.columns]
    if table.key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote, table.key))})")
    body = ",\n  ".join(lines)
    return f"CREATE TABLE IF NOT EXISTS {qualified_name(*place)} (\n  {body}\n)"


def index_statements(place: tuple[str, str], table: PipelineTable) -> Iterator[str]:
    for index in table.indexes:
        columns = ", ".join(map(quote, index.columns))
        yield (
            f"CREATE INDEX IF NOT EXISTS {quote(index.name)} "
            f"ON {qualified_name(*place)} ({columns})"
        )


def _declaration(column: PipelineColumn, schema: str) -> str:
    if column.computed is not None:
        generated = generate(column.computed, column.type, schema)
        kind = column_type(column.type)
        return f"{quote(column.name)} {kind} GENERATED ALWAYS AS ({generated}) STORED"
    required = "" if column.nullable else " NOT NULL"
    return f"{quote(column.name)} {column_type(column.type)}{required}"
