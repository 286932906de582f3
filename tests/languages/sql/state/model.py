"""Random queries, and what their results are: a few lines of Python over all rows at once.

Nothing here knows how the product keeps state: rows are filtered, grouped and folded anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.languages.sql.state import model_items
from tests.languages.sql.state.model_items import ITEMS, Items

Row = dict[str, Any]
Of = Callable[[Row], Any]
TABLE = "_table"
"""The number of the table that a row is of."""
UNITED = "(SELECT * FROM s UNION ALL SELECT * FROM w WHERE f) AS s"
COLUMNS = (
    "k BIGINT, g STRING, h INT, a INT, b BIGINT, d DOUBLE, n DECIMAL(10, 2), s STRING, "
    f"t TIMESTAMP(3), f BOOLEAN, {model_items.COLUMNS}"
)
_EXACT = Context(prec=80)
_NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - TIMESTAMP has no zone
_INTS = {"a": 32, "b": 64, "h": 32, "x": 32, "o": 32}


class NoRow(Exception):
    """A group has no row: something in it cannot be computed, or must not be null."""


@dataclass(frozen=True)
class Key:
    """One expression of GROUP BY."""

    sql: str
    type: str
    of: Of


@dataclass(frozen=True)
class Fold:
    """One aggregate, or something made of aggregates."""

    sql: str
    type: str
    of: Callable[[Sequence[Row]], Any]


@dataclass(frozen=True)
class Condition:
    """Of WHERE, FILTER or HAVING."""

    sql: str
    of: Callable[[Any], Any]


@dataclass(frozen=True)
class Query:
    """A SELECT with GROUP BY, over the table or over another one."""

    keys: tuple[Key, ...]
    folds: tuple[Fold, ...]
    where: Condition | None = None
    having: Condition | None = None
    inner: Query | None = None
    items: Items | None = None
    united: bool = False
    """Over the rows of two tables."""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Of the target: names and types."""
        keys = [(f"x{n}", one.type) for n, one in enumerate(self.keys)]
        return keys + [(f"y{n}", one.type) for n, one in enumerate(self.folds)]

    def of_one_table(self) -> Query:
        """The same over one table: rows that are replaced are not united."""
        inner = None if self.inner is None else self.inner.of_one_table()
        return replace(self, inner=inner, united=False)

    def text(self) -> str:
        """As SQL."""
        names = [name for name, _ in self.columns]
        items = [*(one.sql for one in self.keys), *(one.sql for one in self.folds)]
        listed = ", ".join(f"{sql} AS {name}" for sql, name in zip(items, names, strict=True))
        source = UNITED if self.united else "s"
        source = source if self.inner is None else f"({self.inner.text()})"
        source += self.items.sql if self.items else ""
        where = f" WHERE {self.where.sql}" if self.where else ""
        groups = ", ".join(one.sql for one in self.keys) or "()"
        having = f" HAVING {self.having.sql}" if self.having else ""
        return f"SELECT {listed} FROM {source}{where} GROUP BY {groups}{having}"

    def rows(self, given: Sequence[Row]) -> list[Row]:
        """Its result."""
        found = list(given) if self.inner is None else self.inner.rows(given)
        if self.united:
            found = [row for row in found if not row[TABLE] or row["f"] is True]
        if self.items is not None:
            found = [{**row, **item} for row in found for item in self.items.of(row)]
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in found:
            if self.where is None or self.where.of(row) is True:
                key = tuple(one.of(row) for one in self.keys)
                groups.setdefault(key, []).append(row)
        return [made for key, rows in groups.items() if (made := self._row(key, rows)) is not None]

    def _row(self, key: tuple[Any, ...], rows: Sequence[Row]) -> Row | None:
        if self.having is not None and self.having.of(rows) is not True:
            return None
        try:
            values = (*key, *(one.of(rows) for one in self.folds))
        except NoRow:
            return None
        return dict(zip((name for name, _ in self.columns), values, strict=True))


