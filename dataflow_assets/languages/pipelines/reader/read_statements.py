"""A whole text -> its statements, and where it cannot be understood."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.statements import Script
from dataflow_assets.languages.common.tokens import SINGLESTORE, Token, Unreadable, tokens
from dataflow_assets.languages.pipelines.reader import read_pipelines, read_tables
from dataflow_assets.languages.pipelines.reader.read_expressions import read_name
from dataflow_assets.languages.pipelines.reader.read_procedures import read_procedure
from dataflow_assets.languages.pipelines.reader.syntax import Noted, SetGlobal, Statement, Use

_PREVIEW = (
    "`dataflow preview` shows rows and stores nothing; for another class than that of Kinesis, "
    "which would be informed that its records are stored, it needs records: --input FILE"
)
_NOTED = {
    "TEST": _PREVIEW,
    "PROFILE": "`dataflow status` and the asset's metadata have figures",
    "EXTRACT": _PREVIEW,
    "SHOW": "`dataflow status` and `dataflow check` show what there is",
    "DESCRIBE": "`dataflow check` shows what there is",
    "DESC": "`dataflow check` shows what there is",
    "EXPLAIN": "`dataflow check` shows what there is",
    "SELECT": "rows are read in the target itself",
    "CLEAR": "errors stay where they are stored, until they are replayed",
    "ANALYZE": "it is of SingleStore's own tables",
    "OPTIMIZE": "it is of SingleStore's own tables",
    "GRANT": "who may do what is said in the target",
    "REVOKE": "who may do what is said in the target",
    "FLUSH": "it is of SingleStore's own tables",
}
_REFUSED = {
    "INSERT": "rows come from pipelines alone",
    "REPLACE": "rows come from pipelines alone",
    "UPDATE": "rows come from pipelines alone",
    "DELETE": "rows come from pipelines alone",
    "TRUNCATE": "`dataflow run --from earliest --table truncate` begins again",
    "CALL": "a procedure runs for the batches of its pipeline",
    "LOAD": "CREATE PIPELINE loads data",
    "INFER": "write CREATE INFERRED PIPELINE",
    "DETACH": "write STOP PIPELINE",
}
_APART = frozenset({"CREATE", "START", "SET", *_REFUSED} - {"DETACH"})
"""What begins statements that no other one depends on, but by the name that they declare."""
_NAMED = ("TABLE", "PIPELINE", "PROCEDURE")
_RUN = ("CREATE", "ALTER", "START", "STOP", "DROP", "USE", "SET")
_DELIMITER = re.compile(r"^[ \t]*DELIMITER[ \t]+(\S+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


def read_script(text: str) -> Script[Statement]:
    """All statements that can be read, and what is wrong with each of the others."""
    script = Script[Statement]()
    try:
        cursor = Cursor(read_tokens(text))
    except Unreadable as error:
        script.problems.append((error.place, error.message))
        return script
    while cursor.next.kind != "end":
        if cursor.takes(";"):
            continue
        procedure, begin = _is_procedure(cursor), cursor.copy()
        try:
            statements = [*_statement(cursor)]
            cursor.expect_end()
            script.statements += statements
        except Unreadable as error:
            script.problems.append((error.place, error.message))
            script.broken |= _subjects(begin.copy())
            if not begin.next.says(*_APART) and not _subjects(begin.copy()):
                script.unclear.append(begin.place)
            _skip(cursor, procedure=procedure)
    return script


def _subjects(cursor: Cursor) -> set[str]:
    """The table, procedure or pipeline that a statement creates or changes, as far as named."""
    if not any(map(cursor.takes, ("CREATE", "ALTER", "STOP", "DROP", "DETACH"))):
        return set()
    cursor.takes("OR", "REPLACE")
    for word in ("INFERRED", "ROWSTORE"):
        cursor.takes(word)
    if not any(map(cursor.takes, _NAMED)):
        return set()
    if not cursor.takes("IF", "NOT", "EXISTS"):
        cursor.takes("IF", "EXISTS")
    return {cursor.next.text.lower()} if cursor.next.kind in ("word", "quoted") else set()


def _is_procedure(cursor: Cursor) -> bool:
    return cursor.sees("CREATE", "PROCEDURE") or cursor.sees("CREATE", "OR", "REPLACE", "PROCEDURE")


def _skip(cursor: Cursor, *, procedure: bool) -> None:
    """Goes on behind the statement; that of a procedure ends behind END and a semicolon."""
    while procedure and not _ends_procedure(cursor):
        cursor.take()
    cursor.skip_statement()


def _ends_procedure(cursor: Cursor) -> bool:
    """`END;`, and behind it the beginning of another statement, or the end of the text."""
    if cursor.next.kind == "end":
        return True
    after = cursor.ahead(2)
    another = after.kind == "end" or after.says(*_RUN, *_NOTED)
    return cursor.sees("END", ";") and another


def _statement(cursor: Cursor) -> Iterator[Statement]:
    token = cursor.next
    word = token.text.upper() if token.kind == "word" else ""
    if word == "CREATE":
        yield from _create(cursor)
    elif word == "ALTER":
        yield from _alter(cursor)
    elif word in ("START", "STOP"):
        yield read_pipelines.read_switch(cursor, cursor.take())
    elif word == "DROP":
        yield read_pipelines.read_drop(cursor, cursor.take())
    elif word == "USE":
        cursor.take()
        yield Use(cursor.place, read_name(cursor, "a target").text)
    elif word == "SET":
        yield _set(cursor)
    elif word in _NOTED:
        while not cursor.at_end:
            cursor.take()
        yield Noted(token.place, word, f"has no effect in a file: {_NOTED[word]}")
    elif word in _REFUSED:
        raise Unreadable(token.place, f"{word} is not supported: {_REFUSED[word]}")
    else:
        advice = f"; {suggest(word, (*_RUN, *_NOTED))}" if word else ""
        raise Unreadable(token.place, f"expected a statement, found {token}{advice}")


def _create(cursor: Cursor) -> Iterator[Statement]:
    first = cursor.take()
    replaces = cursor.takes("OR", "REPLACE")
    inferred = cursor.takes("INFERRED")
    if cursor.takes("PIPELINE"):
        made, notes = read_pipelines.read_create(
            cursor, first.place, replaces=replaces, inferred=inferred
        )
        yield made
        yield from notes
    elif cursor.takes("PROCEDURE"):
        yield read_procedure(cursor)
    elif cursor.takes("INDEX"):
        yield read_tables.read_index(cursor)
    else:
        yield from _create_table(cursor)


def _create_table(cursor: Cursor) -> Iterator[Statement]:
    token = cursor.next
    if cursor.next.says("UNIQUE"):
        cursor.fail("CREATE UNIQUE INDEX is not supported: rows are appended; write CREATE INDEX")
    if cursor.next.says("TEMPORARY", "GLOBAL", "REFERENCE"):
        cursor.fail(f"CREATE {token.text.upper()} is not supported")
    if cursor.takes("ROWSTORE"):
        yield Noted(token.place, "ROWSTORE", "has no effect: the target stores the table")
    if not cursor.takes("TABLE"):
        cursor.fail(
            f"CREATE {token} is not supported: allowed are TABLE, INDEX, PROCEDURE and PIPELINE"
        )
    table, notes = read_tables.read_table(cursor)
    yield table
    yield from notes


def _alter(cursor: Cursor) -> Iterator[Statement]:
    word = cursor.take()
    if cursor.takes("TABLE"):
        yield read_tables.read_alter_table(cursor)
    elif cursor.takes("PIPELINE"):
        altered, notes = read_pipelines.read_alter(cursor, word)
        yield altered
        yield from notes
    else:
        cursor.fail(f"ALTER {cursor.next} is not supported: allowed are TABLE and PIPELINE")


def _set(cursor: Cursor) -> Statement:
    """SET [GLOBAL | SESSION] key = value."""
    cursor.take()
    if not cursor.takes("GLOBAL") and not cursor.takes("SESSION"):
        while cursor.takes("@"):
            pass
    place, key = cursor.place, read_name(cursor, "a variable").text
    cursor.expect("=", ":=")
    token: Token = cursor.next
    if token.kind not in ("text", "number", "word"):
        cursor.fail(f"expected the value of {key}, found {token}")
    return SetGlobal(place, key.lower(), cursor.take().text)


def read_tokens(text: str) -> list[Token]:
    return list(tokens(_without_delimiters(text), SINGLESTORE))


def _without_delimiters(text: str) -> str:
    """`DELIMITER //` is for a client that cuts texts at it; every place stays where it is."""
    delimiters = list(_DELIMITER.finditer(text))
    for one, after in zip(delimiters, [*delimiters[1:], None], strict=False):
        begin, end = one.end(), after.start() if after else len(text)
        sign = one[1]
        part = text[begin:end]
        if sign != ";":
            ending = ";" + " " * (len(sign) - 1)
            part = re.sub(rf"{re.escape(sign)}(?=[ \t\r]*$)", ending, part, flags=re.MULTILINE)
        text = f"{text[: one.start()]}{' ' * (one.end() - one.start())}{part}{text[end:]}"
    return text
