"""ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...)."""

from __future__ import annotations

from collections.abc import Callable

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.sql.reader.refusals import OVER
from dataflow_assets.languages.sql.reader.syntax import FlinkNumbered, Invoked, Node, Ordered

Read = Callable[[Cursor], Node]


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
