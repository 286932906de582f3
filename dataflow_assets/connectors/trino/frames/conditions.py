"""Partitions of an asset as a condition on the rows of their table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import partial

from dataflow_assets.connectors.trino.client import literal, quote
from dataflow_assets.connectors.trino.table.table import TrinoTable
from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.sdk.table_partitions import Dimension, Partitions

_TIMES = {
    "date": Dimension.days,
    "timestamp": Dimension.clocks,
    "timestamp with time zone": Dimension.instants,
}


def condition(partitions: Partitions, table: TrinoTable, prefix: str = "") -> str:
    """Returns what is true for their rows, and neither true nor false for a row without values.

    Args:
        partitions: of an asset.
        table: its table.
        prefix: what stands in front of the names of columns.

    Raises:
        PermanentError: the table has no such column, or its type cannot tell them apart.
    """
    kinds = {column.name: column.kind for column in table.columns}
    partitions.check(table.place, kinds)
    return partitions.sql(partial(_dimension, kinds, prefix))


def _dimension(kinds: Mapping[str, TrinoType], prefix: str, dimension: Dimension) -> str:
    name, kind = f"{prefix}{quote(dimension.column)}", kinds[dimension.column]
    if dimension.windows and kind.name in _TIMES:
        bounds = [(_moment(low), _moment(high)) for low, high in _TIMES[kind.name](dimension)]
        return " OR ".join(f"{name} >= {low} AND {name} < {high}" for low, high in bounds)
    keys = ", ".join(_key(key, kind) for key in dimension.keys)
    return f"{name} IN ({keys})"


def _key(key: str, kind: TrinoType) -> str:
    """A cast to a text of some length would cut off what is longer, and find other rows."""
    text = kind.name in {"varchar", "char"}
    return literal(key) if text else f"CAST({literal(key)} AS {kind.spelling})"


def _moment(value: date | datetime) -> str:
    if not isinstance(value, datetime):
        return f"DATE '{value.isoformat()}'"
    if value.tzinfo is None:
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
    return f"TIMESTAMP '{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC'"