def wrap(value: int, bits: int) -> int:
    """As Java's whole numbers overflow."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _there(column: str, kept: Condition | None) -> Callable[[Sequence[Row]], list[Any]]:
    def values(rows: Sequence[Row]) -> list[Any]:
        chosen = [row for row in rows if kept is None or kept.of(row) is True]
        return [row[column] for row in chosen if row[column] is not None]

    return values


def _sum(values: list[Any], kind: str, bits: int) -> Any:
    if not values:
        return None
    if kind == "DOUBLE":
        return _double(values, 1)
    return wrap(sum(values), bits) if bits else sum(values, Decimal(0))


def _double(values: list[float], divisor: int) -> float:
    finite = [one for one in values if math.isfinite(one)]
    other = [one for one in values if one not in finite]
    if other:
        return sum(other)
    return float(sum(map(Fraction, finite), Fraction(0)) / divisor)


def _average(values: list[Any], kind: str, bits: int) -> Any:
    if not values:
        return None
    if kind == "DOUBLE":
        return _double(values, len(values))
    if bits:
        total = wrap(sum(values), 64)
        whole = abs(total) // len(values)
        return wrap(whole if total >= 0 else -whole, bits)
    found = _EXACT.divide(sum(values, Decimal(0)), Decimal(len(values)))
    return found.quantize(Decimal("0.000001"), ROUND_HALF_UP, _EXACT)


def least(value: Any) -> Any:
    """Java's order of floating numbers: NaN is the largest."""
    if not isinstance(value, float):
        return value
    return (1, 0.0) if math.isnan(value) else (0, value)


_TYPES = {
    "h": "INT",
    "a": "INT",
    "b": "BIGINT",
    "d": "DOUBLE",
    "n": "DECIMAL(10, 2)",
    "s": "STRING",
    "t": "TIMESTAMP(3)",
    "k": "BIGINT",
    "g": "STRING",
    "f": "BOOLEAN",
    "x": "INT",
    "o": "INT",
    "p": "STRING",
}
_NUMBERS = ("h", "a", "b", "d", "n")
KEYS = (
    Key("g", "STRING", lambda row: row["g"]),
    Key("h", "INT", lambda row: row["h"]),
    Key("f", "BOOLEAN", lambda row: row["f"]),
    Key("t", "TIMESTAMP(3)", lambda row: row["t"]),
    Key("n", "DECIMAL(10, 2)", lambda row: row["n"]),
    Key("UPPER(g)", "STRING", lambda row: None if row["g"] is None else row["g"].upper()),
    Key(
        "CASE WHEN f THEN 'x' ELSE g END",
        "STRING",
        lambda row: "x" if row["f"] is True else row["g"],
    ),
    Key("h % 2", "INT", lambda row: None if row["h"] is None else row["h"] - 2 * int(row["h"] / 2)),
)
WHERE = (
    Condition("a > 1", lambda row: None if row["a"] is None else row["a"] > 1),
    Condition("f", lambda row: row["f"]),
    Condition("g IS NOT NULL", lambda row: row["g"] is not None),
    Condition("s <> 'p'", lambda row: None if row["s"] is None else row["s"] != "p"),
)
HAVING = (
    Condition("COUNT(*) > 1", lambda rows: len(rows) > 1),
    Condition("COUNT(*) % 2 = 0", lambda rows: len(rows) % 2 == 0),
    Condition("MAX(s) IS NOT NULL", lambda rows: any(row["s"] is not None for row in rows)),
)


def _fold(name: str, column: str, kept: Condition | None, *, distinct: bool) -> Fold:
    bits, kind, there = _INTS.get(column, 0), _TYPES[column], _there(column, kept)

    def values(rows: Sequence[Row]) -> list[Any]:
        found = there(rows)
        return _different(found) if distinct else found

    kinds = {"COUNT": "BIGINT", "SUM": kind, "AVG": kind, "MIN": kind, "MAX": kind}
    if kind.startswith("DECIMAL"):
        kinds |= {"SUM": "DECIMAL(38, 2)", "AVG": "DECIMAL(38, 6)"}
    made: dict[str, Callable[[list[Any]], Any]] = {
        "COUNT": len,
        "SUM": lambda found: _sum(found, kind, bits),
        "AVG": lambda found: _average(found, kind, bits),
        "MIN": lambda found: min(found, key=least, default=None),
        "MAX": lambda found: max(found, key=least, default=None),
    }
    condition = f" FILTER (WHERE {kept.sql})" if kept else ""
    sql = f"{name}({'DISTINCT ' if distinct else ''}{column}){condition}"
    return Fold(sql, kinds[name], lambda rows: made[name](values(rows)))


