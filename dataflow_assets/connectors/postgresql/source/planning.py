"""The questions of planning, asked of PostgreSQL: bounds, borders, counts, comparisons.

Borders are looked up in the index: each lies so many rows behind the one before it, so that a table
of any size costs a span no more than its own rows. Values are literals (`predicates.literal`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from dataflow_assets.connectors.postgresql.client import Row, TextLink
from dataflow_assets.connectors.postgresql.source.change_notes import precision
from dataflow_assets.connectors.postgresql.source.newest import newest
from dataflow_assets.connectors.postgresql.source.predicates import (
    NAIVE,
    SERVER_TIME,
    Conditions,
    change_of,
    clock,
    compared,
    server_time,
)
from dataflow_assets.connectors.postgresql.source.relation import (
    TIMES,
    Relation,
    SourceColumn,
    is_indexed,
    quoted,
)
from dataflow_assets.sdk.polling import Pair, PolledPosition, Rows, moment

COUNTED = 10_000  # rows up to which they are counted; beyond that they are estimated
_DIGITS = 6  # of a second
_FIXED = {
    **dict.fromkeys(("bool", "int2", "int4", "oid", "float4", "date"), 4),
    **dict.fromkeys(("int8", "float8", "time", "timestamp", "timestamptz"), 8),
    "uuid": 36,
}
_TEXTS = frozenset({"text", "varchar", "bpchar", "bytea"})
_LARGE = 1_000  # bytes from which PostgreSQL may have compressed a value
_LEAST = {"timestamp": timedelta(microseconds=1), "date": timedelta(days=1)}


@dataclass(frozen=True)
class PolledTable:
    """A relation that is asked, inside the caller's transaction. `title`: for people.

    `overlap`: seconds of which rows are read again.
    """

    link: TextLink
    relation: Relation
    title: str
    overlap: int = 0

    @property
    def identity(self) -> str | None:
        """The table's object id; None for a query."""
        return self.relation.oid

    @property
    def wholly(self) -> bool:
        return self.relation.order is None

    @property
    def tracks(self) -> bool:
        """True where a change column orders the rows, before the order column."""
        return bool(self.relation.changes)

    @property
    def first(self) -> str:
        """The name of the first column of the order."""
        return self.relation.tracked.name if self.relation.tracked else ""

    def now(self) -> str:
        """The database's clock, as of this transaction: without a zone where changes have none."""
        tracked = self.relation.tracked
        naive = tracked is not None and tracked.type.base in NAIVE
        return str(self.link.execute(f"SELECT {SERVER_TIME if naive else 'now()'}::text")[0][0])

    def newest(self) -> Pair:
        """The last pair there is now, none of a tick of the database's clock that still runs."""
        return newest(self.link, self.relation, self.overlap)

    def has_rows(self) -> bool:
        """Returns whether there is any row at all."""
        return self._exists("true")

    def unordered(self) -> int:
        """Returns how many rows have no place in the order, counted up to a bound."""
        columns = self.relation.ranked
        if any(column.required for column in columns):
            return 0
        return self._counted(" AND ".join(f"{quoted(column)} IS NULL" for column in columns))

    def is_before(self, one: Pair, other: Pair) -> bool:
        """Returns whether a pair comes before another; a missing value comes before every other."""
        if one == other:
            return False
        sql = ""
        columns = [*self.relation.changes[:1], *filter(None, [self.relation.order])]
        pairs = [*zip(one, other, strict=True)][-len(columns) :]
        for column, (left, right) in reversed([*zip(columns, pairs, strict=True)]):
            if left is None or right is None:
                less, same = f"{left is None and right is not None}", f"{left == right}"
            else:
                one_, two = compared(self.relation, column, left, right)
                less, same = f"{one_} < {two}", f"{one_} = {two}"
            sql = f"({less}) OR ({same}) AND ({sql})" if sql else f"{less}"
        return bool(self.link.execute(f"SELECT {sql}")[0][0])

    def estimate(self, rows: Rows) -> int:
        """The planner's estimate of how many rows there are."""
        where = Conditions(self.relation).of(rows)
        query = f"EXPLAIN (FORMAT JSON) SELECT FROM {self.relation.base} WHERE {where}"
        ((plan,),) = self.link.execute(query)
        return int(plan[0]["Plan"]["Plan Rows"])

    def count(self, rows: Rows) -> int:
        """How many rows there are, counted up to a bound; beyond that the planner's estimate."""
        found = self._counted(Conditions(self.relation).of(rows))
        return found if found <= COUNTED else max(found, self.estimate(rows))

    def size(self, rows: Rows) -> tuple[int, int]:
        """Returns how many rows there are, and how many bytes their values have."""
        where = Conditions(self.relation).of(rows)
        query = (
            f"SELECT count(*), coalesce(sum({_width(self.relation)}), 0)::bigint "  # noqa: S608
            f"FROM {self.relation.base} WHERE {where}"
        )
        ((count, size),) = self.link.execute(query)
        return count, size

    def age(self, rows: Rows) -> float | None:
        """Seconds since the oldest of the rows was changed; None where nothing tells."""
        change = self.relation.tracked
        if change is None or not clock(change):
            return None
        where, value = Conditions(self.relation).of(rows), change_of(self.relation)
        query = (
            f"SELECT extract(epoch FROM {clock(change)}::timestamp - {value}::timestamp)::float8 "  # noqa: S608
            f"FROM {self.relation.base} "
            f"WHERE ({where}) AND {value} IS NOT NULL ORDER BY {value} LIMIT 1"
        )
        found = self.link.execute(query)
        return float(found[0][0]) if found else 0.0

    def key(self, rows: Rows, most: int) -> str | None:
        """The last order value of the first `most` rows; None where there are no more."""
        where = Conditions(self.relation).between(rows.low, rows.high)
        order = quoted(self._order)
        found = self._placed(f"{order}::text AS {self.relation.alias}", where, order, most)
        return None if found is None else str(found[0])

    def border(self, rows: Rows, most: int) -> Pair | None:
        """The last pair of the first `most` rows; None where there are no more."""
        where = Conditions(self.relation).of(rows)
        change, order = change_of(self.relation), quoted(self._order)
        listed = f"{change}::text" if self.tracks else "NULL"
        listed = f"{listed} AS {self.relation.alias}, {order}::text AS {self.relation.alias}_2"
        rank = f"{change}, {order} NULLS FIRST" if self.tracks else order
        found = self._placed(listed, where, rank, most)
        return None if found is None else (found[0], found[1])

    def before(self, time: str) -> str | None:
        """The last change value before a time; None where changes have none."""
        kinds = {column.type.base for column in self.relation.changes}
        if not kinds or not kinds <= {*TIMES, "date"}:
            return None
        least = _LEAST["date" if "date" in kinds else "timestamp"]
        text = moment(time, _DIGITS)
        if kinds & NAIVE:
            local = server_time(f"'{text}'::timestamptz")
            ((text,),) = self.link.execute(f"SELECT {local}::text")
        return (datetime.fromisoformat(text) - least).isoformat(" ")

    def at(self, time: str) -> str:
        """A time of a checkpoint as a change value.

        The Operator writes what a column without a zone shows as if that were UTC.
        """
        return moment(time, _DIGITS)

    def notes(self, position: PolledPosition) -> Iterator[str]:
        """Returns what a person should know about rows that are read later, or slowly."""
        tracked, order = self.relation.tracked, self.relation.order
        if tracked is None or order is None:
            return
        yield from precision(self.link, self.relation, self.overlap)
        if position.state == "load":
            if not is_indexed(self.link, self.relation):
                yield (
                    f"no index begins with {order.name}: each span of the first load sorts what is "
                    f"left of the table; an index on ({order.name}) spares that"
                )
            return
        if clock(tracked) and self._exists(f"{quoted(tracked)} > {clock(tracked)}"):
            yield (
                f"{tracked.name} of some rows lies in the future of the database's clock: they are "
                "read when their time has come"
            )

    def _placed(self, listed: str, where: str, rank: str, most: int) -> Row | None:
        """The values of the row before which `most - 1` others stand, if one stands behind it."""
        query = (
            f"SELECT {listed} FROM {self.relation.base} WHERE {where} "  # noqa: S608
            f"ORDER BY {rank} OFFSET {most - 1} LIMIT 2"
        )
        found = self.link.execute(query)
        return found[0] if len(found) == 2 else None

    def _counted(self, where: str) -> int:
        query = f"SELECT FROM {self.relation.base} WHERE {where} LIMIT {COUNTED + 1}"
        ((found,),) = self.link.execute(f"SELECT count(*) FROM ({query}) AS n")  # noqa: S608
        return int(found)

    def _exists(self, where: str) -> bool:
        query = f"SELECT EXISTS (SELECT FROM {self.relation.base} WHERE {where})"  # noqa: S608
        return bool(self.link.execute(query)[0][0])

    @property
    def _order(self) -> SourceColumn:
        assert self.relation.order is not None  # noqa: S101 - else nothing orders the rows
        return self.relation.order


def _width(relation: Relation) -> str:
    """How many bytes the values of a row have, as SQL: what a part of it costs who keeps it.

    The lengths of texts are known without reading them, also where they are compressed or kept
    outside the row. Of other values that is true of what is stored alone: large ones are looked at.
    """
    fixed = sum(_FIXED.get(column.type.base, 0) for column in relation.columns)
    others = [
        _column_width(column) for column in relation.columns if column.type.base not in _FIXED
    ]
    return " + ".join([f"{fixed}::bigint", *others])


def _column_width(column: SourceColumn) -> str:
    name = quoted(column)
    if column.type.base in _TEXTS:
        return f"coalesce(octet_length({name}), 0)"
    stored, whole = f"pg_column_size({name})", f"octet_length({name}::text)"
    return f"coalesce(CASE WHEN {stored} > {_LARGE} THEN {whole} ELSE {stored} END, 0)"
