"""The table of a pipeline: made as its statements declare it, and changed where they add to it."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.connectors.clickhouse.client import Client, name_list, query_rows, quote
from dataflow_assets.connectors.clickhouse.errors import failing
from dataflow_assets.connectors.clickhouse.table.table import WINDOW
from dataflow_assets.languages.pipelines.clickhouse.expressions import (
    column_type,
    comment,
    materialize,
)
from dataflow_assets.languages.pipelines.rows.table import PipelineColumn, PipelineTable

_COLUMNS = """
SELECT name, default_kind FROM system.columns
WHERE database = {d:String} AND table = {t:String}
"""


def prepare(client: Client, place: tuple[str, str], table: PipelineTable) -> None:
    """Makes the table, the columns and the indexes that are missing. Raises Failure.

    Raises PermanentError where the table has a column that is filled by hand and should be
    computed, or the other way round.
    """
    with failing():
        client.command(create_statement(place, table))
    columns = dict(query_rows(client, _COLUMNS, {"d": place[0], "t": place[1]}))
    for column in table.columns:
        if column.name in columns:
            if (columns[column.name] == "MATERIALIZED") != (column.computed is not None):
                raise column.differs(place)
            continue
        with failing():
            client.command(
                f"ALTER TABLE {quote(*place)} ADD COLUMN IF NOT EXISTS {_declaration(column)}"
            )
    for statement in index_statements(place, table):
        with failing():
            client.command(statement)


def create_statement(place: tuple[str, str], table: PipelineTable) -> str:
    """CREATE TABLE with all columns: by its key, or in no order."""
    order = f"({name_list(table.key)})" if table.key else "tuple()"
    engine = "ReplacingMergeTree" if table.key else "MergeTree"
    body = ",\n  ".join(_declaration(column) for column in table.columns)
    return (
        f"CREATE TABLE IF NOT EXISTS {quote(*place)} (\n  {body}\n)\n"
        f"ENGINE = {engine}\nORDER BY {order}\n"
        f"SETTINGS non_replicated_deduplication_window = {WINDOW}"
    )


def index_statements(place: tuple[str, str], table: PipelineTable) -> Iterator[str]:
    """A data skipping index for each: a bloom filter, which finds equal values."""
    for index in table.indexes:
        columns = ", ".join(quote(name) for name in index.columns)
        yield (
            f"ALTER TABLE {quote(*place)} ADD INDEX IF NOT EXISTS {quote(index.name)} "
            f"({columns}) TYPE bloom_filter GRANULARITY 1"
        )


def _declaration(column: PipelineColumn) -> str:
    kind = column_type(column.type, nullable=column.nullable or column.computed is not None)
    default = (
        f" MATERIALIZED {materialize(column.computed, column.type)}"
        if column.computed is not None
        else ""
    )
    return f"{quote(column.name)} {kind}{default}{comment(column.type)}"
