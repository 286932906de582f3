"""A polled table, whatever the database: bounds, borders, counts, comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.sql_table import ticks
from dataflow_assets.sdk.sql_table.conditions import Conditions
from dataflow_assets.sdk.sql_table.dialect import Ask, Binds, SqlDialect
from dataflow_assets.sdk.sql_table.positions import NOTHING, Pair, PolledPosition, Rows
from dataflow_assets.sdk.sql_table.relation import C, SqlRelation
from dataflow_assets.sdk.sql_table.upper_bound import (
    UpperBound,
    nanoseconds_of,
    tick_of,
    time_text,
    upper_bound,
)


@dataclass(frozen=True)
class PolledSqlTable(Generic[C]):
    """A table or query as its server describes it now, asked in the SQL of a dialect.

    A connector's source makes one on the driver for each question of the engine
    (`PolledSession.asking`), and one in each task, for its `select`. A database that knows more
    answers some questions in a class of its own. Values are compared by the server, by the columns'
    own types and collations. Each method may raise TransientError where the server cannot be
    reached, PermanentError where a person must act.
    """

    ask: Ask
    """Runs one statement, with what it binds."""
    relation: SqlRelation[C]
    dialect: SqlDialect[C]
    title: str
    overlap: int = 0
    """Seconds of which rows are read again."""

    @property
    def identity(self) -> str | None:
        """Returns the table's id; None for a query."""
        return self.relation.identity

    @property
    def wholly(self) -> bool:
        """Returns whether nothing orders the rows."""
        return self.relation.order is None

    @property
    def tracks(self) -> bool:
        """Returns whether a change column orders the rows, before the order column."""
        return bool(self.relation.changes)

    @property
    def first(self) -> str:
        """Returns the name of the first column of the order."""
        return self.relation.first.name if self.relation.first else ""

    @property
    def order_kinds(self) -> str:
        """Returns how the columns of the order put rows in order; empty where nothing does."""
        columns = [*self.relation.changes[:1], *filter(None, [self.relation.order])]
        return ", ".join(column.order_kind for column in columns)

    def now(self) -> str:
        """Returns the server's clock."""
        return str(self.ask(self.dialect.now(self.relation), {})[0][0])

    def newest(self) -> Pair:
        """Returns the last pair there is now, none of a tick of the server's clock that runs."""
        bound = self.upper_bound()
        if not self.tracks:
            return None, self._last(self.relation.key, bound)
        first, *others = self.relation.changes
        found = [self._last(first, bound), *(self._last(c, bound, first) for c in others)]
        changes = [change for change in found if change is not None]
        if not changes:
            return NOTHING
        change = changes[0]
        if len(changes) > 1 and self.is_before((change, None), (changes[1], None)):
            change = changes[1]
        made = self._conditions()
        where = made.first_value(lambda column: f"{column.sql} = {made.value(column, change)}")
        last = self.ask(self.dialect.last(self.relation, self.relation.key, where), made.binds)
        return change, last[0][0] if last else None

    def upper_bound(self) -> UpperBound[C]:
        """Returns up to which values the rows may be read now."""
        return upper_bound(self.ask, self.relation, self.dialect, self.overlap)

    def has_rows(self) -> bool:
        """Returns whether there is any row at all."""
        return bool(self.ask(f"SELECT 1 FROM {self.relation.base} LIMIT 1", {}))  # noqa: S608 - quoted

    def unordered_rows(self) -> int:
        """Returns how many rows have no place in the order."""
        ranked = self.relation.rank_columns
        if not all(column.nullable for column in ranked):
            return 0
        return self._count(" AND ".join(f"{column.rank} IS NULL" for column in ranked), {})

    def is_before(self, one: Pair, other: Pair) -> bool:
        """Returns whether a pair comes before another; a missing value comes before every other."""
        if one == other:
            return False
        made = self._conditions()
        return bool(self.ask(f"SELECT {made.before(one, other)}", made.binds)[0][0])

    def estimate(self, rows: Rows) -> int:
        """Returns how many rows there are: counted, which reads two columns."""
        return self.count(rows)

    def count(self, rows: Rows) -> int:
        """Returns how many rows there are."""
        made = self._conditions()
        return self._count(made.of(rows), made.binds)

    def size(self, rows: Rows) -> tuple[int, int]:
        """Returns how many rows there are, and how many bytes their values have."""
        width = self.dialect.width(self.relation.columns)
        ((count, size),) = self._select(f"count(*), sum({width})", rows)
        return int(count), int(size or 0)

    def age(self, rows: Rows) -> float | None:
        """Returns the seconds since the oldest of the rows was changed; None if nothing tells."""
        change = self.relation.first
        if change is None or change.digits is None:
            return None
        ((seconds,),) = self._select(self.dialect.age(change, self.relation.rank), rows)
        return None if seconds is None else max(0.0, float(seconds))

    def key(self, rows: Rows, most: int) -> str | None:
        """Returns the last order value of the first `most` rows; None where there are no more."""
        made, order = self._conditions(), self.relation.key
        where = made.of(rows)
        where = f"({where}) AND {order.rank} IS NOT NULL" if order.nullable else where
        found = self._nth([order], where, made.binds, most)
        return None if found is None else found[0]

    def border(self, rows: Rows, most: int) -> Pair | None:
        """Returns the last pair of the first `most` rows; None where there are no more."""
        made = self._conditions()
        columns = [*self.relation.changes[:1], self.relation.key]
        found = self._nth(columns, made.of(rows), made.binds, most)
        if found is None:
            return None
        return (found[0], found[1]) if self.tracks else (None, found[0])

    def before(self, time: str) -> str | None:
        """Returns the last change value before a time; None where changes have none."""
        change = self._time_column()
        if change is None:
            return None
        width = tick_of(change)
        return time_text((-(-nanoseconds_of(time) // width) - 1) * width, change, self.dialect.utc)

    def at(self, time: str) -> str:
        """Returns the last change value that is not after a time. Raises PermanentError."""
        change = self._time_column()
        if change is None:
            kinds = [f": it is {column.type_name}" for column in self.relation.changes]
            raise PermanentError(
                "the checkpoint has a time, and the changeTrackingColumn of "
                f"{self.title} is not a time{''.join(kinds)}"
            )
        width = tick_of(change)
        return time_text(nanoseconds_of(time) // width * width, change, self.dialect.utc)

    def notes(self, position: PolledPosition) -> Iterator[str]:  # noqa: ARG002 - what others need
        """Yields what a person should know about rows that wait, or may be missed."""
        for change in self.relation.changes[:1]:
            if change.digits is None:
                yield ticks.ties(change.name, change.type_name, self.relation.key.name)
            yield from ticks.waiting(change.name, self.upper_bound().tick, self.dialect.precise)

    def select(
        self, rows: Rows | None, expressions: Sequence[str], most: int | None
    ) -> tuple[str, Binds]:
        """Returns the statement that reads rows in their order, and what it binds.

        Args:
            rows: of one part; None for all, as they come.
            expressions: what to select.
            most: no more rows than that; None for all.
        """
        relation, made = self.relation, self._conditions()
        # Names of their own: an alias that is a column's name would stand for it in the order.
        listed = ", ".join(
            f"{sql} AS {self.dialect.quote(f'{relation.alias}{n}')}"
            for n, sql in enumerate(expressions)
        )
        query = f"SELECT {listed} FROM {relation.base}"  # noqa: S608 - names are quoted
        if rows is not None and relation.order is not None:
            changes = () if rows.load else relation.changes[:1]
            order = self.dialect.order_by(relation, [*changes, relation.order])
            query += f" WHERE {made.of(rows)} ORDER BY {order}"
        return query if most is None else f"{query} LIMIT {most}", made.binds

    def _conditions(self) -> Conditions[C]:
        return Conditions(self.relation, self.dialect)

    def _time_column(self) -> C | None:
        return next((each for each in self.relation.changes if each.digits is not None), None)

    def _last(self, column: C, bound: UpperBound[C], empty: C | None = None) -> str | None:
        """The last value that may be read now, of the rows in which `empty` is null."""
        binds: Binds = {}
        parts = [bound.condition(column, binds), f"{empty.sql} IS NULL" if empty else ""]
        where = " AND ".join(part for part in parts if part)
        found = self.ask(self.dialect.last(self.relation, column, where), binds)
        return found[0][0] if found else None

    def _nth(
        self, columns: Sequence[C], where: str, binds: Binds, most: int
    ) -> Sequence[Any] | None:
        """The row before which `most - 1` others stand, if one stands after it."""
        found = self.ask(self.dialect.nth(self.relation, columns, where, most), binds)
        return found[0] if len(found) == 2 else None

    def _count(self, where: str, binds: Binds) -> int:
        query = f"SELECT count(*) FROM {self.relation.base} WHERE {where}"  # noqa: S608 - quoted
        return int(self.ask(query, binds)[0][0])

    def _select(self, expressions: str, rows: Rows) -> Sequence[Sequence[Any]]:
        made = self._conditions()
        where = made.of(rows)
        # S608: names are quoted, values bound or literals
        query = f"SELECT {expressions} FROM {self.relation.base} WHERE {where}"  # noqa: S608
        return self.ask(query, made.binds)
