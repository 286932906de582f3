"""Expressions as they are written."""

from __future__ import annotations

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.pipelines.reader.syntax import (
    Node,
    PipelineCall,
    PipelineName,
    PipelinePath,
    Value,
)

_CONSTANTS = {"NULL": None, "TRUE": True, "FALSE": False}
_OPERATORS = ("+", "-", "*", "/", "%", "||", "=", "<", ">", "<=", ">=", "<>", "!=", ":>")
_MOST_DIGITS = 65  # of a number, as in SingleStore's DECIMAL
_FORMS = {"::": "JSON", "::$": "STRING", "::%": "DOUBLE"}


def read_expression(cursor: Cursor) -> Node:
    """An expression. Raises Unreadable at what is none, or is not supported."""
    node = _operand(cursor)
    while cursor.next.says(*_FORMS):
        node = _path(cursor, node)
    token = cursor.next
    if token.kind == "symbol" and token.text in _OPERATORS:
        cursor.fail(
            f"the operator {token} is not supported: allowed are columns, texts, numbers, ::, ::$, "
            "::%, JSON_EXTRACT_* and FROM_BASE64"
        )
    return node


def _path(cursor: Cursor, given: Node) -> Node:
    place, keys, form = cursor.place, [], "JSON"
    while form == "JSON" and cursor.next.says(*_FORMS):
        form = _FORMS[cursor.take().text]
        keys.append(_key(cursor))
    return PipelinePath(place, given, tuple(keys), form)  # type: ignore[arg-type]


def _key(cursor: Cursor) -> str | int:
    token = cursor.next
    if token.kind == "number" and token.text.isdecimal():
        return cursor.number("a place in an array")
    if token.kind not in ("word", "quoted"):
        cursor.fail(f"expected a key of the JSON value, found {token}")
    return cursor.take().text


def _operand(cursor: Cursor) -> Node:
    token = cursor.next
    if cursor.takes("("):
        node = read_expression(cursor)
        cursor.expect(")")
        return node
    if token.kind == "text":
        return Value(token.place, cursor.take().text)
    negative = cursor.takes("-")
    if cursor.next.kind == "number":
        if len(cursor.next.text) > _MOST_DIGITS:
            cursor.fail(f"a number has at most {_MOST_DIGITS} digits")
        text = f"{'-' if negative else ''}{cursor.take().text}"
        return Value(token.place, int(text) if text.lstrip("-").isdecimal() else float(text))
    if token.kind == "word" and token.text.upper() in _CONSTANTS:
        return Value(token.place, _CONSTANTS[cursor.take().text.upper()])
    if token.kind == "word" and cursor.ahead(1).says("("):
        name = cursor.take().text.upper()
        return PipelineCall(token.place, name, _arguments(cursor))
    return read_column(cursor)


def _arguments(cursor: Cursor) -> tuple[Node, ...]:
    if cursor.takes("(", ")"):
        return ()
    return cursor.list_of(read_expression)


def read_column(cursor: Cursor) -> PipelineName:
    """A column; the table in front of its name is left out."""
    name = read_name(cursor, "a column")
    while cursor.takes("."):
        name = read_name(cursor, "a column")
    return name


def read_name(cursor: Cursor, what: str) -> PipelineName:
    token = cursor.next
    cursor.name(what)
    return PipelineName(token.place, token.text, token.kind == "quoted")