def _different(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for one in values:
        if not any(least(one) == least(other) for other in found):
            found.append(one)
    return found


def _quotient(rows: Sequence[Row]) -> Any:
    """`10 / SUM(h)`."""
    total = _sum(_there("h", None)(rows), "INT", 32)
    if total is None:
        return None
    if total == 0:
        raise NoRow
    return wrap(int(Fraction(10, total)), 32)


ROWS = Fold("COUNT(*)", "BIGINT", len)
folds = st.one_of(
    st.just(ROWS),
    st.just(Fold("10 / SUM(h)", "INT", _quotient)),
    st.builds(
        _fold,
        st.just("COUNT"),
        st.sampled_from(["g", *_NUMBERS, "s", "t"]),
        st.none() | st.sampled_from(WHERE),
        distinct=st.booleans(),
    ),
    st.builds(
        _fold,
        st.sampled_from(["SUM", "AVG"]),
        st.sampled_from(_NUMBERS),
        st.none() | st.sampled_from(WHERE),
        distinct=st.booleans(),
    ),
    st.builds(
        _fold,
        st.sampled_from(["MIN", "MAX"]),
        st.sampled_from(["a", "b", "d", "n", "s", "t"]),
        st.none() | st.sampled_from(WHERE),
        distinct=st.booleans(),
    ),
)


def _key(name: str, kind: str) -> Key:
    return Key(name, kind, lambda row: row[name])


def of_item(name: str) -> st.SearchStrategy[Fold]:
    """Aggregates of a column of items."""
    calls = ["COUNT", "MIN", "MAX"] if name == "p" else ["COUNT", "SUM", "AVG", "MIN", "MAX"]
    return st.builds(
        _fold,
        st.sampled_from(calls),
        st.just(name),
        st.none() | st.sampled_from(WHERE),
        distinct=st.booleans(),
    )


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Any query over the table, some of them over another query."""
    items = draw(st.none() | st.sampled_from(ITEMS))
    types = {} if items is None else items.types
    keys = st.sampled_from([*KEYS, *map(_key, types, types.values())])
    kinds = [folds, *map(of_item, types)]
    made = Query(
        tuple(draw(st.lists(keys, min_size=1, max_size=2, unique_by=lambda k: k.sql))),
        tuple(draw(st.lists(st.one_of(kinds), min_size=2, max_size=5))),
        draw(st.none() | st.sampled_from(WHERE)),
        draw(st.none() | st.sampled_from(HAVING)),
        items=items,
        united=draw(st.integers(0, 2)) == 0,
    )
    if draw(st.integers(0, 3)):
        return made
    # What is not used is not computed.
    inner = replace(made, folds=(ROWS,))
    return _over(inner, draw(st.booleans()))


def _over(inner: Query, by_number: bool) -> Query:
    """Groups of groups: by how many rows they have, or by their first key."""
    key = (
        Key("y0", "BIGINT", lambda row: row["y0"])
        if by_number
        else Key("x0", inner.keys[0].type, lambda row: row["x0"])
    )
    total = Fold("SUM(y0)", "BIGINT", lambda rows: sum(row["y0"] for row in rows))
    most = Fold("MAX(y0)", "BIGINT", lambda rows: max(row["y0"] for row in rows))
    values = Fold("COUNT(DISTINCT y0)", "BIGINT", lambda rows: len({row["y0"] for row in rows}))
    return Query((key,), (ROWS, total, most, values), inner=inner)


_DOUBLES = (0.1, 0.2, 0.3, -1.5, 1e300, -1e300, 1e-300, float("nan"))
_VALUES: dict[str, Callable[[Random], Any]] = {
    "g": lambda random: random.choice(["x", "y", "é"]),
    "h": lambda random: random.randint(-3, 3),
    "a": lambda random: random.choice([*range(-3, 4), 2**31 - 1]),
    "b": lambda random: random.choice([*range(-3, 4), 2**63 - 1, -(2**63)]),
    "d": lambda random: random.choice(_DOUBLES),
    "n": lambda random: Decimal(random.randint(-500, 500)) / 100,
    "s": lambda random: random.choice(["p", "q", "r"]),
    "t": lambda random: _NOON + random.randint(0, 3) * timedelta(milliseconds=1250),
    "f": lambda random: random.random() < 0.5,
}


def row(random: Random) -> Row:
    """Any row, but for its key: every fifth value is null."""
    made = {name: of(random) if random.random() < 0.8 else None for name, of in _VALUES.items()}
    return made | model_items.row(random)
