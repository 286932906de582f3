"""CREATE PROCEDURE: a batch as its parameter, and INSERTs of it as its body."""

from __future__ import annotations

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.pipelines.reader.read_expressions import read_expression, read_name
from dataflow_assets.languages.pipelines.reader.read_tables import plain_name, read_type
from dataflow_assets.languages.pipelines.reader.syntax import (
    CreateProcedure,
    Node,
    PipelineColumnDefinition,
    PipelineInsert,
    PipelineName,
)

_CONTROL = {
    "DECLARE": "variables",
    "IF": "control flow",
    "LOOP": "control flow",
    "WHILE": "control flow",
    "FOR": "control flow",
    "CASE": "control flow",
    "RETURN": "control flow",
    "CALL": "a call of another procedure",
    "COLLECT": "rows in a variable",
    "ECHO": "an output",
    "EXECUTE": "statements that are made as text",
    "EXCEPTION": "the handling of errors",
    "RAISE": "an error of its own",
    "START": "a transaction of its own",
    "COMMIT": "a transaction of its own",
    "ROLLBACK": "a transaction of its own",
    "UPDATE": "a change of stored rows",
    "DELETE": "a change of stored rows",
    "REPLACE": "a change of stored rows",
    "MERGE": "a change of stored rows",
    "TRUNCATE": "a change of stored rows",
}
ALLOWED = "the body must be INSERT INTO ... SELECT ... FROM the batch"
_CLAUSES = {
    "WHERE": "a condition",
    "GROUP": "an aggregate",
    "ORDER": "an order",
    "LIMIT": "a limit",
    "HAVING": "an aggregate",
    "JOIN": "a join",
    "INNER": "a join",
    "LEFT": "a join",
    "CROSS": "a join",
    "UNION": "a union",
}


def read_procedure(cursor: Cursor) -> CreateProcedure:
    """Reads on after CREATE [OR REPLACE] PROCEDURE. Raises Unreadable at what is not supported."""
    place, name = cursor.place, plain_name(cursor, "a procedure")
    cursor.expect("(")
    batch = read_name(cursor, "the parameter of the batch")
    if not cursor.takes("QUERY"):
        cursor.fail("the one parameter of a pipeline's procedure must be QUERY(column TYPE, ...)")
    columns = cursor.list_of(_parameter)
    if cursor.takes(","):
        cursor.fail("a pipeline's procedure has one parameter, its batch")
    cursor.expect(")")
    if cursor.takes("RETURNS"):
        cursor.expect("VOID")
    cursor.expect("AS")
    _check_control(cursor)
    cursor.expect("BEGIN")
    inserts: list[PipelineInsert] = []
    while not cursor.sees("END"):
        inserts.append(_insert(cursor, batch))
        cursor.expect(";")
    if not inserts:
        cursor.fail(f"the procedure does nothing: {ALLOWED}")
    cursor.take()
    return CreateProcedure(place, name, batch, columns, tuple(inserts))


def _parameter(cursor: Cursor) -> PipelineColumnDefinition:
    column = PipelineColumnDefinition(read_name(cursor, "a column"), read_type(cursor))
    if cursor.takes("NOT"):
        cursor.expect("NULL")
    cursor.takes("NULL")
    return column


def _check_control(cursor: Cursor) -> None:
    word = cursor.next.text.upper() if cursor.next.kind == "word" else ""
    if word in _CONTROL:
        cursor.fail(f"{word} in a procedure is not supported ({_CONTROL[word]}): {ALLOWED}")


def _insert(cursor: Cursor, batch: PipelineName) -> PipelineInsert:
    _check_control(cursor)
    place = cursor.expect("INSERT").place
    if cursor.next.says("IGNORE"):
        cursor.fail("INSERT IGNORE is not supported: a row that cannot be stored is reported")
    cursor.expect("INTO")
    table = plain_name(cursor, "a table")
    columns = (
        cursor.list_of(lambda it: read_name(it, "a column"))
        if cursor.sees("(") and not cursor.ahead(1).says("SELECT")
        else ()
    )
    if not cursor.sees("SELECT"):
        cursor.fail(f"expected SELECT, found {cursor.next}: {ALLOWED}")
    cursor.take()
    if cursor.next.says("DISTINCT"):
        cursor.fail(f"DISTINCT is not supported: {ALLOWED}, row by row")
    selected = cursor.items(_item)
    _source(cursor, batch)
    return PipelineInsert(place, table, columns, selected, _update(cursor))


def _update(cursor: Cursor) -> tuple[PipelineName, ...] | None:
    """ON DUPLICATE KEY UPDATE c = VALUES(c), ..."""
    if not cursor.takes("ON"):
        return None
    for word in ("DUPLICATE", "KEY", "UPDATE"):
        cursor.expect(word)
    return cursor.items(_own_value)


def _own_value(cursor: Cursor) -> PipelineName:
    column = read_name(cursor, "a column")
    cursor.expect("=")
    place = cursor.place
    if cursor.takes("VALUES", "("):
        value = read_name(cursor, "a column")
        cursor.expect(")")
        if value.text.lower() == column.text.lower():
            return column
    message = f"only {column.text} = VALUES({column.text}) is supported: the new row counts"
    raise Unreadable(place, message)


def _item(cursor: Cursor) -> Node:
    if cursor.next.says("*"):
        cursor.fail("* is not supported: name the columns")
    node = read_expression(cursor)
    if cursor.takes("AS") or cursor.next.kind == "quoted":
        read_name(cursor, "a name")
    elif cursor.next.kind == "word" and not cursor.next.says("FROM", "ON", *_CLAUSES):
        cursor.take()
    return node


def _source(cursor: Cursor, batch: PipelineName) -> None:
    cursor.expect("FROM")
    name = read_name(cursor, "the batch")
    if name.text.lower() != batch.text.lower():
        cursor.fail(f"a procedure reads its batch, {batch.text}, and no table: {ALLOWED}")
    if cursor.next.kind == "word" and not cursor.next.says("ON", *_CLAUSES):
        cursor.takes("AS")
        read_name(cursor, "a name")
    word = cursor.next.text.upper()
    if word in _CLAUSES:
        cursor.fail(
            f"{word} in a procedure is not supported ({_CLAUSES[word]}): each row of the batch "
            "becomes one row"
        )
