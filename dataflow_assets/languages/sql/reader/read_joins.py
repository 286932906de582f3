"""Joins in FROM: those of a row with its own items, `CROSS JOIN UNNEST(items) AS t (item)`."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.reader.read_expressions import read_expression
from dataflow_assets.languages.sql.reader.read_tables import read_alias
from dataflow_assets.languages.sql.reader.refusals import refusal
from dataflow_assets.languages.sql.reader.syntax import FlinkUnnestedJoin, Literal, Node

_WORDS = (",", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
_WITHOUT_ON = ((",",), ("CROSS", "JOIN"))
_OUTER = (("LEFT", "JOIN"), ("LEFT", "OUTER", "JOIN"))
_WITH_ON = (("JOIN",), ("INNER", "JOIN"), *_OUTER)


def read_joins(cursor: Cursor) -> Iterator[FlinkUnnestedJoin]:
    """The joins behind a table. Raises Unreadable for those that are not of a row with itself."""
    while cursor.next.says(*_WORDS):
        yield _join(cursor)


def _join(cursor: Cursor) -> FlinkUnnestedJoin:
    ahead = cursor.copy()
    found: list[str] = []
    while ahead.next.says(*_WORDS, "OUTER"):
        found.append(ahead.take().text.upper())
    kind = tuple(found)
    lateral = ahead.takes("LATERAL")
    if not ahead.sees("UNNEST"):
        cursor.fail(refusal("LATERAL" if lateral else "a join"))
    if kind not in (*_WITHOUT_ON, *_WITH_ON):
        words = " ".join(kind)
        cursor.fail(f"{words} UNNEST is not supported: write CROSS JOIN, or LEFT JOIN with ON TRUE")
    cursor.move(ahead)
    return _unnest(cursor, kind)


def _unnest(cursor: Cursor, kind: tuple[str, ...]) -> FlinkUnnestedJoin:
    place = cursor.expect("UNNEST").place
    cursor.expect("(")
    array = read_expression(cursor)
    if cursor.sees(","):
        cursor.fail("UNNEST takes one array or map: write a join for each of them")
    cursor.expect(")")
    numbered = cursor.takes("WITH", "ORDINALITY")
    alias = read_alias(cursor)
    has_names = alias is not None and cursor.sees("(")
    columns = cursor.list_of(lambda it: it.name("a column")) if has_names else ()
    outer = kind in _OUTER
    condition = _condition(cursor, outer=outer) if kind in _WITH_ON else None
    return FlinkUnnestedJoin(place, array, alias, columns, outer, numbered, condition)


def _condition(cursor: Cursor, *, outer: bool) -> Node | None:
    if not cursor.takes("ON"):
        cursor.fail(f"expected ON, found {cursor.next}: write ON TRUE")
    place = cursor.place
    node = read_expression(cursor)
    if isinstance(node, Literal) and node.value is True:
        return None
    if outer:
        message = "LEFT JOIN UNNEST takes ON TRUE alone: write the condition into WHERE"
        raise Unreadable(place, message)
    return node
