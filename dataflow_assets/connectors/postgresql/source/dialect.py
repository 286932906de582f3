"""PostgreSQL's SQL of polling.

Borders are looked up in the index: each lies so many rows after the one before it, so that a table
of any size costs a span no more than its own rows. Values are literals, also in COPY and EXPLAIN,
which take no parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import quote
from dataflow_assets.connectors.postgresql.source.relation import Relation, SourceColumn
from dataflow_assets.sdk.sql_table import Binds, SqlDialect, ticks

# A time without zone is that of the server's own zone, whichever zone the session has.
NAIVE = frozenset({"timestamp", "date"})
_ZONE = "(SELECT reset_val FROM pg_settings WHERE name = 'TimeZone')"
_SERVER_TIME = f"(now() AT TIME ZONE {_ZONE})"
_WITHOUT_COLLATION = frozenset(
    {"int2", "int4", "int8", "numeric", "float4", "float8", "uuid", *NAIVE, "timestamptz"}
)
_CLOCKS = {"timestamptz": "now()", "timestamp": _SERVER_TIME, "date": f"{_SERVER_TIME}::date"}
_MICROSECOND = 1_000  # nanoseconds
_FIXED = {
    **dict.fromkeys(("bool", "int2", "int4", "oid", "float4", "date"), 4),
    **dict.fromkeys(("int8", "float8", "time", "timestamp", "timestamptz"), 8),
    "uuid": 36,
}
_TEXTS = frozenset({"text", "varchar", "bpchar", "bytea"})
_LARGE = 1_000  # bytes from which PostgreSQL may have compressed a value


class PostgresqlDialect(SqlDialect[SourceColumn]):
    """The second change column is asked for by a condition of its own, so that an index serves."""

    row_values: ClassVar = True
    utc: ClassVar = "+00:00"

    @override
    def quote(self, name: str) -> str:
        return quote(name)

    @override
    def value(self, column: SourceColumn, text: str, binds: Binds) -> str:
        """Returns a literal of the type that the column is compared as.

        As text first, because a literal of the type `name` has a collation of its own, which
        conflicts with the column's.
        """
        as_text = "" if column.type.base in _WITHOUT_COLLATION else "::text"
        return f"{_string(text)}{as_text}::{column.compared_as}"

    @override
    def operands(
        self, relation: Relation, column: SourceColumn, pair: tuple[str, str], binds: Binds
    ) -> tuple[str, str]:
        """Nothing but the column tells its collation: of a query no catalogue knows."""
        one, two = (self.value(column, text, binds) for text in pair)
        if column.type.base in _WITHOUT_COLLATION:
            return one, two
        own = f"(SELECT {column.sql} FROM {relation.base} LIMIT 0)"  # noqa: S608 - quoted
        return one, f"COALESCE({own}, {two})"

    @override
    def now(self, relation: Relation) -> str:
        """Returns the clock as of this transaction: without a zone where changes have none."""
        naive = relation.first is not None and relation.first.type.base in NAIVE
        return f"SELECT {_SERVER_TIME if naive else 'now()'}::text"

    @override
    def clock(self, column: SourceColumn) -> str:
        return _CLOCKS[column.type.base]

    @override
    def sample(
        self, relation: Relation, column: SourceColumn, widths: Sequence[int], where: str
    ) -> str:
        name, now = column.sql, self.clock(column)
        counts = ", ".join(
            f"count(*) FILTER (WHERE {_micros('v')} % {width // _MICROSECOND} = 0)"
            for width in widths
        )
        more = f" AND {where}" if where else ""
        return (
            f"SELECT {_micros(now)} * 1000, {_micros('max(v)')} * 1000, count(*), {counts} FROM ("  # noqa: S608 - quoted
            f"SELECT {name} AS v FROM {relation.base} WHERE {name} <= {now} "
            f"AND {name} > {now} - interval '{ticks.RECENT_DAYS} days'{more} "
            f"ORDER BY {name} DESC LIMIT {ticks.RECENT}) AS recent"
        )

    @override
    def age(self, column: SourceColumn, value: str) -> str:
        age = f"{self.clock(column)}::timestamp - min({value})::timestamp"
        return f"extract(epoch FROM {age})::float8"

    @override
    def width(self, columns: Sequence[SourceColumn]) -> str:
        """Returns what a part of the rows costs who keeps it.

        The lengths of texts are known without reading them, also where they are compressed or kept
        outside the row. Of other values that is true of what is stored alone: large ones are looked
        at.
        """
        fixed = sum(_FIXED.get(column.type.base, 0) for column in columns)
        others = [_width(column) for column in columns if column.type.base not in _FIXED]
        return " + ".join([f"{fixed}::bigint", *others])

    @override
    def nth(
        self, relation: Relation, columns: Sequence[SourceColumn], where: str, most: int
    ) -> str:
        """An order column alone is never null here: NULLS FIRST would keep the index from it."""
        *changes, order = columns
        values = [relation.rank if changes else "NULL", order.sql][-len(columns) :]
        listed = ", ".join(
            f"{value}::text AS {self.quote(f'{relation.alias}{n}')}"
            for n, value in enumerate(values)
        )
        rank = self.order_by(relation, columns) if changes else order.sql
        return (
            f"SELECT {listed} FROM {relation.base} WHERE {where} "  # noqa: S608 - quoted
            f"ORDER BY {rank} OFFSET {most - 1} LIMIT 2"
        )

    @override
    def last(self, relation: Relation, column: SourceColumn, where: str) -> str:
        """Not by max(), which not every type has."""
        condition = f"({where}) AND " if where else ""
        return (
            f"SELECT {column.sql}::text AS {self.quote(relation.alias)} FROM {relation.base} "  # noqa: S608 - quoted
            f"WHERE {condition}{column.sql} IS NOT NULL ORDER BY {column.sql} DESC LIMIT 1"
        )

    @override
    def order_by(self, relation: Relation, columns: Sequence[SourceColumn]) -> str:
        *changes, order = columns
        return ", ".join([*([relation.rank] if changes else []), f"{order.sql} NULLS FIRST"])


def server_time(moment: str) -> str:
    """The SQL of what the clock of the server's own zone shows at a moment."""
    return f"({moment} AT TIME ZONE {_ZONE})"


def _micros(value: str) -> str:
    return f"(extract(epoch FROM {value}) * 1000000)::bigint"


def _string(value: str) -> str:
    """Any text, whatever `standard_conforming_strings` is.

    psycopg's own `sql.quote` follows the last connection of the process, of whichever thread.
    """
    doubled = value.replace("'", "''")
    if "\\" not in doubled:
        return f"'{doubled}'"
    return " E'" + doubled.replace("\\", "\\\\") + "'"


def _width(column: SourceColumn) -> str:
    if column.type.base in _TEXTS:
        return f"coalesce(octet_length({column.sql}), 0)"
    stored, whole = f"pg_column_size({column.sql})", f"octet_length({column.sql}::text)"
    return f"coalesce(CASE WHEN {stored} > {_LARGE} THEN {whole} ELSE {stored} END, 0)"
