"""A whole text -> its statements, and where it cannot be understood."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.statements import Script
from dataflow_assets.languages.common.tokens import Place, Unreadable, tokens
from dataflow_assets.languages.sql.reader.read_queries import read_query, read_united
from dataflow_assets.languages.sql.reader.read_tables import (
    qualified_name,
    read_option,
    read_options,
    read_table,
)
from dataflow_assets.languages.sql.reader.refusals import ELSEWHERE, refusal
from dataflow_assets.languages.sql.reader.syntax import (
    FlinkInsert,
    Option,
    Remark,
    Set,
    Statement,
    View,
)

_BEGINS = ("CREATE", "INSERT", "EXECUTE", "BEGIN", "SET")
_REFUSED = {
    "DROP": "a file declares tables and flows: leave out what is dropped",
    "ALTER": "write the table as it is to be",
    "DELETE": "rows are deleted by what their source says",
    "UPDATE": "rows are changed by what their source says",
    "TRUNCATE": "`dataflow run --from earliest --table truncate` begins again",
    "SELECT": "a query is of use in an INSERT INTO or a CREATE VIEW; `dataflow preview` shows rows",
    "LOAD": "the functions that are known are built in",
    "ANALYZE": "there is no optimizer to inform",
    "WITH": "write it behind INSERT INTO and the table, or a CREATE VIEW for each of its queries",
    "CALL": "there are no procedures here",
    "COMPILE": "the page of the asset shows the plan of its INSERT",
    "STOP": "SET 'dataflow.suspended' = 'true'; in front of the INSERT stops its flow",
}
_NAMED = ("TABLE", "VIEW")
_DROPPED = ("TABLE", "VIEW", "DATABASE", "CATALOG", "FUNCTION")
_APART = frozenset({*_BEGINS, *_REFUSED} - {"SET", "ALTER"})
"""What begins statements that no other one depends on, but by the name that they declare."""
_WITHOUT_EFFECT = ("USE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "RESET", "ADD", "REMOVE", "QUIT")


def read_script(text: str) -> Script[Statement]:
    """All statements that can be read, and what is wrong with each of the others."""
    script = Script[Statement]()
    try:
        cursor = Cursor(list(tokens(text)), ELSEWHERE)
    except Unreadable as error:
        script.problems.append((error.place, error.message))
        return script
    lines = text.split("\n")  # as tokens count them: no other sign ends a line
    while cursor.next.kind != "end":
        if cursor.takes(";") or _of_set(cursor):
            continue
        begin = cursor.copy()
        try:
            statements = [*_statement(cursor, lines)]
            if cursor.next.says(*_BEGINS):
                message = f"put a `;` before {cursor.next.text.upper()}: a statement begins here"
                script.problems.append((cursor.place, message))
            else:
                cursor.expect_end()
            script.statements += statements
        except Unreadable as error:
            script.problems.append((error.place, error.message))
            script.broken |= _subjects(begin.copy())
            if not begin.next.says(*_APART) and not _subjects(begin.copy()):
                script.unclear.append(begin.place)
            cursor.skip_statement()
    return script


def _subjects(cursor: Cursor) -> set[str]:
    """The table or view that a statement creates or alters, as far as it has a name."""
    if not cursor.takes("CREATE") and not cursor.takes("ALTER"):
        return set()
    cursor.takes("OR", "REPLACE")
    cursor.takes("TEMPORARY")
    if not any(map(cursor.takes, _NAMED)):
        return set()
    if not cursor.takes("IF", "NOT", "EXISTS"):
        cursor.takes("IF", "EXISTS")
    try:
        return {qualified_name(cursor)}
    except Unreadable:
        return set()


def _of_set(cursor: Cursor) -> bool:
    """Takes what is around the INSERTs of a statement set: each is a flow all the same."""
    if cursor.sees("BEGIN", ";"):
        return cursor.takes("BEGIN")
    starts = cursor.takes("EXECUTE", "STATEMENT", "SET", "BEGIN")
    return starts or cursor.takes("BEGIN", "STATEMENT", "SET") or cursor.takes("END")


def _statement(cursor: Cursor, lines: list[str]) -> Iterator[Statement]:
    token = cursor.next
    word = token.text.upper() if token.kind == "word" else ""
    if word == "CREATE":
        yield _create(cursor, lines)
    elif word == "SET" and not (cursor.ahead(1).says(";") or cursor.ahead(1).kind == "end"):
        yield Set(_setting(cursor))
    elif word in ("INSERT", "EXECUTE"):
        cursor.takes("EXECUTE")
        yield _insert(cursor, lines)
    elif word == "SET" or word in _WITHOUT_EFFECT:
        yield _remark(cursor, f"{word} has no effect here")
    elif _drops(cursor):
        yield _remark(
            cursor, "DROP has no effect here: nothing is deleted, and what is declared stays so"
        )
    elif word in _REFUSED:
        raise Unreadable(token.place, f"{word} is not supported: {_REFUSED[word]}")
    elif word == "BEGIN":
        raise Unreadable(token.place, "INSERTs are put together by BEGIN STATEMENT SET; ... END;")
    else:
        advice = f"; {suggest(word, _BEGINS)}" if word else ""
        raise Unreadable(token.place, f"expected a statement, found {token}{advice}")


def _remark(cursor: Cursor, message: str) -> Remark:
    place = cursor.place
    while not cursor.at_end:
        cursor.take()
    return Remark(place, message)


def _drops(cursor: Cursor) -> bool:
    what = cursor.ahead(2 if cursor.ahead(1).says("TEMPORARY") else 1)
    return cursor.sees("DROP") and what.says(*_DROPPED)


def _create(cursor: Cursor, lines: list[str]) -> Statement:
    begin = cursor.copy()
    cursor.take()
    cursor.takes("TEMPORARY")
    token = cursor.next
    if cursor.takes("TABLE"):
        return read_table(cursor)
    if cursor.takes("VIEW"):
        return _view(cursor, lines)
    word = token.text.upper()
    if word in ("FUNCTION", "SYSTEM"):
        cursor.fail("CREATE FUNCTION is not supported: classes of Java are not run")
    if word == "DATABASE" or (word == "CATALOG" and _in_memory(cursor.copy())):
        message = f"CREATE {word} has no effect here: a name in front of a table's is ignored"
        while not cursor.at_end:
            cursor.take()
        return Remark(begin.place, message)
    if word in ("CATALOG", "MATERIALIZED"):
        cursor.fail(f"CREATE {refusal(word)}")
    if word in ("MODEL", "CONNECTION"):
        cursor.fail(f"CREATE {word} is not supported: no function or table here uses one")
    if cursor.sees("OR", "REPLACE"):
        cursor.fail("OR REPLACE is not supported: leave it out, a file declares each table once")
    return cursor.fail(f"expected TABLE or VIEW, found {token}")


def _in_memory(cursor: Cursor) -> bool:
    while not (cursor.at_end or cursor.sees("WITH")):
        cursor.take()
    options = read_options(cursor) if cursor.takes("WITH") else ()
    return any((one.key, one.value) == ("type", "generic_in_memory") for one in options)


def _named_queries(cursor: Cursor, lines: list[str]) -> tuple[View, ...]:
    if not cursor.takes("WITH"):
        return ()
    if cursor.sees("RECURSIVE"):
        cursor.fail("WITH RECURSIVE is not supported: a query cannot read its own rows")
    return cursor.items(lambda it: _one_named(it, lines))


def _one_named(cursor: Cursor, lines: list[str]) -> View:
    place, name = cursor.place, cursor.name("the name of a query")
    columns = cursor.list_of(lambda it: it.name("a column")) if cursor.sees("(") else ()
    cursor.expect("AS")
    cursor.expect("(")
    begin = cursor.place
    query = read_query(cursor)
    text = _text_between(lines, begin, cursor.place)
    cursor.expect(")")
    return View(place, name, columns, query, text)


def _view(cursor: Cursor, lines: list[str]) -> View:
    exists = cursor.takes("IF", "NOT", "EXISTS")
    place, name = cursor.place, qualified_name(cursor)
    columns = cursor.list_of(lambda it: it.name("a column")) if cursor.sees("(") else ()
    if cursor.takes("COMMENT"):
        cursor.text("a comment")
    cursor.expect("AS")
    begin, named = cursor.place, _named_queries(cursor, lines)
    query = read_query(cursor)
    text = _text_between(lines, begin, cursor.place)
    return View(place, name, columns, query, text, exists, named)


def _insert(cursor: Cursor, lines: list[str]) -> FlinkInsert:
    place = cursor.expect("INSERT").place
    if cursor.sees("OVERWRITE"):
        cursor.fail("INSERT OVERWRITE is not supported, as Flink has it for no topic: INSERT INTO")
    cursor.expect("INTO")
    table_place, table = cursor.place, qualified_name(cursor)
    columns: tuple[str, ...] = ()
    if cursor.sees("(") and not cursor.ahead(1).says("SELECT"):
        columns = cursor.list_of(lambda it: it.name("a column"))
    common_queries = _named_queries(cursor, lines)
    queries = read_united(cursor)
    _conflict(cursor)
    text = _text_between(lines, place, cursor.place)
    return FlinkInsert(place, table, table_place, columns, queries, text, common_queries)


def _conflict(cursor: Cursor) -> None:
    """DEDUPLICATE is what happens: the last row of a key counts."""
    if cursor.takes("ON", "CONFLICT"):
        cursor.expect("DO")
        if cursor.next.says("NOTHING", "ERROR"):
            cursor.fail(
                f"{cursor.next.text.upper()} is not supported: the last row of a key counts"
            )
        cursor.expect("DEDUPLICATE")


def _setting(cursor: Cursor) -> Option:
    """`SET 'k' = 'v'`, or without quotes as older files have it."""
    cursor.take()
    if cursor.next.kind == "text":
        return read_option(cursor)
    token = cursor.next
    if token.kind != "word":
        raise Unreadable(token.place, f"expected an option in quotes, found {token}")
    cursor.take()
    place, key = token.place, token.text
    while cursor.next.says(".", "-"):
        key += cursor.take().text + cursor.take().text
    cursor.expect("=")
    at, value = cursor.place, ""
    while not cursor.at_end:
        value += cursor.take().text
    return Option(place, at, key, value)


def _text_between(lines: list[str], begin: Place, end: Place) -> str:
    if begin.line == end.line:
        return lines[begin.line - 1][begin.column - 1 : end.column - 1].strip()
    first = lines[begin.line - 1][begin.column - 1 :]
    last = lines[end.line - 1][: end.column - 1] if end.line <= len(lines) else ""
    return "\n".join([first, *lines[begin.line : end.line - 1], last]).strip()
