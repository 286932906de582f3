"""Expressions: the operators by how closely they bind, then what stands between them."""

from __future__ import annotations

from collections.abc import Callable

from dataflow_assets.languages.common.cursor import RESERVED, Cursor
from dataflow_assets.languages.common.tokens import Place
from dataflow_assets.languages.sql.engine.types import BOOLEAN, NULL, STRING
from dataflow_assets.languages.sql.reader.read_functions import (
    read_case,
    read_cast,
    read_collection,
    read_function,
)
from dataflow_assets.languages.sql.reader.read_literals import read_interval, read_number, read_time
from dataflow_assets.languages.sql.reader.refusals import refusal
from dataflow_assets.languages.sql.reader.syntax import FlinkName, Invoked, Literal, Node, Star

_FLAT = ("AND", "OR", "||")
_SUBQUERY = "a subquery in an expression"
_BARE = ("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE")


def read_expression(cursor: Cursor) -> Node:
    return _or(cursor)


def _operands(cursor: Cursor, operand: Callable[[Cursor], Node], *operators: str) -> Node:
    """Operands with operators of one level between them, from left to right."""
    node = operand(cursor)
    while cursor.next.says(*operators):
        token = cursor.take()
        name = token.text.upper()
        flat = name in _FLAT  # a long list of conditions is not a deep one
        nodes = [node]
        if flat and isinstance(node, Invoked) and node.name == name:
            nodes = [*node.arguments]
        nodes.append(operand(cursor))
        while flat and cursor.next.says(name):
            token = cursor.take()
            nodes.append(operand(cursor))
        node = Invoked(token.place, name, tuple(nodes))
    return node


def _or(cursor: Cursor) -> Node:
    return _operands(cursor, _and, "OR")


def _and(cursor: Cursor) -> Node:
    return _operands(cursor, _not, "AND")


def _not(cursor: Cursor) -> Node:
    if cursor.sees("NOT"):
        place = cursor.take().place
        return Invoked(place, "NOT", (_not(cursor),))
    return _predicate(cursor)


def _predicate(cursor: Cursor) -> Node:
    node = _sum(cursor)
    while True:
        token = cursor.next
        if token.says("=", "<>", "!=", "<", "<=", ">", ">="):
            cursor.take()
            name = "<>" if token.text == "!=" else token.text
            node = Invoked(token.place, name, (node, _sum(cursor)))
        elif token.says("IS"):
            cursor.take()
            node = _is(cursor, token.place, node)
        elif token.says("BETWEEN", "IN", "LIKE") or (
            token.says("NOT") and cursor.ahead(1).says("BETWEEN", "IN", "LIKE")
        ):
            negated = cursor.takes("NOT")
            node = _test(cursor, node)
            node = Invoked(token.place, "NOT", (node,)) if negated else node
        else:
            return node


def _is(cursor: Cursor, place: Place, given: Node) -> Node:
    negated = cursor.takes("NOT")
    if cursor.takes("DISTINCT", "FROM"):
        name = "IS NOT DISTINCT FROM" if negated else "IS DISTINCT FROM"
        return Invoked(place, name, (given, _sum(cursor)))
    word = cursor.expect("NULL", "TRUE", "FALSE", "UNKNOWN", "JSON").text.upper()
    if word == "JSON":
        kind = cursor.take().text if cursor.next.says("VALUE", "SCALAR", "ARRAY", "OBJECT") else ""
        word = f"JSON {kind.upper() or 'VALUE'}"
    node = Invoked(place, f"IS {word}", (given,))
    return Invoked(place, "NOT", (node,)) if negated else node


def _test(cursor: Cursor, given: Node) -> Node:
    token = cursor.take()
    if token.says("BETWEEN"):
        if cursor.sees("SYMMETRIC"):
            cursor.fail("SYMMETRIC is not supported: write the smaller value first")
        cursor.takes("ASYMMETRIC")  # as it is without the word
        low = _sum(cursor)
        cursor.expect("AND")
        return Invoked(token.place, "BETWEEN", (given, low, _sum(cursor)))
    if token.says("IN"):
        if cursor.ahead(1).says("SELECT"):
            cursor.fail(refusal(_SUBQUERY))
        return Invoked(token.place, "IN", (given, *cursor.list_of(read_expression)))
    pattern = _sum(cursor)
    escape = (_sum(cursor),) if cursor.takes("ESCAPE") else ()
    return Invoked(token.place, "LIKE", (given, pattern, *escape))


