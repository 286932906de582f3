"""Partitions of an asset as a condition on the rows of their table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from psycopg import sql

from dataflow_assets.connectors.postgresql.client import quote
from dataflow_assets.sdk.table_partitions import Dimension, Partitions

_TIMES = {
    "date": Dimension.days,
    "timestamp": Dimension.clocks,
    "timestamptz": Dimension.instants,
}


def condition(partitions: Partitions, table: object, kinds: Mapping[str, str]) -> str:
    """Returns what is true for their rows.

    Args:
        partitions: of an asset.
        table: as errors name it.
        kinds: the types of the table's columns.

    Raises:
        PermanentError: the table has no such column, or its type cannot tell them apart.
    """
    partitions.check(table, kinds)
    return partitions.sql(partial(_dimension, kinds))


def _dimension(kinds: Mapping[str, str], dimension: Dimension) -> str:
    name, kind = quote(dimension.column), kinds[dimension.column]
    if dimension.windows and kind in _TIMES:
        ranges = [
            f"{name} >= '{start.isoformat()}'::{kind} AND {name} < '{end.isoformat()}'::{kind}"
            for start, end in _TIMES[kind](dimension)
        ]
        return " OR ".join(ranges)
    # Texts of no type: PostgreSQL reads them as values of the column's.
    return f"{name} IN ({', '.join(sql.Literal(key).as_string() for key in dimension.keys)})"
