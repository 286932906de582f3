"""A polled table of PostgreSQL: its planner, its zone and its indexes answer some questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import Row, TextLink
from dataflow_assets.connectors.postgresql.options import PostgresqlSourceOptions
from dataflow_assets.connectors.postgresql.source.change_notes import notes
from dataflow_assets.connectors.postgresql.source.dialect import (
    NAIVE,
    PostgresqlDialect,
    server_time,
)
from dataflow_assets.connectors.postgresql.source.relation import SourceColumn, describe
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.sql_table import Binds, PolledSqlTable
from dataflow_assets.sdk.sql_table.positions import Pair, PolledPosition, Rows, moment

COUNTED = 10_000  # rows up to which they are counted; beyond that they are estimated
_DIGITS = 6  # of a second
_WITH_NAN = frozenset({"numeric", "float4", "float8"})


@dataclass(frozen=True)
class PolledPostgresqlTable(PolledSqlTable[SourceColumn]):
    """A relation that is asked, inside the caller's transaction."""

    @override
    def newest(self) -> Pair:
        """Raises PermanentError for NaN: the server puts it behind every number.

        No later row would ever be read.
        """
        change, order = super().newest()
        column = self.relation.first
        value = change if self.tracks else order
        if value == "NaN" and column is not None and column.type.base in _WITH_NAN:
            raise PermanentError(
                f"column {column.name} of {self.relation.base} holds NaN, behind which no number "
                "comes: give these rows a number, or leave them out by a query "
                f"(WHERE {column.name} <> 'NaN')"
            )
        return change, order

    @override
    def estimate(self, rows: Rows) -> int:
        where = self._conditions().of(rows)
        query = f"EXPLAIN (FORMAT JSON) SELECT FROM {self.relation.base} WHERE {where}"
        ((plan,),) = self.ask(query, {})
        return int(plan[0]["Plan"]["Plan Rows"])

    @override
    def count(self, rows: Rows) -> int:
        counted = super().count(rows)
        return counted if counted <= COUNTED else max(counted, self.estimate(rows))

    @override
    def key(self, rows: Rows, most: int) -> str | None:
        """Leaves the changes out of account, so that the index of the order column serves."""
        conditions, order = self._conditions(), self.relation.key
        within = conditions.between(rows.low, rows.high)
        where = f"{order.sql} IS NOT NULL{f' AND {within}' if within else ''}"
        row = self._nth([order], where, conditions.binds, most)
        return None if row is None else str(row[0])

    @override
    def before(self, time: str) -> str | None:
        """Before the whole day where changes are days: its rows are read."""
        change = self._time_column()
        if change is None:
            return None
        text = moment(time, _DIGITS)
        if change.type.base in NAIVE:
            local = server_time(f"'{text}'::timestamptz")
            ((text,),) = self.ask(f"SELECT {local}::text", {})
        least = timedelta(days=1) if change.is_day else timedelta(microseconds=1)
        return (datetime.fromisoformat(text) - least).isoformat(" ")

    @override
    def at(self, time: str) -> str:
        """The Operator writes what a column without a zone shows as if that were UTC."""
        return moment(time, _DIGITS)

    @override
    def notes(self, position: PolledPosition) -> Iterator[str]:
        return notes(self, position)

    @override
    def _count(self, where: str, binds: Binds) -> int:
        """Returns how many rows there are, counted up to a bound."""
        query = f"SELECT FROM {self.relation.base} WHERE {where} LIMIT {COUNTED + 1}"
        ((counted,),) = self.ask(f"SELECT count(*) FROM ({query}) AS n", binds)  # noqa: S608
        return int(counted)


def polled_table(link: TextLink, source: PostgresqlSourceOptions) -> PolledPostgresqlTable:
    """Returns the source's table or query as of now, asked through a link."""

    def ask(query: str, binds: Binds) -> list[Row]:
        return link.execute(query, *binds.values())

    relation = describe(link, source)
    return PolledPostgresqlTable(ask, relation, PostgresqlDialect(), source.title, source.overlap)
