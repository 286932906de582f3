"""Windows over the rows of a table: of the times that they have, or of when they are read."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import cast

from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.engine.expressions import (
    Expression,
    FlinkCall,
    FlinkColumn,
    FlinkConstant,
    call,
)
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import TIMESTAMP, FlinkType
from dataflow_assets.languages.sql.engine.windows import Closing, FlinkWindows, Kind
from dataflow_assets.languages.sql.reader.bind import ALIASES, Scope, bound
from dataflow_assets.languages.sql.reader.syntax import Literal, Windowed
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared

MOST = 1_440
"""Windows of a row: each is counted by itself."""
START, END, TIME = BOUNDS = ("window_start", "window_end", "window_time")
_UNITS = (("dd", 86_400_000), ("HH", 3_600_000), ("mm", 60_000), ("ss", 1_000), ("SSS", 1))
"""What patterns of times show, and how many milliseconds one is."""
_CLOCK = ALIASES["PROCTIME"]
_GROUPED = f"rows of windows are grouped by {START} and {END}: add both to GROUP BY"


def windows(
    node: Windowed, scope: Scope, table: FlinkDeclared, environment: Environment
) -> FlinkWindows:
    """The windows of rows. Raises Unreadable.

    Args:
        node: as it is written.
        scope: of the rows.
        table: whose records they are.
        environment: the session's.
    """
    declared, rows = table.table.watermark, table.scope(environment)
    time = bound(node.column, scope)
    has_watermark = declared is not None and time == rows.find(declared.column)
    if not has_watermark and time != call(_CLOCK, (), environment):
        name = node.column.parts[-1]
        message = (
            f"{name} has no WATERMARK: declare WATERMARK FOR {name} AS {name}, or for windows of "
            f"the time at which rows are read {name} AS PROCTIME()"
        )
        advice = "" if declared is None else f"; {table.name} has one for {declared.column}"
        raise Unreadable(node.column.place, message + advice)
    size, step, offset = _lengths(node)
    watermark = bound(declared.delay, rows) if declared is not None and has_watermark else time
    if not time.type.moment or watermark.type.kind != time.type.kind:
        message = (
            f"the WATERMARK of {table.name} must be of the type of {node.column.parts[-1]}, "
            f"TIMESTAMP(3) or TIMESTAMP_LTZ(3); that is {time.type}, and the WATERMARK "
            f"{watermark.type}"
        )
        raise Unreadable(node.column.place, message)
    return FlinkWindows(cast("Kind", node.kind), time, size, step, watermark, offset)


def _lengths(node: Windowed) -> tuple[int, int, int]:
    lengths = {name: _millis(node, name, one) for name, one in node.intervals.items()}
    size = lengths["SIZE"]
    other = next((name for name in ("SLIDE", "STEP") if name in lengths), "SIZE")
    step = lengths[other]
    if size < 1 or step < 1:
        raise Unreadable(node.place, f"{node.kind}: a length must be above zero")
    if size % step:
        message = f"{node.kind}: SIZE must be a multiple of {other}"
        raise Unreadable(node.intervals["SIZE"].place, message)
    if size // step > MOST:
        message = f"{node.kind}: a row would be in {size // step} windows; allowed: {MOST}"
        raise Unreadable(node.intervals[other].place, message)
    return size, step, lengths.get("OFFSET", 0)


def _millis(node: Windowed, name: str, literal: Literal) -> int:
    if literal.type.kind != "MILLIS":
        raise Unreadable(
            literal.place, f"{node.kind}: {name} must be of days or less, not of months"
        )
    return int(literal.value)


def columns(window: FlinkWindows, width: int) -> Sequence[tuple[str, Expression]]:
    """The columns of windows, behind those of a row that has so many."""
    kinds: Sequence[tuple[str, FlinkType]] = (
        (START, TIMESTAMP),
        (END, TIMESTAMP),
        (TIME, FlinkType(window.time.type.kind, 3)),
    )
    return [(name, FlinkColumn(kind, width + at, name)) for at, (name, kind) in enumerate(kinds)]


def closing(
    keys: Sequence[Expression], bounds: Sequence[Expression], window: FlinkWindows, place: Place
) -> Closing:
    """When groups of these keys are final. Raises Unreadable where they are not those of windows.

    Args:
        keys: of GROUP BY, or DISTINCT.
        bounds: what `window_start`, `window_end` and `window_time` are there.
        window: the windows.
        place: of the query.
    """
    if any(one not in keys for one in bounds[:2]):
        raise Unreadable(place, _GROUPED)
    return Closing(keys.index(bounds[1]), window.local)


def check_grouped(window: FlinkWindows | None, stages: Sequence[FlinkStage], place: Place) -> None:
    """Raises Unreadable where rows of windows are not grouped by them."""
    if window is not None and (not stages or stages[0].window is None):
        raise Unreadable(place, _GROUPED)


def bound_at(
    window: FlinkWindows | None, bounds: Sequence[Expression], key: Expression
) -> int | None:
    """The column of a window that a text of it stands for: no two windows have the same text.

    Called for each column of a PRIMARY KEY.

    Args:
        window: the windows of the groups, if they are in windows.
        bounds: `window_start`, `window_end` and, where it is there, `window_time`.
        key: DATE_FORMAT of a bound, or anything else.

    Returns:
        The place of the bound; None where several windows could have one text.
    """
    if window is None or not isinstance(key, FlinkCall) or key.name != "DATE_FORMAT":
        return None
    time, pattern = key.arguments
    if (
        time not in bounds[:2]
        or not isinstance(time, FlinkColumn)
        or not isinstance(pattern, FlinkConstant)
    ):
        return None
    unit = _shown_unit(str(pattern.value))
    whole = unit and not any(one % unit for one in (window.size, window.step, window.offset))
    return time.at if whole else None


def _shown_unit(pattern: str) -> int | None:
    """The shortest time, in milliseconds, that a pattern shows; None without a whole date."""
    letters = set(re.findall(r"yyyy|uuuu|MM|dd|HH|mm|ss|SSS", re.sub(r"'[^']*'", "", pattern)))
    if not {"MM", "dd"} <= letters or letters.isdisjoint({"yyyy", "uuuu"}):
        return None
    shown = [unit for name, unit in _UNITS if name in letters]
    complete = [name for name, _ in _UNITS[: len(shown)]]
    return shown[-1] if letters.issuperset(complete) else None


def implied_columns(
    window: FlinkWindows | None, bounds: Sequence[Expression], given: Collection[int]
) -> frozenset[int]:
    """The columns of a window that others of its columns say already.

    Args:
        window: the windows of the groups, if they are in windows.
        bounds: `window_start`, `window_end` and, where it is there, `window_time`.
        given: places of columns.
    """
    places = [one.at for one in bounds if isinstance(one, FlinkColumn)]
    start, end, time = places[:1], places[1:2], places[2:]
    telling = [*end]
    if window is None or window.kind != "CUMULATE":
        telling += start
    if window is None or not window.local:  # in spring two ends of a clock are one time
        telling += time
    return frozenset(places) if set(telling) & set(given) else frozenset()
