"""Rows of a table that has a watermark, on their way into windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.arrivals import PrimaryKey
from dataflow_assets.languages.sql.engine.expressions import Expression, compile_expression
from dataflow_assets.languages.sql.engine.function import NO_VALUE, Environment, Row
from dataflow_assets.languages.sql.engine.input import Input, Source
from dataflow_assets.languages.sql.engine.stages import Intake
from dataflow_assets.languages.sql.engine.unnest import FlinkUnnested
from dataflow_assets.languages.sql.engine.values import pack
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.engine.windows import (
    FRONT,
    FlinkWindows,
    bounds,
    clock,
    front,
    millis,
)
from dataflow_assets.records.record import Record

_MOST_KNOWN = 10_000


class FlinkSeen(NamedTuple):
    """The result of a record, or of a change in it."""

    key: bytes | None
    """Of an upsert table."""
    rows: Sequence[bytes]
    """What the first stage sees of it, in each window that is not final yet."""
    watermark: int | None
    """In milliseconds."""
    late: bool
    """Whether it would be in windows, and all of them are final."""


def clock_watermark(windows: FlinkWindows, environment: Environment) -> int | None:
    """The watermark of windows over processing time: what rows that are read now have as time."""
    return _Moment(windows.time, environment)(())


class WindowArrivals:
    """Messages as what the first stage sees of them; compiled once for each task."""

    def __init__(self, view: ViewPlan, environment: Environment, reached: int | None) -> None:
        """`reached`: the watermark before the micro-batch, in milliseconds."""
        windows = view.windows
        assert windows is not None  # noqa: S101 - that is what this is made for
        source = Source(view.value, view.key, view.cells, view.changelog)
        self._input = Input(source, environment.local)
        self._watermark = _Moment(windows.watermark, environment)
        self._windows = _Assigned(windows, environment)
        self._unnested = FlinkUnnested(view.unnests, environment)
        self._intake = Intake(view.stages[0], environment)
        self._key = PrimaryKey(view) if view.changelog else None
        self._final = b"" if reached is None else front(reached + 1)

    def __call__(self, record: Record) -> list[FlinkSeen]:
        """Change by change of an upsert table, else of all rows. Raises RejectedRecord."""
        taken = self._input(record)
        if self._key is None:
            return [self._see(None, [row for row, _ in taken])] if taken else []
        return [self._see(self._key(row), [] if gone else [row]) for row, gone in taken]

    def _see(self, key: bytes | None, rows: Sequence[Row]) -> FlinkSeen:
        if not rows:
            return FlinkSeen(key, (), None, late=False)
        marks = (self._watermark(row) for row in rows)
        watermark = max((one for one in marks if one is not None), default=None)
        placed = chain.from_iterable(map(self._windows, rows))
        inside = chain.from_iterable(map(self._unnested, placed))
        seen_rows = [seen for one in inside if (seen := self._intake(one)) is not None]
        kept = [pack(seen) for seen in seen_rows if seen[0][:FRONT] > self._final]
        return FlinkSeen(key, kept, watermark, late=bool(seen_rows) and not kept)


class _Moment:
    """The watermark of a row."""

    def __init__(self, expression: Expression, environment: Environment) -> None:
        self._value = compile_expression(expression, environment)

    def __call__(self, row: Row) -> int | None:
        """Returns None where the row has no time. Raises RejectedRecord."""
        try:
            value = self._value(row)
            return None if value is None else millis(value)
        except NO_VALUE as error:
            raise RejectedRecord("step", f"WATERMARK: {error}") from None


class _Assigned:
    """A row once for each window that it is in, with the columns of that window."""

    def __init__(self, windows: FlinkWindows, environment: Environment) -> None:
        self._windows, self._zone = windows, environment.local
        self._time = compile_expression(windows.time, environment)
        self._known: dict[tuple[int, int], list[Any]] = {}

    def __call__(self, row: Row) -> Iterator[list[Any]]:
        """Without a time: once, without a window. Raises RejectedRecord."""
        try:
            value = self._time(row)
            if value is None:
                yield [*row, None, None, None]
                return
            at = clock(value, self._zone, local=self._windows.local)
            for one in self._windows.of(at):
                yield [*row, *self._bounds(one)]
        except NO_VALUE as error:
            raise RejectedRecord("step", f"{self._windows.kind}: {error}") from None

    def _bounds(self, one: tuple[int, int]) -> list[Any]:
        limits = self._known.get(one)
        if limits is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            limits = bounds(*one, self._zone, local=self._windows.local)
            self._known[one] = limits
        return limits
