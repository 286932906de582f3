"""ClickHouse's SQL of polling.

Values are bound as parameters with their types; conditions let the server use primary keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from typing_extensions import override

from dataflow_assets.connectors.clickhouse.client import quote
from dataflow_assets.connectors.clickhouse.source.relation import ClickhouseColumn
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.sdk.sql_table import Binds, SqlDialect, SqlRelation, ticks

Relation: TypeAlias = SqlRelation[ClickhouseColumn]


class ClickhouseDialect(SqlDialect[ClickhouseColumn]):
    """NaN lies beside NULL in the order."""

    highest: ClassVar = "maxOrNull"
    precise: ClassVar = "use a DateTime or a DateTime64 column"

    @override
    def quote(self, name: str) -> str:
        return quote(name)

    @override
    def value(self, column: ClickhouseColumn, text: str, binds: Binds) -> str:
        name = f"v{len(binds) + 1}"
        binds[name] = text
        return f"{{{name}:{column.type_in_positions}}}"

    @override
    def now(self, relation: Relation) -> str:
        return "SELECT toString(now64(6, 'UTC'))"

    @override
    def clock(self, column: ClickhouseColumn) -> str:
        """Returns what the server's own zone shows: a day is over when the server's own is."""
        return "today()" if column.is_day else "now64(9)"

    @override
    def sample(
        self, relation: Relation, column: ClickhouseColumn, widths: Sequence[int], where: str
    ) -> str:
        name, alias = column.sql, quote(f"{relation.alias}n")
        counts = ", ".join(f"countIf({alias} % {width} = 0)" for width in widths)
        nanoseconds = f"toUnixTimestamp64Nano(assumeNotNull(toDateTime64({name}, 9)))"
        more = f" AND {where}" if where else ""
        return (
            f"SELECT toUnixTimestamp64Nano(now64(9)), maxOrNull({alias}), count(), {counts} "  # noqa: S608 - quoted
            f"FROM (SELECT {nanoseconds} AS {alias} FROM {relation.base} WHERE {name} < now64(9) "
            f"AND {name} > now() - toIntervalDay({ticks.RECENT_DAYS}){more} "
            f"ORDER BY {name} DESC LIMIT {ticks.RECENT})"
        )

    @override
    def age(self, column: ClickhouseColumn, value: str) -> str:
        oldest = f"CAST(minOrNull({value}), 'Nullable(DateTime64(6))')"
        return f"toFloat64(now64(6)) - toFloat64({oldest})"

    @override
    def width(self, columns: Sequence[ClickhouseColumn]) -> str:
        return f"byteSize({', '.join(map(_with_size, columns))})"

    @override
    def nth(
        self, relation: Relation, columns: Sequence[ClickhouseColumn], where: str, most: int
    ) -> str:
        # A name that could be a column's would stand for it in the conditions.
        aliases = [quote(f"{relation.alias}{n}") for n in range(len(columns))]
        pairs = [*zip(columns, aliases, strict=True)]
        names = ", ".join(f"{column.rank} AS {alias}" for column, alias in pairs)
        texts = ", ".join(column.text(alias) for column, alias in pairs)
        return (
            f"SELECT {texts} FROM (SELECT {names} FROM {relation.base} WHERE {where} "  # noqa: S608 - quoted
            f"ORDER BY {self.order_by(relation, columns)} LIMIT 2 OFFSET {most - 1})"
        )

    @override
    def order_by(self, relation: Relation, columns: Sequence[ClickhouseColumn]) -> str:
        return ", ".join(f"{column.sql} NULLS FIRST" for column in columns)


def _with_size(column: ClickhouseColumn) -> str:
    json = ClickhouseType.of(column.type_name).bare.name in {"JSON", "Dynamic", "Variant"}
    return f"toString({column.sql})" if json else column.sql
