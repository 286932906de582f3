"""Expressions: the operators by how closely they bind, then what stands between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from dataflow_assets.manifests.dialects.sql.cursor import RESERVED, Cursor
from dataflow_assets.manifests.dialects.sql.read_json import NAMES as JSON
from dataflow_assets.manifests.dialects.sql.read_json import read_json
from dataflow_assets.manifests.dialects.sql.read_over import read_over
from dataflow_assets.manifests.dialects.sql.read_types import read_type
from dataflow_assets.manifests.dialects.sql.syntax import (
    Casting,
    Invoked,
    Literal,
    Name,
    Node,
    Star,
)
from dataflow_assets.manifests.dialects.sql.tokens import Place, Token, Unreadable
from dataflow_assets.sql.functions.moments import MILLIS, MONTHS, UNITS
from dataflow_assets.sql.texts import parsed_date, parsed_moment, parsed_time
from dataflow_assets.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    MOST_DIGITS,
    NULL,
    STRING,
    Type,
)
from dataflow_assets.sql.types import MILLIS as SECONDS_TYPE
from dataflow_assets.sql.types import MONTHS as MONTHS_TYPE

_OF_INTERVAL = re.compile(r"[+-]?[0-9]{1,12}(\.[0-9]{1,9})?")
_FLAT = ("AND", "OR", "||")
_BARE = ("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE")
_PARTS = (*UNITS, "MILLISECOND", "DOY", "DOW")


def read_expression(cursor: Cursor) -> Node:
    """An expression. Raises Unreadable."""
    return _or(cursor)


def _joined(cursor: Cursor, operand: Callable[[Cursor], Node], *operators: str) -> Node:
    """Operands with operators of one level between them, from left to right."""
    found = operand(cursor)
    while cursor.next.says(*operators):
        token = cursor.take()
        name = token.text.upper()
        given: tuple[Node, ...] = (found, operand(cursor))
        if name in _FLAT and isinstance(found, Invoked) and found.name == name:
            given = (*found.arguments, given[1])  # a long list of conditions is not a deep one
        found = Invoked(token.place, name, given)
    return found


def _or(cursor: Cursor) -> Node:
    return _joined(cursor, _and, "OR")


def _and(cursor: Cursor) -> Node:
    return _joined(cursor, _not, "AND")


def _not(cursor: Cursor) -> Node:
    if cursor.sees("NOT"):
        place = cursor.take().place
        return Invoked(place, "NOT", (_not(cursor),))
    return _predicate(cursor)


def _predicate(cursor: Cursor) -> Node:
    found = _sum(cursor)
    while True:
        token = cursor.next
        if token.says("=", "<>", "!=", "<", "<=", ">", ">="):
            cursor.take()
            name = "<>" if token.text == "!=" else token.text
            found = Invoked(token.place, name, (found, _sum(cursor)))
        elif token.says("IS"):
            cursor.take()
            found = _is(cursor, token.place, found)
        elif token.says("BETWEEN", "IN", "LIKE") or (
            token.says("NOT") and cursor.ahead(1).says("BETWEEN", "IN", "LIKE")
        ):
            negated = cursor.takes("NOT")
            found = _tested(cursor, found)
            found = Invoked(token.place, "NOT", (found,)) if negated else found
        else:
            return found


def _is(cursor: Cursor, place: Place, given: Node) -> Node:
    negated = cursor.takes("NOT")
    if cursor.takes("DISTINCT", "FROM"):
        name = "IS NOT DISTINCT FROM" if negated else "IS DISTINCT FROM"
        return Invoked(place, name, (given, _sum(cursor)))
    word = cursor.expect("NULL", "TRUE", "FALSE", "UNKNOWN", "JSON").text.upper()
    if word == "JSON":
        kind = cursor.take().text if cursor.next.says("VALUE", "SCALAR", "ARRAY", "OBJECT") else ""
        word = f"JSON {kind.upper() or 'VALUE'}"
    found = Invoked(place, f"IS {word}", (given,))
    return Invoked(place, "NOT", (found,)) if negated else found


def _tested(cursor: Cursor, given: Node) -> Node:
    token = cursor.take()
    if token.says("BETWEEN"):
        low = _sum(cursor)
        cursor.expect("AND")
        return Invoked(token.place, "BETWEEN", (given, low, _sum(cursor)))
    if token.says("IN"):
        if cursor.ahead(1).says("SELECT"):
            cursor.fail("subqueries inside expressions are not supported")
        return Invoked(token.place, "IN", (given, *cursor.listed(lambda: read_expression(cursor))))
    pattern = _sum(cursor)
    escape = (_sum(cursor),) if cursor.takes("ESCAPE") else ()
    return Invoked(token.place, "LIKE", (given, pattern, *escape))


def _sum(cursor: Cursor) -> Node:
    return _joined(cursor, _product, "+", "-")


def _product(cursor: Cursor) -> Node:
    return _joined(cursor, _concatenation, "*", "/", "%")


def _concatenation(cursor: Cursor) -> Node:
    return _joined(cursor, _unary, "||")


def _unary(cursor: Cursor) -> Node:
    token = cursor.next
    if token.says("-"):
        cursor.take()
        if cursor.next.kind == "number":
            return _postfix(cursor, _number(cursor.take(), "-"))
        return Invoked(token.place, "NEGATE", (_unary(cursor),))
    if token.says("+"):
        cursor.take()
        return _unary(cursor)
    return _postfix(cursor, _primary(cursor))


def _postfix(cursor: Cursor, found: Node) -> Node:
    """`[index]` and `.field` behind something."""
    while cursor.next.says("[", ".") and cursor.next.kind == "symbol":
        place = cursor.take().place
        if cursor.ahead(-1).text == "[":
            found = Invoked(place, "ITEM", (found, read_expression(cursor)))
            cursor.expect("]")
        else:
            field = Literal(place, STRING, cursor.name("the name of a field"))
            found = Invoked(place, "FIELD", (found, field))
    return found


def _number(token: Token, sign: str = "") -> Literal:
    text = token.text
    if "e" in text.lower():
        return Literal(token.place, DOUBLE, float(sign + text))
    if len(text.replace(".", "")) > MOST_DIGITS:
        raise Unreadable(token.place, f"a number has at most {MOST_DIGITS} digits")
    if "." in text:
        value = Decimal(sign + text)
        scale = -int(value.as_tuple().exponent)
        digits = max(len(value.as_tuple().digits), scale, 1)
        return Literal(token.place, Type("DECIMAL", digits, scale), value)
    whole = int(sign + text)
    if not -(2**63) <= whole < 2**63:
        return Literal(token.place, Type("DECIMAL", len(text), 0), Decimal(whole))
    return Literal(token.place, INT if -(2**31) <= whole < 2**31 else BIGINT, whole)


def _primary(cursor: Cursor) -> Node:
    token = cursor.next
    if token.kind == "text":
        cursor.take()
        return Literal(token.place, STRING, token.text)
    if token.kind == "number":
        return _number(cursor.take())
    if token.says("("):
        return _bracketed(cursor)
    if token.says("*"):
        return Star(cursor.take().place)
    if token.kind == "quoted" or (token.kind == "word" and not token.says(*RESERVED)):
        return _named(cursor)
    special = _special(cursor)
    if special is None:
        cursor.fail(f"expected an expression, found {token}")
    return special


def _bracketed(cursor: Cursor) -> Node:
    cursor.take()
    if cursor.sees("SELECT"):
        cursor.fail("subqueries inside expressions are not supported")
    found = read_expression(cursor)
    if cursor.sees(","):
        return _rest(cursor, found)
    cursor.expect(")")
    return found


def _rest(cursor: Cursor, first: Node) -> Node:
    """`(a, b)` is a row."""
    items = [first]
    while cursor.takes(","):
        items.append(read_expression(cursor))
    cursor.expect(")")
    return Invoked(first.place, "ROW", tuple(items))


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
        return _case(cursor)
    if token.says("CAST"):
        return _cast(cursor)
    if token.says("INTERVAL"):
        return _interval(cursor)
    if token.says("LEFT", "RIGHT") and cursor.ahead(1).says("("):
        return _function(cursor, cursor.take())
    if token.says("ROW") and cursor.ahead(1).says("("):
        cursor.take()
        items = cursor.listed(lambda: read_expression(cursor))
        return Invoked(token.place, "ROW", items)
    if token.says("ARRAY", "MAP") and cursor.ahead(1).says("["):
        return _collection(cursor)
    return None


def _named(cursor: Cursor) -> Node:
    token = cursor.next
    word = token.text.upper() if token.kind == "word" else ""
    if word in ("DATE", "TIME", "TIMESTAMP") and cursor.ahead(1).kind == "text":
        return _time(cursor)
    if word == "TRY_CAST" and cursor.ahead(1).says("("):
        return _cast(cursor)
    if cursor.ahead(1).says("("):
        return _function(cursor, cursor.take())
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
    return Name(token.place, tuple(parts))


def _function(cursor: Cursor, token: Token) -> Node:
    name = token.text.upper()
    cursor.expect("(")
    if name in ("EXTRACT", "TRIM", "POSITION", "SUBSTRING", "FLOOR", "CEIL", "CEILING"):
        found = _with_words(cursor, token.place, name)
    elif name in ("TIMESTAMPADD", "TIMESTAMPDIFF"):
        found = _with_unit(cursor, token.place, name)
    elif name in JSON:
        found = read_json(cursor, token.place, name, read_expression)
    else:
        found = _plain(cursor, token.place, name)
    return found


def _plain(cursor: Cursor, place: Place, name: str) -> Node:
    distinct = cursor.takes("DISTINCT")
    arguments: list[Node] = []
    while not cursor.sees(")"):
        arguments.append(read_expression(cursor))
        if not cursor.takes(","):
            break
    cursor.expect(")")
    condition = None
    if cursor.takes("FILTER"):
        cursor.expect("(")
        cursor.expect("WHERE")
        condition = read_expression(cursor)
        cursor.expect(")")
    found = Invoked(place, name, tuple(arguments), distinct, condition)
    return read_over(cursor, found, read_expression) if cursor.sees("OVER") else found


def _with_words(cursor: Cursor, place: Place, name: str) -> Node:
    """Functions whose arguments are separated by words."""
    if name == "EXTRACT":
        unit = _unit(cursor, _PARTS)
        cursor.expect("FROM")
        arguments: tuple[Node, ...] = (unit, read_expression(cursor))
    elif name == "TRIM":
        arguments = _trimmed(cursor)
    elif name == "POSITION":
        part = _sum(cursor)
        cursor.expect("IN")
        arguments = (part, read_expression(cursor))
    elif name == "SUBSTRING":
        arguments = _substring(cursor)
    else:
        return _to_unit(cursor, place, "CEIL" if name == "CEILING" else name)
    cursor.expect(")")
    return Invoked(place, name, arguments)


def _trimmed(cursor: Cursor) -> tuple[Node, ...]:
    place, blank = cursor.place, Literal(cursor.place, STRING, " ")
    way = "BOTH"
    if cursor.next.says("BOTH", "LEADING", "TRAILING"):
        way = cursor.take().text.upper()
    said = Literal(place, STRING, way)
    if cursor.takes("FROM"):
        return said, blank, read_expression(cursor)
    first = read_expression(cursor)
    return (said, first, read_expression(cursor)) if cursor.takes("FROM") else (said, blank, first)


def _substring(cursor: Cursor) -> tuple[Node, ...]:
    arguments = [read_expression(cursor)]
    cursor.expect("FROM", ",")
    arguments.append(read_expression(cursor))
    if cursor.next.says("FOR", ","):
        cursor.take()
        arguments.append(read_expression(cursor))
    return tuple(arguments)


def _to_unit(cursor: Cursor, place: Place, name: str) -> Node:
    """FLOOR and CEIL of a number, or TO a unit."""
    given = read_expression(cursor)
    if cursor.takes("TO"):
        unit = _unit(cursor, UNITS)
        cursor.expect(")")
        return Invoked(place, f"{name} TO", (given, unit))
    cursor.expect(")")
    return Invoked(place, name, (given,))


def _with_unit(cursor: Cursor, place: Place, name: str) -> Node:
    unit = _unit(cursor, UNITS)
    cursor.expect(",")
    second = read_expression(cursor)
    cursor.expect(",")
    third = read_expression(cursor)
    cursor.expect(")")
    return Invoked(place, name, (unit, second, third))


def _unit(cursor: Cursor, units: tuple[str, ...]) -> Literal:
    token = cursor.take()
    word = token.text.upper().removesuffix("S") if token.kind == "word" else ""
    if word not in units:
        raise Unreadable(token.place, f"expected one of {', '.join(units)}, found {token}")
    return Literal(token.place, STRING, word)


def _case(cursor: Cursor) -> Node:
    place = cursor.take().place
    given = None if cursor.sees("WHEN") else read_expression(cursor)
    arms: list[Node] = []
    while cursor.takes("WHEN"):
        test = read_expression(cursor)
        arms.append(test if given is None else Invoked(test.place, "=", (given, test)))
        cursor.expect("THEN")
        arms.append(read_expression(cursor))
    if not arms:
        cursor.fail(f"expected WHEN, found {cursor.next}")
    other = read_expression(cursor) if cursor.takes("ELSE") else Literal(place, NULL, None)
    cursor.expect("END")
    return Invoked(place, "CASE", (*arms, other))


def _cast(cursor: Cursor) -> Node:
    token = cursor.take()
    cursor.expect("(")
    given = read_expression(cursor)
    cursor.expect("AS")
    wanted, _ = read_type(cursor)
    cursor.expect(")")
    return Casting(token.place, given, wanted, tries=token.says("TRY_CAST"))


def _collection(cursor: Cursor) -> Node:
    token = cursor.take()
    cursor.take()
    items: list[Node] = []
    while not cursor.sees("]"):
        items.append(read_expression(cursor))
        if not cursor.takes(","):
            break
    cursor.expect("]")
    return Invoked(token.place, token.text.upper(), tuple(items))


def _time(cursor: Cursor) -> Literal:
    token = cursor.take()
    text = cursor.take().text
    try:
        if token.says("DATE"):
            return Literal(token.place, DATE, parsed_date(text))
        digits = len(text.partition(".")[2])
        if token.says("TIME"):
            return Literal(token.place, Type("TIME", digits), parsed_time(text))
        return Literal(token.place, Type("TIMESTAMP", min(digits, 6)), parsed_moment(text))
    except ValueError as error:
        raise Unreadable(token.place, f"{token.text.upper()}: {error}") from None


def _interval(cursor: Cursor) -> Literal:
    """`INTERVAL '2' SECOND`, also with `(p)`; several units in one text are refused."""
    place = cursor.take().place
    sign = -1 if cursor.takes("-") else 1
    text = cursor.text("the number of an interval")
    unit = str(_unit(cursor, UNITS).value)
    if cursor.takes("("):
        cursor.number("digits")
        cursor.expect(")")
    if cursor.sees("TO"):
        cursor.fail("an interval has one unit: add several of them")
    if not _OF_INTERVAL.fullmatch(text.strip()):
        raise Unreadable(place, "an interval is a number and a unit: INTERVAL '2' SECOND")
    number = Decimal(text.strip())
    if unit in MONTHS:
        return Literal(place, MONTHS_TYPE, sign * int(number) * MONTHS[unit])
    return Literal(place, SECONDS_TYPE, int(sign * number * MILLIS[unit]))
