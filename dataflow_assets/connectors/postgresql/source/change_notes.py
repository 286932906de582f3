"""What a person should know about a change column: how late rows are read, and which are missed."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.source.predicates import clock
from dataflow_assets.connectors.postgresql.source.relation import Relation, SourceColumn
from dataflow_assets.connectors.postgresql.source.upper_bound import reach
from dataflow_assets.sdk.polling import ticks

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


def precision(link: TextLink, relation: Relation, overlap: int) -> Iterator[str]:
    """The notes on the columns that order a relation. `overlap`: seconds that are read again."""
    yield from _long_ticks(link, relation, overlap)
    for column in relation.changes:
        if not clock(column):
            yield from _ties(link, relation, column)
        elif column.type.base == "timestamp":
            yield from _autumn(link, column)


def _long_ticks(link: TextLink, relation: Relation, overlap: int) -> Iterator[str]:
    held, tracked = reach(link, relation, overlap).held, relation.tracked
    if tracked is None:
        return
    otherwise = (
        f"use a column of more precise times, or set overlapSeconds to {held // ticks.SECOND} or "
        "more, with a sink that upserts"
    )
    yield from ticks.waiting(tracked.name, held, otherwise)


def _ties(link: TextLink, relation: Relation, column: SourceColumn) -> Iterator[str]:
    order = relation.order
    if order is None or (relation.oid and link.execute(_UNIQUE, relation.oid, column.name)[0][0]):
        return
    yield ticks.ties(column.name, column.type.declared, order.name)


def _autumn(link: TextLink, column: SourceColumn) -> Iterator[str]:
    ((zone, changes),) = link.execute(_ZONE)
    if changes:
        yield (
            f"{column.name} has no time zone, and the server's TimeZone is {zone}: in autumn its "
            "clock goes back, and changes made while an hour repeats are missed where their value "
            "was passed already. Use timestamp with time zone, or have UTC written into the column"
        )
