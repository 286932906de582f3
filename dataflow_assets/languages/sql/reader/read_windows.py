"""Windows in FROM: `TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES))`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.reader.read_expressions import read_expression
from dataflow_assets.languages.sql.reader.read_tables import qualified_name
from dataflow_assets.languages.sql.reader.refusals import refusal
from dataflow_assets.languages.sql.reader.syntax import FlinkName, FlinkReference, Literal, Windowed

LENGTHS: Mapping[str, Sequence[str]] = {
    "TUMBLE": ("SIZE",),
    "HOP": ("SLIDE", "SIZE"),
    "CUMULATE": ("STEP", "SIZE"),
}
"""The lengths of each kind of window, in their order; an offset may follow."""
_KINDS = (*LENGTHS, "SESSION")
_ROWS = ("DATA", "TIMECOL")


def sees_window(cursor: Cursor) -> bool:
    """Returns whether a window is next, also without TABLE( ) around it."""
    token = cursor.next
    return token.says("TABLE", *_KINDS) and cursor.ahead(1).says("(")


def read_window(cursor: Cursor) -> Windowed:
    """A window, without the name behind it. Raises Unreadable."""
    bracket = cursor.takes("TABLE", "(")
    place = cursor.place
    if not cursor.next.says(*_KINDS):
        cursor.fail(f"expected {', '.join(LENGTHS)}, found {cursor.next}")
    kind = cursor.take().text.upper()
    if kind == "SESSION":
        raise Unreadable(place, refusal("SESSION"))
    cursor.expect("(")
    table, column = _table(cursor), _column(cursor)
    intervals = _intervals(cursor, kind)
    cursor.expect(")")
    if bracket:
        cursor.expect(")")
    return Windowed(place, kind, table, column, intervals)


def _argument_name(cursor: Cursor, *names: str) -> str | None:
    """`NAME =>` in front of an argument."""
    if cursor.next.says(*names) and cursor.ahead(1).says("=>"):
        name = cursor.take().text.upper()
        cursor.take()
        return name
    return None


def _table(cursor: Cursor) -> FlinkReference:
    _argument_name(cursor, "DATA")
    place = cursor.expect("TABLE").place
    bracket = cursor.takes("(")
    table = FlinkReference(place, qualified_name(cursor))
    if bracket:
        cursor.expect(")")
    if cursor.sees("PARTITION"):
        cursor.fail(f"PARTITION BY is of SESSION alone, and {refusal('SESSION')}")
    cursor.expect(",")
    return table


def _column(cursor: Cursor) -> FlinkName:
    _argument_name(cursor, "TIMECOL")
    cursor.expect("DESCRIPTOR")
    cursor.expect("(")
    column = FlinkName(cursor.place, (cursor.name("a column"),))
    cursor.expect(")")
    return column


def _intervals(cursor: Cursor, kind: str) -> Mapping[str, Literal]:
    names = (*LENGTHS[kind], "OFFSET")
    intervals: dict[str, Literal] = {}
    while cursor.takes(","):
        place = cursor.place
        left = [one for one in names if one not in intervals]
        name = _argument_name(cursor, *names, "GAP", *_ROWS) or (left[0] if left else "")
        if name not in left:
            cursor.fail(f"{kind} takes {', '.join(names[:-1])} and OFFSET, each once")
        value = read_expression(cursor)
        if not isinstance(value, Literal) or not value.type.interval:
            raise Unreadable(place, f"{name} must be an interval, like INTERVAL '10' MINUTES")
        intervals[name] = value
    missing = [one for one in LENGTHS[kind] if one not in intervals]
    if missing:
        cursor.fail(f"{kind} lacks its {missing[0]}, like INTERVAL '10' MINUTES")
    return intervals
