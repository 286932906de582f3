"""The functions of JSON, whose arguments are separated by words."""

from __future__ import annotations

from collections.abc import Callable

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.engine.functions.json import RETURNED
from dataflow_assets.languages.sql.engine.types import NULL, STRING
from dataflow_assets.languages.sql.reader.read_types import read_type
from dataflow_assets.languages.sql.reader.syntax import Invoked, Literal, Node

NAMES = ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS")
_QUERIED = (("NULL",), ("ERROR",), ("EMPTY", "ARRAY"), ("EMPTY", "OBJECT"))
_EXISTS = (("TRUE",), ("FALSE",), ("UNKNOWN",), ("ERROR",))
_VALUED = (("NULL",), ("ERROR",), ("DEFAULT",))


def read_json(cursor: Cursor, place: Place, name: str, read: Callable[[Cursor], Node]) -> Node:
    """Reads on after the parenthesis; `read` reads an expression. Raises Unreadable."""
    arguments: list[Node] = [read(cursor)]
    cursor.expect(",")
    arguments.append(read(cursor))
    if name == "JSON_VALUE":
        arguments += _value(cursor, read)
    elif name == "JSON_QUERY":
        arguments += _query(cursor)
    else:
        arguments.append(_text(place, _behaviour(cursor, _EXISTS, "ERROR") or "FALSE"))
    if not cursor.sees(")"):
        cursor.fail(f"{name}: expected ) or what is returned ON EMPTY or ON ERROR")
    cursor.take()
    return Invoked(place, name, tuple(arguments))


def _text(place: Place, text: str) -> Literal:
    return Literal(place, STRING, text)


def _value(cursor: Cursor, read: Callable[[Cursor], Node]) -> list[Node]:
    place, kind = cursor.place, STRING
    if cursor.takes("RETURNING"):
        place = cursor.place
        kind, _ = read_type(cursor)
        if kind.kind not in RETURNED:
            message = "RETURNING has STRING, BOOLEAN, INT or DOUBLE: CAST what is returned"
            raise Unreadable(place, message)
    arguments: list[Node] = [Literal(place, kind, None)]
    for what in ("EMPTY", "ERROR"):
        way, default = "NULL", Literal(place, NULL, None)
        if (chosen := _behavior(cursor, _VALUED, what, read)) is not None:
            way, default = chosen  # type: ignore[assignment]
        arguments += [_text(place, way), default]
    return arguments


def _behavior(
    cursor: Cursor, allowed: tuple[tuple[str, ...], ...], what: str, read: Callable[[Cursor], Node]
) -> tuple[str, Node] | None:
    """`DEFAULT a ON EMPTY`, or without a default; None where the next words say something else."""
    place = cursor.place
    if cursor.sees("DEFAULT"):
        ahead = cursor.copy()
        ahead.take()
        default = read(ahead)
        if not ahead.takes("ON", what):
            return None
        cursor.move(ahead)
        return "DEFAULT", default
    behaviour = _behaviour(cursor, allowed, what)
    return None if behaviour is None else (behaviour, Literal(place, NULL, None))


def _behaviour(cursor: Cursor, allowed: tuple[tuple[str, ...], ...], what: str) -> str | None:
    for words in allowed:
        if cursor.takes(*words, "ON", what):
            return " ".join(words)
    return None


def _query(cursor: Cursor) -> list[Node]:
    place = cursor.place
    if cursor.takes("RETURNING") and not read_type(cursor)[0].text:
        raise Unreadable(place, "JSON_QUERY: RETURNING has STRING")
    wrapper = _wrapper(cursor)
    empty = _behaviour(cursor, _QUERIED, "EMPTY") or "NULL"
    error = _behaviour(cursor, _QUERIED, "ERROR") or "NULL"
    return [_text(place, one) for one in (wrapper, empty, error)]


def _wrapper(cursor: Cursor) -> str:
    if not cursor.next.says("WITH", "WITHOUT"):
        return "NEVER"
    word = "ALWAYS" if cursor.take().says("WITH") else "NEVER"
    if word == "ALWAYS" and cursor.takes("CONDITIONAL"):
        word = "CONDITIONAL"
    else:
        cursor.takes("UNCONDITIONAL")
    cursor.takes("ARRAY")
    cursor.expect("WRAPPER")
    return word
