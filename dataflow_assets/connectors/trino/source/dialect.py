"""Trino's SQL of polling. Values are literals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from typing_extensions import override

from dataflow_assets.connectors.trino.client import quote
from dataflow_assets.connectors.trino.encode import typed_value
from dataflow_assets.connectors.trino.source.relation import TrinoColumn
from dataflow_assets.sdk.sql_table import Binds, SqlDialect, SqlRelation, ticks

Relation: TypeAlias = SqlRelation[TrinoColumn]

_TEXTS = frozenset({"varchar", "char"})
_WIDTH = 8  # bytes of a number or a time; what is compound counts as the length of its JSON


class TrinoDialect(SqlDialect[TrinoColumn]):
    """NaN has no place in the order; of times without a zone the clock of any zone may be meant."""

    utc: ClassVar = " UTC"
    precise: ClassVar = "use a timestamp column"

    @override
    def quote(self, name: str) -> str:
        return quote(name)

    @override
    def value(self, column: TrinoColumn, text: str, binds: Binds) -> str:
        return typed_value(text, column.kind.spelling)

    @override
    def now(self, relation: Relation) -> str:
        return "SELECT to_iso8601(CAST(current_timestamp(6) AS timestamp(6)))"

    @override
    def clock(self, column: TrinoColumn) -> str:
        """Returns the latest that the clock of a zone may show, but of days the earliest one."""
        if column.is_day:
            return "current_date - interval '1' day"
        return "current_timestamp" if column.is_zoned else "localtimestamp + interval '1' day"

    @override
    def sample(
        self, relation: Relation, column: TrinoColumn, widths: Sequence[int], where: str
    ) -> str:
        name, now = column.sql, self.clock(column)
        counts = ", ".join(f"count_if(at % {width} = 0)" for width in widths)
        more = f" AND {where}" if where else ""
        return (
            "SELECT (SELECT CAST(to_unixtime(current_timestamp(9)) * 1e6 AS bigint) * 1000), "  # noqa: S608 - quoted
            f"max(at), count(*), {counts} FROM (SELECT {_nanoseconds(column)} AS at "
            f"FROM {relation.base} WHERE {name} < {now} "
            f"AND {name} > {now} - interval '{ticks.RECENT_DAYS}' day{more} "
            f"ORDER BY {name} DESC LIMIT {ticks.RECENT})"
        )

    @override
    def age(self, column: TrinoColumn, value: str) -> str:
        zoned = f"CAST(min({value}) AS timestamp(3) with time zone)"
        return f"to_unixtime(current_timestamp) - to_unixtime({zoned})"

    @override
    def width(self, columns: Sequence[TrinoColumn]) -> str:
        return " + ".join(map(_width, columns))

    @override
    def nth(self, relation: Relation, columns: Sequence[TrinoColumn], where: str, most: int) -> str:
        """OFFSET of an ordered query keeps all rows before it: numbered rows are a bounded sort."""
        names = [quote(f"#{n}") for n in range(len(columns))]
        texts = ", ".join(
            f"{column.text(column.rank)} AS {name}"
            for column, name in zip(columns, names, strict=True)
        )
        at = quote("#at")
        return (
            f"SELECT {', '.join(names)} FROM (SELECT {texts}, "  # noqa: S608 - names are quoted
            f"row_number() OVER (ORDER BY {self.order_by(relation, columns)}) AS {at} "
            f"FROM {relation.base} WHERE {where}) "
            f"WHERE {at} BETWEEN {most} AND {most + 1} ORDER BY {at}"
        )


def _nanoseconds(column: TrinoColumn) -> str:
    """Nanoseconds since 1970 as an integer: floats lose the last digits."""
    zoned = column.sql if column.is_zoned else f"with_timezone({column.sql}, 'UTC')"
    seconds = f"CAST(floor(to_unixtime(date_trunc('second', {zoned}))) AS bigint)"
    if not column.digits:
        return f"{seconds} * {ticks.SECOND}"
    text = f"substr(CAST(at_timezone({zoned}, 'UTC') AS varchar), 21, {column.digits})"
    return f"{seconds} * {ticks.SECOND} + CAST({text} AS bigint) * {10 ** (9 - column.digits)}"


def _width(column: TrinoColumn) -> str:
    """Bytes of a value, about: of text its letters."""
    name, kind = column.sql, column.kind.name
    if kind in _TEXTS or kind == "varbinary":
        return f"coalesce(length({name}), 0)"
    if kind == "json":
        return f"coalesce(length(json_format({name})), 0)"
    if kind in {"array", "map"}:
        return f"coalesce(cardinality({name}), 0) * {_WIDTH * 4}"
    return str(_WIDTH if kind != "row" else _WIDTH * 4)
