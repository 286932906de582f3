"""The SQL of polling, asked of a database: parts that follow each other have each row once."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from dataflow_assets.sdk.polling import NOTHING, Pair, Rows
from dataflow_assets.sdk.polling.conditions import Conditions

Row = tuple[int | None, int | None]


@dataclass(frozen=True)
class Column:
    """A column of the table of the test."""

    name: str
    nullable: bool = True

    @property
    def quoted(self) -> str:
        return f'"{self.name}"'

    @property
    def rank(self) -> str:
        return self.quoted


CHANGE, ORDER = Column("at"), Column("id")


class Table:
    """Rows of a change value and an order value, some without one."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self._link = sqlite3.connect(":memory:")
        self._link.execute("CREATE TABLE t (at INTEGER, id INTEGER, n INTEGER)")
        numbered = [(*row, n) for n, row in enumerate(rows)]
        self._link.executemany("INSERT INTO t VALUES (?, ?, ?)", numbered)

    def numbers(self, where: str) -> list[int]:
        found = self._link.execute(f"SELECT n FROM t WHERE {where} ORDER BY n")
        return [number for (number,) in found]

    def truth(self, sql: str) -> bool:
        return bool(self._link.execute(f"SELECT {sql}").fetchone()[0])


def conditions(change: Column | None) -> Conditions[Column]:
    return Conditions(change, ORDER, lambda _, text: text)


def tables(nulls: float) -> list[Table]:
    dice = random.Random(3)

    def value(most: int) -> int | None:
        return None if dice.random() < nulls else dice.randrange(most)

    return [Table([(value(6), value(40)) for _ in range(60)]) for _ in range(5)]


def text(value: int | None) -> str | None:
    return None if value is None else str(value)


def rank(row: Row) -> tuple[int, int]:
    """A missing value comes before every other."""
    return tuple(-1 if value is None else value for value in row)  # type: ignore[return-value]


@pytest.mark.parametrize("change", [CHANGE, None], ids=["changes", "new rows"])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_parts_that_follow_each_other_have_each_row_once(
    nulls: float, change: Column | None
) -> None:
    """All that have a place in the order, and nothing behind the last pair."""
    for table in tables(nulls):
        placed = [row for row in table.rows if row[0 if change else 1] is not None]
        ordered = sorted({(row[0] if change else None, row[1]) for row in placed}, key=rank)
        borders: list[Pair] = [(text(at), text(order)) for at, order in ordered[4::7]]
        found: list[int] = []
        for after, upto in pairwise([NOTHING, *borders]):
            found += table.numbers(conditions(change).of(Rows(after, upto)))
        last = ordered[4::7][-1]
        wanted = [
            number
            for number, row in enumerate(table.rows)
            if row[0 if change else 1] is not None
            and rank((row[0] if change else None, row[1])) <= rank(last)
        ]
        assert sorted(found) == wanted


@pytest.mark.parametrize("change", [CHANGE, None], ids=["changes", "new rows"])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_the_ranges_of_a_load_have_each_row_once(nulls: float, change: Column | None) -> None:
    """Those without a value too: a load reads all rows up to the pair that was fixed."""
    for table in tables(nulls):
        last = max((row[0] if change else None, row[1]) for row in table.rows if None not in row)
        upto = (text(last[0]), text(last[1]))
        whole = Rows(upto=upto, load=True)
        found: list[int] = []
        for low, high in pairwise([None, "9", "20", "31", None]):
            part = replace(whole, low=low, high=high)
            found += table.numbers(conditions(change).of(part))
        assert len(found) == len(set(found))
        assert sorted(found) == table.numbers(conditions(change).of(whole))
        without_place = [
            number for number, row in enumerate(table.rows) if row[0 if change else 1] is None
        ]
        assert set(without_place) <= set(found)


@pytest.mark.parametrize("change", [CHANGE, None], ids=["changes", "new rows"])
def test_one_pair_before_another(change: Column | None) -> None:
    table = Table([])
    values: list[int | None] = [None, 0, 1]
    rows = [(at if change else None, order) for at in values for order in values]
    for one in rows:
        for other in rows:
            sql = conditions(change).before(
                (text(one[0]), text(one[1])), (text(other[0]), text(other[1]))
            )
            assert table.truth(sql) == (rank(one) < rank(other)), (one, other)


def test_a_column_that_is_never_null_is_not_asked_for_it() -> None:
    strict = Conditions(None, replace(ORDER, nullable=False), lambda _, text: text)
    assert strict.of(Rows(upto=(None, "7"))) == '("id" <= 7)'
