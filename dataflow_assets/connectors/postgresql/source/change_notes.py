"""Notes for people about the order of rows: which are read late, and which are missed."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.connectors.postgresql.source.relation import SourceColumn
from dataflow_assets.sdk.sql_table import PolledSqlTable, ticks
from dataflow_assets.sdk.sql_table.positions import PolledPosition

_INDEXED = """
SELECT EXISTS (
    SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = $1::oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = $2)
"""
_UNIQUE = """
SELECT EXISTS (
    SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
      AND i.indnkeyatts = 1 AND a.attname = $2)
"""
_ZONE = """
WITH half AS (
    SELECT make_timestamptz(extract(year FROM now())::int, month, 1, 0, 0, 0, 'UTC') AS at
    FROM (VALUES (1), (7)) AS months (month)
)
SELECT reset_val, count(DISTINCT (at AT TIME ZONE reset_val) - (at AT TIME ZONE 'UTC')) > 1
FROM pg_settings, half WHERE name = 'TimeZone' GROUP BY reset_val
"""
Table = PolledSqlTable[SourceColumn]


def notes(table: Table, position: PolledPosition) -> Iterator[str]:
    """Yields the notes on the columns that order a relation, for the log."""
    relation = table.relation
    tracked = relation.first
    if tracked is None:
        return
    tick = table.upper_bound().tick
    otherwise = (
        f"use a column of more precise times, or set overlapSeconds to {tick // ticks.SECOND} or "
        "more, with a sink that upserts"
    )
    yield from ticks.waiting(tracked.name, tick, otherwise)
    for column in relation.changes:
        if column.digits is None:
            yield from _ties(table, column)
        elif not column.is_day and not column.is_zoned:
            yield from _autumn(table, column)
    if position.state == "load":
        yield from _without_index(table)
    elif tracked.digits is not None:
        yield from _future_rows(table, tracked)


def _ties(table: Table, column: SourceColumn) -> Iterator[str]:
    relation = table.relation
    if not relation.identity or not _has_index(table, _UNIQUE, column):
        yield ticks.ties(column.name, column.type_name, relation.key.name)


def _autumn(table: Table, column: SourceColumn) -> Iterator[str]:
    ((zone, changes),) = table.ask(_ZONE, {})
    if changes:
        yield (
            f"{column.name} has no time zone, and the server's TimeZone is {zone}: in autumn its "
            "clock goes back, and changes made while an hour repeats are missed where their value "
            "was passed already. Use timestamp with time zone, or have UTC written into the column"
        )


def _without_index(table: Table) -> Iterator[str]:
    """A query has no index that the catalogue knows of."""
    order = table.relation.key
    if table.relation.identity and not _has_index(table, _INDEXED, order):
        yield (
            f"no index begins with {order.name}: each span of the first load sorts what is left of "
            f"the table; an index on ({order.name}) spares that"
        )


def _future_rows(table: Table, column: SourceColumn) -> Iterator[str]:
    """Rows that the clock has not reached wait."""
    later = f"{column.sql} > {table.dialect.clock(column)}"
    query = f"SELECT 1 FROM {table.relation.base} WHERE {later} LIMIT 1"  # noqa: S608 - quoted
    if table.ask(query, {}):
        yield (
            f"{column.name} of some rows lies in the future of the database's clock: they are "
            "read when their time has come"
        )


def _has_index(table: Table, query: str, column: SourceColumn) -> bool:
    """Asks the catalogue for an index that begins with a column."""
    ((exists,),) = table.ask(query, {"1": table.relation.identity, "2": column.name})
    return bool(exists)
