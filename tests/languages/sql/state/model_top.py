"""Random queries for the first rows of each key, and their results over all rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hypothesis import strategies as st

from tests.languages.sql.state import model
from tests.languages.sql.state.model import Condition, Key, Row
from tests.languages.sql.state.model_items import NUMBERED

Unique = Literal["number", "partition", "row"]
AT = "_at"
"""When a row came: its offset and its partition."""


@dataclass(frozen=True)
class By:
    """One column of ORDER BY."""

    column: str
    descending: bool
    nulls: Literal["", " NULLS FIRST", " NULLS LAST"] = ""

    @property
    def sql(self) -> str:
        """As SQL."""
        return f"{self.column}{' DESC' if self.descending else ''}{self.nulls}"

    def sorted(self, rows: Sequence[Row]) -> list[Row]:
        """Python's order; null is the smallest unless it is said otherwise."""
        there = [row for row in rows if row[self.column] is not None]
        null = [row for row in rows if row[self.column] is None]
        there.sort(key=lambda row: model.least(row[self.column]), reverse=self.descending)
        first = self.nulls == " NULLS FIRST" or (not self.nulls and not self.descending)
        return [*null, *there] if first else [*there, *null]


@dataclass(frozen=True)
class Top:
    """The first rows of each key, into a table whose PRIMARY KEY has one row for each of them."""

    partition: tuple[Key, ...]
    order: tuple[By, ...]
    most: int
    where: Condition | None
    key: Unique
    """What is beside the columns of PARTITION BY in the PRIMARY KEY; `row`: the rows' own key,
    without those of PARTITION BY."""
    counted: bool = False
    """Grouped again by the first key."""
    items: bool = False
    """Over the items of rows, each with its number."""

    def of(self, *, keyed: bool) -> Top:
        """That can be: rows that only come have no key; what has one has no equal rows."""
        key: Unique = "number" if self.key == "row" and (self.items or not keyed) else self.key
        more = [By("k", descending=False)] if keyed else []
        more += [By("o", descending=False)] if keyed and self.items else []
        return replace(self, key=key, order=(*self.order, *more))

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Of the target: names and types."""
        if self.counted:
            return [("x0", self.partition[0].type), ("y0", "BIGINT"), ("y1", "INT")]
        keys = [(f"x{n}", one.type) for n, one in enumerate(self.partition)]
        number, values = [("x9", "BIGINT")], [("y1", "INT"), ("y2", "STRING")]
        if self.key == "row":
            return [("x9", "BIGINT"), ("y0", "BIGINT"), *values]
        return keys + (number if self.key == "number" else []) + values

    def text(self) -> str:
        """As SQL."""
        names = [f"p{n}" for n, _ in enumerate(self.partition)]
        keys = [f"{one.sql} AS {name}" for one, name in zip(self.partition, names, strict=True)]
        over = f"ORDER BY {', '.join(one.sql for one in self.order)}"
        if self.partition:
            over = f"PARTITION BY {', '.join(one.sql for one in self.partition)} {over}"
        items = ", ".join(["*", *keys, f"ROW_NUMBER() OVER ({over}) AS rn"])
        where = f" WHERE {self.where.sql}" if self.where else ""
        joined = NUMBERED.sql if self.items else ""
        inner = f"(SELECT {items} FROM s{joined}{where}) WHERE rn <= {self.most}"
        if self.counted:
            return f"SELECT p0, COUNT(*), SUM(a) FROM {inner} GROUP BY p0"
        before = {"number": [*names, "rn"], "partition": names, "row": ["k", "rn"]}[self.key]
        return f"SELECT {', '.join([*before, 'a', 's'])} FROM {inner}"

    def rows(self, given: Sequence[Row]) -> list[Row]:
        """Its result."""
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in self._items(given):
            if self.where is None or self.where.of(row) is True:
                groups.setdefault(tuple(one.of(row) for one in self.partition), []).append(row)
        found = [
            (key, n + 1, row)
            for key, rows in groups.items()
            for n, row in enumerate(self._first(rows))
        ]
        return self._counted(found) if self.counted else [self._row(*one) for one in found]

    def _items(self, given: Sequence[Row]) -> Sequence[Row]:
        """Those of a row come one after the other."""
        if not self.items:
            return given
        return [
            {**row, **item, AT: (*row[AT], number)}
            for row in given
            for number, item in enumerate(NUMBERED.of(row))
        ]

    def _first(self, rows: Sequence[Row]) -> list[Row]:
        late = self.order[0].column == "t" and self.order[0].descending
        found = sorted(rows, key=lambda row: row[AT], reverse=late)
        for one in reversed(self.order):
            found = one.sorted(found)
        return found[: self.most]

    def _row(self, key: tuple[Any, ...], number: int, row: Row) -> Row:
        before = {"number": (*key, number), "partition": key, "row": (row["k"], number)}[self.key]
        names = (name for name, _ in self.columns)
        return dict(zip(names, (*before, row["a"], row["s"]), strict=True))

    def _counted(self, found: Sequence[tuple[tuple[Any, ...], int, Row]]) -> list[Row]:
        groups: dict[Any, list[int | None]] = {}
        for key, _, row in found:
            groups.setdefault(key[0], []).append(row["a"])
        made: list[Row] = []
        for key, values in groups.items():
            there = [one for one in values if one is not None]
            total = model.wrap(sum(there), 32) if there else None
            made.append({"x0": key, "y0": len(values), "y1": total})
        return made


orders = st.lists(
    st.builds(
        By,
        st.sampled_from(["a", "b", "d", "n", "s", "t", "f"]),
        st.booleans(),
        st.sampled_from(["", " NULLS FIRST", " NULLS LAST"]),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda one: one.column,
)


@st.composite
def tops(draw: st.DrawFn) -> Top:
    """Any of them."""
    keys = draw(
        st.lists(st.sampled_from(model.KEYS), min_size=0, max_size=2, unique_by=lambda k: k.sql)
    )
    allowed: list[Unique] = ["number", "row", "partition"]
    key = draw(st.sampled_from(allowed if keys else allowed[:2]))
    most = 1 if key == "partition" else draw(st.integers(1, 4))
    where = draw(st.none() | st.sampled_from(model.WHERE))
    counted = bool(keys) and draw(st.integers(0, 3)) == 0
    items = draw(st.booleans())
    return Top(tuple(keys), tuple(draw(orders)), most, where, key, counted, items)