def _sum(cursor: Cursor) -> Node:
    return _operands(cursor, _product, "+", "-")


def _product(cursor: Cursor) -> Node:
    return _operands(cursor, _concatenation, "*", "/", "%")


def _concatenation(cursor: Cursor) -> Node:
    return _operands(cursor, _unary, "||")


def _unary(cursor: Cursor) -> Node:
    token = cursor.next
    if token.says("-"):
        cursor.take()
        if cursor.next.kind == "number":
            return _postfix(cursor, read_number(cursor.take(), "-"))
        return Invoked(token.place, "NEGATE", (_unary(cursor),))
    if token.says("+"):
        cursor.take()
        return _unary(cursor)
    return _postfix(cursor, _primary(cursor))


def _postfix(cursor: Cursor, node: Node) -> Node:
    while cursor.next.says("[", ".") and cursor.next.kind == "symbol":
        place = cursor.take().place
        if cursor.ahead(-1).text == "[":
            node = Invoked(place, "ITEM", (node, read_expression(cursor)))
            cursor.expect("]")
        else:
            field = Literal(place, STRING, cursor.name("the name of a field"))
            node = Invoked(place, "FIELD", (node, field))
    return node


def _primary(cursor: Cursor) -> Node:
    token = cursor.next
    if token.kind == "text":
        cursor.take()
        return Literal(token.place, STRING, token.text)
    if token.kind == "number":
        return read_number(cursor.take())
    if token.says("("):
        return _brackets(cursor)
    if token.says("*"):
        return Star(cursor.take().place)
    if token.kind == "quoted" or (token.kind == "word" and not token.says(*RESERVED)):
        return _name(cursor)
    special = _special(cursor)
    if special is None:
        cursor.fail(f"expected an expression, found {token}")
    return special


def _brackets(cursor: Cursor) -> Node:
    cursor.take()
    if cursor.sees("SELECT"):
        cursor.fail(refusal(_SUBQUERY))
    node = read_expression(cursor)
    if cursor.sees(","):
        items = [node]
        while cursor.takes(","):
            items.append(read_expression(cursor))
        cursor.expect(")")
        return Invoked(node.place, "ROW", tuple(items))
    cursor.expect(")")
    return node


def _special(cursor: Cursor) -> Node | None:
    """Words that are reserved, and begin an expression."""
    token = cursor.next
    if token.says("TRUE", "FALSE"):
        cursor.take()
        return Literal(token.place, BOOLEAN, token.says("TRUE"))
    if token.says("NULL"):
        cursor.take()
        return Literal(token.place, NULL, None)
    if token.says("CASE"):
        return read_case(cursor, read_expression)
    if token.says("CAST"):
        return read_cast(cursor, read_expression)
    if token.says("INTERVAL"):
        return read_interval(cursor)
    if token.says("EXISTS") and cursor.ahead(1).says("("):
        cursor.fail(refusal(_SUBQUERY))
    if token.says("LEFT", "RIGHT") and cursor.ahead(1).says("("):
        return read_function(cursor, cursor.take(), read_expression, _sum)
    if token.says("ROW") and cursor.ahead(1).says("("):
        cursor.take()
        items = cursor.list_of(read_expression)
        return Invoked(token.place, "ROW", items)
    if token.says("ARRAY", "MAP") and cursor.ahead(1).says("["):
        return read_collection(cursor, read_expression)
    return None


def _name(cursor: Cursor) -> Node:
    token = cursor.next
    word = token.text.upper() if token.kind == "word" else ""
    if word in ("DATE", "TIME", "TIMESTAMP") and cursor.ahead(1).kind == "text":
        return read_time(cursor)
    if word == "TRY_CAST" and cursor.ahead(1).says("("):
        return read_cast(cursor, read_expression)
    if cursor.ahead(1).says("("):
        return read_function(cursor, cursor.take(), read_expression, _sum)
    if word in _BARE:
        cursor.take()
        return Invoked(token.place, word, ())
    parts = [cursor.name("a column")]
    while cursor.sees("."):
        cursor.take()
        if cursor.sees("*"):
            cursor.take()
            return Star(token.place, ".".join(parts))
        parts.append(cursor.name("a column"))
    return FlinkName(token.place, tuple(parts))
