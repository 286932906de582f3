"""SELECT. What cannot run yet is read over, and refused where it is."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.languages.common.cursor import RESERVED, Cursor
from dataflow_assets.languages.common.tokens import Place, Unreadable, tokens
from dataflow_assets.languages.sql.engine.aggregates import AGGREGATES
from dataflow_assets.languages.sql.reader.read_expressions import read_expression
from dataflow_assets.languages.sql.reader.read_tables import (
    qualified_name,
    read_alias,
    read_options,
)
from dataflow_assets.languages.sql.reader.read_windows import read_window, sees_window
from dataflow_assets.languages.sql.reader.refusals import refusal, refused_aggregate
from dataflow_assets.languages.sql.reader.syntax import (
    FlinkReference,
    FlinkUnnestedJoin,
    Invoked,
    Literal,
    Node,
    Option,
    Query,
    Select,
    Selected,
    United,
    Windowed,
)

_NO_AGGREGATES = """
LISTAGG STRING_AGG COLLECT ARRAY_AGG FIRST_VALUE LAST_VALUE STDDEV_POP STDDEV_SAMP VAR_POP VAR_SAMP
STDDEV VARIANCE APPROX_COUNT_DISTINCT JSON_OBJECTAGG JSON_ARRAYAGG SINGLE_VALUE
"""
NO_AGGREGATES = frozenset(_NO_AGGREGATES.split())
"""Aggregates of Flink's that are not computed here."""
_CLAUSES = ("ORDER", "LIMIT", "FETCH", "OFFSET", "WINDOW", "QUALIFY")
_SETS = ("UNION", "EXCEPT", "INTERSECT", "MINUS")
_OF_ARRAYS = ("UNNEST", "LATERAL")
_WORDS = (",", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
_WITHOUT_ON = ((",",), ("CROSS", "JOIN"))
_OUTER = (("LEFT", "JOIN"), ("LEFT", "OUTER", "JOIN"))
_WITH_ON = (("JOIN",), ("INNER", "JOIN"), *_OUTER)


def read_query(cursor: Cursor) -> Query:
    """A query. Raises Unreadable where nothing behind a place can be understood."""
    query = read_united(cursor)
    return query[0] if len(query) == 1 else United(query[0].place, query)


def read_united(cursor: Cursor) -> tuple[Select, ...]:
    """Queries, between which UNION ALL is. Raises Unreadable."""
    query = _brackets(cursor)
    while cursor.takes("UNION", "ALL"):
        query += _brackets(cursor)
    if cursor.next.says(*_SETS):
        cursor.fail(refusal(cursor.next.text.upper()))
    return query


def _brackets(cursor: Cursor) -> tuple[Select, ...]:
    if cursor.sees("WITH"):
        cursor.fail(refusal("WITH"))
    if cursor.sees("VALUES"):
        cursor.fail(refusal("VALUES"))
    if not cursor.takes("("):
        return (_select(cursor),)
    query = read_united(cursor)
    cursor.expect(")")
    return query


def _select(cursor: Cursor) -> Select:
    place = cursor.expect("SELECT").place
    refused: list[tuple[Place, str]] = []
    distinct = cursor.take().place if cursor.sees("DISTINCT") else None
    cursor.takes("ALL")
    items = cursor.items(_item)
    if not cursor.takes("FROM"):
        cursor.fail(f"expected , or FROM, found {cursor.next}")
    source, alias = _source(cursor)
    unnested = tuple(read_joins(cursor))
    where = read_expression(cursor) if cursor.takes("WHERE") else None
    groups = _groups(cursor) if cursor.takes("GROUP", "BY") else None
    having = read_expression(cursor) if cursor.takes("HAVING") else None
    refused += _clauses(cursor)
    nodes = [one.node for one in items] + [one for one in (where, having) if one is not None]
    refused += [one for node in nodes for one in _aggregates(node)]
    return Select(
        place=place,
        items=items,
        source=source,
        alias=alias,
        where=where,
        groups=groups,
        having=having,
        distinct=distinct,
        refused=tuple(refused),
        unnested=unnested,
    )


def _groups(cursor: Cursor) -> tuple[Node, ...]:
    """The expressions of GROUP BY; `GROUP BY ()` has none."""
    if cursor.next.says("GROUPING", "ROLLUP", "CUBE") and cursor.ahead(1).says("(", "SETS"):
        cursor.fail(refusal(cursor.next.text.upper()))
    if cursor.takes("(", ")"):
        return ()
    return cursor.items(read_expression)


def _item(cursor: Cursor) -> Selected:
    node = read_expression(cursor)
    if cursor.takes("AS"):
        return Selected(node, cursor.name("the name of a column"))
    token = cursor.next
    if token.kind == "quoted" or (token.kind == "word" and token.text.upper() not in RESERVED):
        return Selected(node, cursor.take().text)
    return Selected(node)


def _source(cursor: Cursor) -> tuple[FlinkReference | Query | Windowed, str | None]:
    token = cursor.next
    source: FlinkReference | Query | Windowed
    if token.says("(") and cursor.ahead(1).says("SELECT", "("):
        cursor.take()
        source = read_query(cursor)
        cursor.expect(")")
    elif token.says("(") and cursor.ahead(1).says("VALUES"):
        cursor.fail(refusal("VALUES"))
    elif sees_window(cursor):
        source = read_window(cursor)
    elif token.says(*_OF_ARRAYS):
        cursor.fail(refusal(token.text.upper()))
    else:
        source = FlinkReference(token.place, qualified_name(cursor), options=())
    if cursor.sees("FOR"):
        cursor.fail(refusal("a temporal join"))
    options = _hint(cursor) if cursor.next.kind == "hint" else ()
    if cursor.sees("MATCH_RECOGNIZE", "("):
        cursor.fail(refusal("MATCH_RECOGNIZE"))
    alias = read_alias(cursor)
    if isinstance(source, FlinkReference):
        source = FlinkReference(source.place, source.table, alias, options)
    return source, alias


def _hint(cursor: Cursor) -> tuple[Option, ...]:
    """`/*+ OPTIONS('k' = 'v') */`; its places are those of the hint."""
    token = cursor.take()
    try:
        inner = Cursor(list(tokens(token.text[3:-2])))
        inner.expect("OPTIONS")
        return read_options(inner)
    except Unreadable as error:
        raise Unreadable(token.place, error.message) from None


def _clauses(cursor: Cursor) -> Iterator[tuple[Place, str]]:
    while cursor.next.says(*_CLAUSES):
        token = cursor.take()
        word = token.text.upper()
        yield token.place, refusal("ORDER BY" if word == "ORDER" else word)
        depth = 0
        while not (cursor.next.kind == "end" or cursor.sees(";")):
            if depth == 0 and cursor.next.says(")", *_CLAUSES, *_SETS):
                break
            depth += cursor.next.says("(") - cursor.next.says(")")
            cursor.take()


def _aggregates(node: Node) -> Iterator[tuple[Place, str]]:
    if not isinstance(node, Invoked):
        inner = getattr(node, "given", None)
        yield from _aggregates(inner) if inner is not None else ()
        return
    if node.name in NO_AGGREGATES:
        yield node.place, refused_aggregate(node.name, AGGREGATES)
        return
    for one in node.arguments:
        yield from _aggregates(one)


def read_joins(cursor: Cursor) -> Iterator[FlinkUnnestedJoin]:
    """The joins behind a table. Raises Unreadable for those that are not of a row with itself."""
    while cursor.next.says(*_WORDS):
        yield _join(cursor)


def _join(cursor: Cursor) -> FlinkUnnestedJoin:
    ahead = cursor.copy()
    windows: list[str] = []
    while ahead.next.says(*_WORDS, "OUTER"):
        windows.append(ahead.take().text.upper())
    kind = tuple(windows)
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
