"""Functions as they are written: names with arguments, CASE, CAST, ARRAY and MAP."""

from __future__ import annotations

from collections.abc import Callable

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.tokens import Place, Token
from dataflow_assets.languages.sql.engine.functions.moments import UNITS
from dataflow_assets.languages.sql.engine.types import NULL, STRING
from dataflow_assets.languages.sql.reader.read_json import NAMES as JSON
from dataflow_assets.languages.sql.reader.read_json import read_json
from dataflow_assets.languages.sql.reader.read_literals import read_unit
from dataflow_assets.languages.sql.reader.read_types import read_type
from dataflow_assets.languages.sql.reader.refusals import OVER
from dataflow_assets.languages.sql.reader.syntax import (
    Casting,
    FlinkNumbered,
    Invoked,
    Literal,
    Node,
    Ordered,
)

_PARTS = (*UNITS, "MILLISECOND", "DOY", "DOW")
Read = Callable[[Cursor], Node]


def read_function(cursor: Cursor, token: Token, read: Read, operand: Read) -> Node:
    """A function from its parenthesis on. Raises Unreadable.

    Args:
        cursor: behind its name.
        token: the name.
        read: reads an expression.
        operand: reads what may be in front of IN.
    """
    name = token.text.upper()
    cursor.expect("(")
    if name in ("EXTRACT", "TRIM", "POSITION", "SUBSTRING", "FLOOR", "CEIL", "CEILING"):
        node = _with_words(cursor, token.place, name, read, operand)
    elif name in ("TIMESTAMPADD", "TIMESTAMPDIFF"):
        unit = read_unit(cursor, UNITS)
        cursor.expect(",")
        second = read(cursor)
        cursor.expect(",")
        third = read(cursor)
        cursor.expect(")")
        node = Invoked(token.place, name, (unit, second, third))
    elif name in JSON:
        node = read_json(cursor, token.place, name, read)
    else:
        node = _plain(cursor, token.place, name, read)
    return node


def _plain(cursor: Cursor, place: Place, name: str, read: Read) -> Node:
    distinct = cursor.takes("DISTINCT")
    arguments = cursor.until(")", read)
    condition = None
    if cursor.takes("FILTER"):
        cursor.expect("(")
        cursor.expect("WHERE")
        condition = read(cursor)
        cursor.expect(")")
    node = Invoked(place, name, arguments, distinct, condition)
    return read_over(cursor, node, read) if cursor.sees("OVER") else node


def _with_words(cursor: Cursor, place: Place, name: str, read: Read, operand: Read) -> Node:
    """Functions whose arguments are separated by words."""
    if name == "EXTRACT":
        unit = read_unit(cursor, _PARTS)
        cursor.expect("FROM")
        arguments: tuple[Node, ...] = (unit, read(cursor))
    elif name == "TRIM":
        arguments = _trim(cursor, read)
    elif name == "POSITION":
        part = operand(cursor)
        cursor.expect("IN")
        arguments = (part, read(cursor))
    elif name == "SUBSTRING":
        arguments = _substring(cursor, read)
    else:
        return _to_unit(cursor, place, "CEIL" if name == "CEILING" else name, read)
    cursor.expect(")")
    return Invoked(place, name, arguments)


def _trim(cursor: Cursor, read: Read) -> tuple[Node, ...]:
    place, blank = cursor.place, Literal(cursor.place, STRING, " ")
    way = "BOTH"
    if cursor.next.says("BOTH", "LEADING", "TRAILING"):
        way = cursor.take().text.upper()
    side = Literal(place, STRING, way)
    if cursor.takes("FROM"):
        return side, blank, read(cursor)
    first = read(cursor)
    return (side, first, read(cursor)) if cursor.takes("FROM") else (side, blank, first)


def _substring(cursor: Cursor, read: Read) -> tuple[Node, ...]:
    arguments = [read(cursor)]
    cursor.expect("FROM", ",")
    arguments.append(read(cursor))
    if cursor.next.says("FOR", ","):
        cursor.take()
        arguments.append(read(cursor))
    return tuple(arguments)


def _to_unit(cursor: Cursor, place: Place, name: str, read: Read) -> Node:
    """FLOOR and CEIL of a number, or TO a unit."""
    inner = read(cursor)
    if cursor.takes("TO"):
        unit = read_unit(cursor, UNITS)
        cursor.expect(")")
        return Invoked(place, f"{name} TO", (inner, unit))
    cursor.expect(")")
    return Invoked(place, name, (inner,))


def read_case(cursor: Cursor, read: Read) -> Node:
    place = cursor.take().place
    value = None if cursor.sees("WHEN") else read(cursor)
    arms: list[Node] = []
    while cursor.takes("WHEN"):
        test = read(cursor)
        arms.append(test if value is None else Invoked(test.place, "=", (value, test)))
        cursor.expect("THEN")
        arms.append(read(cursor))
    if not arms:
        cursor.fail(f"expected WHEN, found {cursor.next}")
    other = read(cursor) if cursor.takes("ELSE") else Literal(place, NULL, None)
    cursor.expect("END")
    return Invoked(place, "CASE", (*arms, other))


def read_cast(cursor: Cursor, read: Read) -> Node:
    token = cursor.take()
    cursor.expect("(")
    value = read(cursor)
    cursor.expect("AS")
    wanted, _ = read_type(cursor)
    cursor.expect(")")
    return Casting(token.place, value, wanted, tries=token.says("TRY_CAST"))


def read_collection(cursor: Cursor, read: Read) -> Node:
    token = cursor.take()
    cursor.take()
    return Invoked(token.place, token.text.upper(), cursor.until("]", read))


def read_over(cursor: Cursor, function: Invoked, read: Read) -> FlinkNumbered:
    """Returns what is behind a function from OVER on. Raises Unreadable.

    Args:
        cursor: at OVER.
        function: what is numbered by.
        read: reads an expression.
    """
    if function.name != "ROW_NUMBER" or function.arguments or function.distinct:
        cursor.fail(OVER)
    if function.condition is not None:
        cursor.fail("ROW_NUMBER() takes no FILTER")
    cursor.take()
    cursor.expect("(")
    partition = cursor.items(read) if cursor.takes("PARTITION", "BY") else ()
    if not cursor.takes("ORDER", "BY"):
        cursor.fail(f"expected ORDER BY, found {cursor.next}: ROW_NUMBER() needs an order")
    order = cursor.items(lambda it: _order(it, read))
    if cursor.next.says("ROWS", "RANGE"):
        cursor.fail("ROW_NUMBER() takes no range of rows")
    cursor.expect(")")
    return FlinkNumbered(function.place, partition, order)


def _order(cursor: Cursor, read: Read) -> Ordered:
    """Null is the smallest value, unless NULLS FIRST or NULLS LAST says otherwise."""
    node = read(cursor)
    descending = cursor.takes("DESC")
    if not descending:
        cursor.takes("ASC")
    nulls_first = not descending
    if cursor.takes("NULLS"):
        nulls_first = cursor.expect("FIRST", "LAST").text.upper() == "FIRST"
    return Ordered(node, descending, nulls_first)
