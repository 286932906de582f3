"""MySQL's SQL of polling. Values are bound; the server compares them as the column's own."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import ClassVar, TypeAlias

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.mysql.client import quote
from dataflow_assets.connectors.mysql.source.relation import BYTES, TEXTS, MysqlColumn
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.sql_table import Binds, SqlDialect, SqlRelation, ticks

Relation: TypeAlias = SqlRelation[MysqlColumn]
_FLOATS = frozenset({"float", "double"})
_WIDTH = 8  # bytes of a number or a time


class MysqlDialect(SqlDialect[MysqlColumn]):
    """Null comes first in the order by itself; sessions are in UTC."""

    utc: ClassVar = ""
    precise: ClassVar = "use a timestamp(6) column"

    @override
    def quote(self, name: str) -> str:
        return quote(name)

    @override
    def value(self, column: MysqlColumn, text: str, binds: Binds) -> str:
        name, kind = f"v{len(binds) + 1}", column.kind
        if kind.name in BYTES:
            binds[name] = text
            return f"UNHEX(%({name})s)"
        if kind.digits is not None:
            binds[name] = text
            return f"CAST(%({name})s AS {'DATE' if column.is_day else 'DATETIME(6)'})"
        if kind.name in _FLOATS:  # a bound one would be compared as text, or as a decimal
            binds[name] = text
            return f"(%({name})s + 0e0)"
        number = kind.rule.kind is None and kind.name not in TEXTS
        binds[name] = _number(column, text) if number or kind.name == "decimal" else text
        return f"%({name})s"

    @override
    def operands(
        self, relation: Relation, column: MysqlColumn, pair: tuple[str, str], binds: Binds
    ) -> tuple[str, str]:
        one, other = (self.value(column, text, binds) for text in pair)
        if column.kind.name == "uuid":
            return f"CAST({one} AS UUID)", f"CAST({other} AS UUID)"
        if column.collation is None:
            return one, other
        charset = column.collation.partition("_")[0]
        as_column = f"CONVERT({{}} USING {charset}) COLLATE {column.collation}"
        return as_column.format(one), as_column.format(other)

    @override
    def now(self, relation: Relation) -> str:
        return "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)"

    @override
    def clock(self, column: MysqlColumn) -> str:
        """Returns the latest that the clock of a zone may show, but of days the earliest one."""
        if column.is_day:
            return "UTC_DATE() - INTERVAL 1 DAY"
        return "UTC_TIMESTAMP(6)" + ("" if column.is_zoned else " + INTERVAL 1 DAY")

    @override
    def sample(
        self, relation: Relation, column: MysqlColumn, widths: Sequence[int], where: str
    ) -> str:
        name, now, at = column.sql, self.clock(column), quote(f"{relation.alias}n")
        counts = "".join(f", CAST(SUM(MOD({at}, {width}) = 0) AS SIGNED)" for width in widths)
        more = f" AND {where}" if where else ""
        return (
            f"SELECT {_nanoseconds('UTC_TIMESTAMP(6)')}, MAX({at}), COUNT(*){counts} "  # noqa: S608 - quoted
            f"FROM (SELECT {_nanoseconds(name)} AS {at} FROM {relation.base} WHERE {name} < {now} "
            f"AND {name} > {now} - INTERVAL {ticks.RECENT_DAYS} DAY{more} "
            f"ORDER BY {name} DESC LIMIT {ticks.RECENT}) AS {quote(f'{relation.alias}s')}"
        )

    @override
    def age(self, column: MysqlColumn, value: str) -> str:
        return f"TIMESTAMPDIFF(MICROSECOND, MIN({value}), UTC_TIMESTAMP(6)) / 1e6"

    @override
    def width(self, columns: Sequence[MysqlColumn]) -> str:
        return " + ".join(
            f"COALESCE(LENGTH({each.sql}), 0)"
            if each.kind.rule.arrow in {pa.string(), pa.binary()}
            else str(_WIDTH)
            for each in columns
        )

    @override
    def nth(self, relation: Relation, columns: Sequence[MysqlColumn], where: str, most: int) -> str:
        texts = ", ".join(column.text(column.sql) for column in columns)
        return (
            f"SELECT {texts} FROM {relation.base} WHERE {where} "  # noqa: S608 - names are quoted
            f"ORDER BY {self.order_by(relation, columns)} LIMIT 2 OFFSET {most - 1}"
        )

    @override
    def order_by(self, relation: Relation, columns: Sequence[MysqlColumn]) -> str:
        return ", ".join(column.sql for column in columns)


def _number(column: MysqlColumn, text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise PermanentError(
            f"the checkpoint has {text!r} of column {column.name}, which holds numbers "
            f"({column.type}): start from earliest, or correct the column that the manifest names"
        ) from None


def _nanoseconds(value: str) -> str:
    return f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {value}) * 1000"
