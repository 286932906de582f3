"""Random queries over windows, and what their results are: windows are filled row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from hypothesis import strategies as st

from tests.languages.sql.state import model
from tests.languages.sql.state.model import Condition, Fold, Key, Query, Row
from tests.languages.sql.state.model_items import ITEMS, Items

_NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - TIMESTAMP has no zone
_START = Key("window_start", "TIMESTAMP(3)", lambda row: row["window_start"])
_END = Key("window_end", "TIMESTAMP(3)", lambda row: row["window_end"])


def _seconds(count: int) -> str:
    return f"INTERVAL '{count}' SECOND"


@dataclass(frozen=True)
class Windowed:
    """A query over the windows of the table; lengths are seconds."""

    query: Query
    kind: str
    size: int
    step: int
    offset: int
    delay: int

    def text(self) -> str:
        """As SQL."""
        lengths = [self.size] if self.kind == "TUMBLE" else [self.step, self.size]
        listed = ", ".join(map(_seconds, [*lengths, *([self.offset] if self.offset else [])]))
        source = f"TABLE({self.kind}(TABLE s, DESCRIPTOR(t), {listed}))"
        return self.query.text().replace("FROM s", f"FROM {source}")

    @property
    def where(self) -> Condition | None:
        """Of the rows that go into windows."""
        return (self.query.inner or self.query).where

    @property
    def items(self) -> Items | None:
        """What the rows of windows are joined with."""
        return (self.query.inner or self.query).items

    def windows(self, at: datetime) -> list[tuple[datetime, datetime]]:
        """Those that a time is in: all that may be, one after the other."""
        found = []
        step = self.step if self.kind == "HOP" else self.size
        first = int((at - _NOON).total_seconds()) // step - self.size // step - 2
        for number in range(first, first + self.size // step + 5):
            begin = _NOON + timedelta(seconds=number * step + self.offset)
            lengths = range(self.step, self.size + 1, self.step)
            for length in lengths if self.kind == "CUMULATE" else [self.size]:
                end = begin + timedelta(seconds=length)
                if begin <= at < end:
                    found.append((begin, end))
        return found


Window = tuple[datetime, datetime]
Record = tuple[int, Row | None]
"""Key and row; None: it is deleted."""


@dataclass
class Filled:
    """Windows and the rows that were in time for them."""

    query: Windowed
    keyed: bool
    """Whether the last row of a key takes the place of the one before."""
    open: dict[Window, list[Row]] = field(default_factory=dict)
    final: list[Row] = field(default_factory=list)
    late: int = 0
    latest: dict[str, datetime | None] = field(default_factory=dict)
    reached: datetime | None = None
    rows: dict[int, Row] = field(default_factory=dict)

    def take(self, span: Mapping[str, Sequence[Record]]) -> None:
        """The records of a micro-batch by their partition."""
        for partition, records in span.items():
            read = [(key, row) for key, row in records if row is None or not self.rejects(row)]
            rows = [row for _, row in read if row is not None]
            self.late += sum(map(self._is_late, rows))
            for key, row in dict(read).items() if self.keyed else read:
                self._replace(key, row)
            moments = [row["t"] - timedelta(seconds=self.query.delay) for row in rows if row["t"]]
            known = self.latest.get(partition)
            self.latest[partition] = max([*moments, *([known] if known else [])], default=None)
        moments = [one for one in self.latest.values() if one is not None]
        if len(moments) == len(self.latest):
            self.reached = max([min(moments), *([self.reached] if self.reached else [])])
        for window in [one for one in self.open if self._is_over(one[1])]:
            self.final += self.open.pop(window)

    def _is_over(self, end: datetime) -> bool:
        return self.reached is not None and self.reached >= end - timedelta(milliseconds=1)

    def _windows(self, row: Row) -> list[Window]:
        return self.query.windows(row["t"]) if row["t"] and self.passes(row) else []

    def _is_late(self, row: Row) -> bool:
        windows = self._windows(row)
        return bool(windows) and all(self._is_over(end) for _, end in windows)

    def _replace(self, key: int, row: Row | None) -> None:
        before = self.rows.pop(key, None) if self.keyed else None
        for window in [] if before is None else self._windows(before):
            kept = [one for one in self.open.get(window, []) if one["id"] is not before]
            self.open[window] = kept
        if row is None:
            return
        self.rows[key] = row
        for begin, end in self._windows(row):
            if not self._is_over(end):
                found = {**row, "window_start": begin, "window_end": end, "id": row}
                self.open.setdefault((begin, end), []).append(found)

    def rejects(self, row: Row) -> bool:
        """Whether it has no time, and would need one."""
        return row["t"] is None and self.passes(row)

    def passes(self, row: Row) -> bool:
        """Whether WHERE holds, and there are items where they are looked at."""
        if self.query.items is not None and not self.query.items.of(row):
            return False
        return self.query.where is None or self.query.where.of(row) is True


@st.composite
def windowed(draw: st.DrawFn) -> Windowed:
    """Any query, some of them over another query."""
    keys = [_START, _END]
    keys += draw(st.lists(st.sampled_from(model.KEYS), max_size=1))
    items = draw(st.none() | st.none() | st.sampled_from(ITEMS))
    kinds = [model.folds, *map(model.of_item, items.types if items else ())]
    query = Query(
        tuple(keys),
        tuple(draw(st.lists(st.one_of(kinds), min_size=2, max_size=4))),
        draw(st.none() | st.sampled_from(model.WHERE)),
        draw(st.none() | st.sampled_from(model.HAVING)),
        items=items,
    )
    if not draw(st.integers(0, 2)):
        query = _over(query, draw(st.integers(1, 2)))
    kind = draw(st.sampled_from(["TUMBLE", "HOP", "CUMULATE"]))
    step = draw(st.sampled_from([3, 5, 8]))
    times = 1 if kind == "TUMBLE" else draw(st.integers(1, 3))
    return Windowed(
        query, kind, step * times, step, draw(st.sampled_from([0, 2])), draw(st.integers(0, 6))
    )


def _over(query: Query, keys: int) -> Query:
    """Groups of groups: of the same windows, or of all windows that begin at the same time."""
    inner = Query(query.keys, (model.ROWS,), query.where, query.having, items=query.items)
    total = Fold("SUM(y0)", "BIGINT", lambda rows: sum(row["y0"] for row in rows))
    values = Fold("COUNT(DISTINCT y0)", "BIGINT", lambda rows: len({row["y0"] for row in rows}))
    outer = (
        Key("x0", "TIMESTAMP(3)", lambda row: row["x0"]),
        Key("x1", "TIMESTAMP(3)", lambda row: row["x1"]),
    )
    return Query(outer[:keys], (model.ROWS, total, values), inner=inner)


def row(random: Random, number: int) -> Row:
    """Any row; times go on with the number, but not in order."""
    made = model.row(random)
    if made["t"] is not None:
        at = (number + random.randint(-12, 6)) * 500 - random.randint(0, 1)
        made["t"] = _NOON + timedelta(milliseconds=at)
    return made
