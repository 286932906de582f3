"""Partitions of an asset as a condition on the rows of their table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import partial

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import literal, quote
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.sdk.table_partitions import Dimension, Partitions, Range

MOMENTS = ("DateTime", "DateTime32", "DateTime64")


def condition(partitions: Partitions, table: object, kinds: Mapping[str, str]) -> str:
    """Returns what is true for their rows, and neither true nor false for a row without values.

    Args:
        partitions: of an asset.
        table: as errors name it.
        kinds: the types of the table's columns.

    Raises:
        PermanentError: the table has no such column, or its type cannot tell them apart.
    """
    partitions.check(table, kinds)
    return partitions.sql(partial(_dimension, kinds))


def ranges(dimension: Dimension, kind: str) -> list[Range] | None:
    """The windows in a column's terms; None where it holds the partitions' keys instead."""
    name = ClickhouseType.of(kind).bare.name
    if not dimension.windows or name not in (*MOMENTS, *types.DAYS):
        return None
    return dimension.days() if name in types.DAYS else dimension.instants()


def moment(value: date | datetime) -> str:
    """A day or a point in time as SQL takes it."""
    if not isinstance(value, datetime):
        return f"toDate32({literal(value.isoformat())})"
    text = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return f"toDateTime64({literal(text)}, 6, 'UTC')"


def _dimension(kinds: Mapping[str, str], dimension: Dimension) -> str:
    name, kind = quote(dimension.column), kinds[dimension.column]
    limits = ranges(dimension, kind)
    if limits is None:
        # One cast of all keys: servers take 256 KiB of a query.
        keys, spelled = (
            ", ".join(map(literal, dimension.keys)),
            ClickhouseType.of(kind).bare.spelling,
        )
        return f"{name} IN (accurateCast([{keys}], {literal(f'Array({spelled})')}))"
    bounds = [(moment(start), moment(end)) for start, end in limits]
    return " OR ".join(f"{name} >= {start} AND {name} < {end}" for start, end in bounds)
