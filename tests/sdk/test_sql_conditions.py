"""The SQL of polling, asked of a database: parts that follow each other have each row once."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pytest
from typing_extensions import override

from dataflow_assets.contracts import Limit
from dataflow_assets.sdk.polling.planning import PlannedSpan, Planner
from dataflow_assets.sdk.sql_table import Binds, PolledSqlTable, SqlColumn, SqlDialect, SqlRelation
from dataflow_assets.sdk.sql_table.conditions import Conditions
from dataflow_assets.sdk.sql_table.positions import NOTHING, START, Pair, PolledPosition, Rows

Row = tuple[int | None, int | None]


@dataclass(frozen=True)
class Column(SqlColumn):
    """A column of the table of the test."""

    name: str
    nullable: bool = True
    type_name = "INTEGER"
    digits = None
    is_day = is_zoned = False

    @property
    def sql(self) -> str:
        return f'"{self.name}"'

    @property
    def selection(self) -> str:
        return self.sql

    def field(self, name: str) -> pa.Field:
        return pa.field(name, pa.int64())

    def text(self, expression: str) -> str:
        return f"CAST({expression} AS TEXT)"


CHANGE, MADE, ORDER = Column("at"), Column("made"), Column("id")


class Dialect(SqlDialect[Column]):
    """Literals of integers, which is all that conditions need."""

    precise = "use a column of times"

    @override
    def quote(self, name: str) -> str:
        return f'"{name}"'

    @override
    def value(self, column: Column, text: str, binds: Binds) -> str:
        return text

    @override
    def now(self, relation: SqlRelation[Column]) -> str:
        return "SELECT datetime()"

    @override
    def clock(self, column: Column) -> str:
        raise AssertionError

    @override
    def sample(
        self, relation: SqlRelation[Column], column: Column, widths: Sequence[int], where: str
    ) -> str:
        raise AssertionError

    @override
    def age(self, column: Column, value: str) -> str:
        raise AssertionError

    @override
    def width(self, columns: Sequence[Column]) -> str:
        return "8"

    @override
    def nth(
        self, relation: SqlRelation[Column], columns: Sequence[Column], where: str, most: int
    ) -> str:
        texts = ", ".join(column.text(column.sql) for column in columns)
        order = self.order_by(relation, columns)
        query = f"SELECT {texts} FROM {relation.base} WHERE {where} ORDER BY {order}"
        return f"{query} LIMIT 2 OFFSET {most - 1}"


class RowValues(Dialect):
    """Compares pairs as SQL does."""

    row_values = True


COLUMNS = (CHANGE, MADE, ORDER)
CHANGES = SqlRelation("t", COLUMNS, ORDER, (CHANGE,))
FALLBACK = SqlRelation("t", COLUMNS, ORDER, (CHANGE, MADE))
NEW_ROWS = SqlRelation("t", COLUMNS, ORDER)
RELATIONS = pytest.mark.parametrize(
    "relation", [CHANGES, FALLBACK, NEW_ROWS], ids=["changes", "two columns", "new rows"]
)
NULLS = pytest.mark.parametrize("nulls", [0.0, 0.3])
DIALECTS = pytest.mark.parametrize("dialect", [Dialect(), RowValues()], ids=["columns", "pairs"])


class Table:
    """Rows of a change value and an order value, some without one.

    Every third change value stands in `made`, where `at` is null, if both columns count.
    """

    def __init__(self, rows: list[Row], relation: SqlRelation[Column]) -> None:
        self.rows = rows
        self._link = sqlite3.connect(":memory:")
        self._link.execute("CREATE TABLE t (at INTEGER, made INTEGER, id INTEGER, n INTEGER)")
        both = len(relation.changes) > 1
        for n, (at, order) in enumerate(rows):
            changes = (None, at) if both and n % 3 == 0 else (at, None if at is None else n % 7)
            self._link.execute("INSERT INTO t VALUES (?, ?, ?, ?)", (*changes, order, n))

    def insert(self, number: int) -> None:
        """A row after all others, with its number in all columns."""
        self._link.execute("INSERT INTO t VALUES (?, ?, ?, ?)", [number] * 4)

    def ask(self, sql: str, binds: Binds) -> list[tuple[str, ...]]:
        return self._link.execute(sql, binds).fetchall()

    def numbers(self, where: str) -> list[int]:
        found = self._link.execute(f"SELECT n FROM t WHERE {where} ORDER BY n")
        return [number for (number,) in found]

    def truth(self, sql: str) -> bool:
        return bool(self._link.execute(f"SELECT {sql}").fetchone()[0])


def tables(nulls: float, relation: SqlRelation[Column]) -> list[Table]:
    dice = random.Random(3)

    def value(most: int) -> int | None:
        return None if dice.random() < nulls else dice.randrange(most)

    return [Table([(value(6), value(40)) for _ in range(60)], relation) for _ in range(5)]


def text(value: int | None) -> str | None:
    return None if value is None else str(value)


def rank(row: Row) -> tuple[int, int]:
    """A missing value comes before every other."""
    return tuple(-1 if value is None else value for value in row)  # type: ignore[return-value]


@DIALECTS
@RELATIONS
@NULLS
def test_parts_that_follow_each_other_have_each_row_once(
    nulls: float, relation: SqlRelation[Column], dialect: Dialect
) -> None:
    """All that have a place in the order, and nothing after the last pair."""
    tracks = bool(relation.changes)
    for table in tables(nulls, relation):
        placed = [row for row in table.rows if row[0 if tracks else 1] is not None]
        ordered = sorted({(row[0] if tracks else None, row[1]) for row in placed}, key=rank)
        borders: list[Pair] = [(text(at), text(order)) for at, order in ordered[4::7]]
        found: list[int] = []
        for after, upto in pairwise([NOTHING, *borders]):
            found += table.numbers(Conditions(relation, dialect).of(Rows(after, upto)))
        last = ordered[4::7][-1]
        wanted = [
            number
            for number, row in enumerate(table.rows)
            if row[0 if tracks else 1] is not None
            and rank((row[0] if tracks else None, row[1])) <= rank(last)
        ]
        assert sorted(found) == wanted


@DIALECTS
@RELATIONS
@NULLS
def test_the_ranges_of_a_load_have_each_row_once(
    nulls: float, relation: SqlRelation[Column], dialect: Dialect
) -> None:
    """Those without a value too: a load reads all rows up to the pair that was fixed."""
    tracks = bool(relation.changes)
    for table in tables(nulls, relation):
        last = max((row[0] if tracks else None, row[1]) for row in table.rows if None not in row)
        upto = (text(last[0]), text(last[1]))
        whole = Rows(upto=upto, load=True)
        found: list[int] = []
        for low, high in pairwise([None, "9", "20", "31", None]):
            part = replace(whole, low=low, high=high)
            found += table.numbers(Conditions(relation, dialect).of(part))
        assert len(found) == len(set(found))
        assert sorted(found) == table.numbers(Conditions(relation, dialect).of(whole))
        without_place = [
            number for number, row in enumerate(table.rows) if row[0 if tracks else 1] is None
        ]
        assert set(without_place) <= set(found)


@RELATIONS
def test_one_pair_before_another(relation: SqlRelation[Column]) -> None:
    tracks, table = bool(relation.changes), Table([], relation)
    values: list[int | None] = [None, 0, 1]
    rows = [(at if tracks else None, order) for at in values for order in values]
    for one in rows:
        for other in rows:
            sql = Conditions(relation, Dialect()).before(
                (text(one[0]), text(one[1])), (text(other[0]), text(other[1]))
            )
            assert table.truth(sql) == (rank(one) < rank(other)), (one, other)


def test_a_column_that_is_never_null_is_not_asked_for_it() -> None:
    strict = SqlRelation("t", COLUMNS, replace(ORDER, nullable=False))
    assert Conditions(strict, Dialect()).of(Rows(upto=(None, "7"))) == '("id" <= 7)'


@RELATIONS
@NULLS
def test_the_newest_pair_is_the_last_one(nulls: float, relation: SqlRelation[Column]) -> None:
    tracks = bool(relation.changes)
    for table in tables(nulls, relation):
        placed = [row for row in table.rows if row[0 if tracks else 1] is not None]
        last = max(((row[0] if tracks else None, row[1]) for row in placed), key=rank)
        polled = PolledSqlTable(table.ask, relation, Dialect(), "table t")
        assert polled.newest() == (text(last[0]), text(last[1]))


def test_rows_without_a_place_in_the_order_are_counted() -> None:
    rows: list[Row] = [(None, 1), (None, None), (1, None), (2, 2)]
    for relation, wanted in ((CHANGES, 2), (FALLBACK, 2), (NEW_ROWS, 2)):
        polled = PolledSqlTable(Table(rows, relation).ask, relation, Dialect(), "table t")
        assert polled.unordered_rows() == wanted


def steps(polled: PolledSqlTable[Column], start: PolledPosition) -> Iterator[PlannedSpan]:
    """Every span up to the end that there is."""
    planner, position = Planner(polled, limit=Limit(records=7)), start
    while (span := planner.step(position, None)) is not None:
        yield span
        position = span.upto


def numbers_of(table: Table, polled: PolledSqlTable[Column], span: PlannedSpan) -> list[int]:
    """The rows of a span, as tasks read them."""
    found: list[int] = []
    for rows in span.parts:
        query, binds = polled.select(rows, ["n"], None)
        found += [int(number) for (number,) in table.ask(query, binds)]
    return found


@DIALECTS
@RELATIONS
@NULLS
def test_a_database_of_a_dialect_is_read_row_by_row_once(
    nulls: float, relation: SqlRelation[Column], dialect: Dialect
) -> None:
    """First all rows there are, in parts of the limit; then those that have come or changed."""
    for table in tables(nulls, relation):
        polled = PolledSqlTable(table.ask, relation, dialect, "table t")
        loaded = [*steps(polled, START)]
        found = [numbers_of(table, polled, span) for span in loaded]
        assert sorted(n for numbers in found for n in numbers) == [*range(len(table.rows))]
        last = loaded[-1].upto
        assert [*steps(polled, last)] == []
        for number in range(100, 120):
            table.insert(number)
        later = [numbers_of(table, polled, span) for span in steps(polled, last)]
        assert sorted(n for numbers in later for n in numbers) == [*range(100, 120)]
