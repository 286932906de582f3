"""CREATE TABLE, ALTER TABLE and CREATE INDEX."""

from __future__ import annotations

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.pipelines.reader.read_expressions import read_expression, read_name
from dataflow_assets.languages.pipelines.reader.syntax import (
    AddColumn,
    CreateIndex,
    CreateTable,
    Noted,
    PipelineColumnDefinition,
    PipelineName,
)
from dataflow_assets.languages.pipelines.rows.types import ALIASES, KINDS, PipelineType

_LAYOUT = ("SORT", "SHARD", "CLUSTERED")
_KEYS = ("PRIMARY", "UNIQUE", "FOREIGN", "CONSTRAINT", "KEY", "INDEX", "FULLTEXT")
_MOST_DIGITS = 38


def read_table(cursor: Cursor) -> tuple[CreateTable, tuple[Noted, ...]]:
    """Reads on after CREATE [ROWSTORE ...] TABLE: the table, and what is left out of it."""
    place = cursor.place
    exists = cursor.takes("IF", "NOT", "EXISTS")
    name = plain_name(cursor, "a table")
    notes: list[Noted] = []
    columns: list[PipelineColumnDefinition] = []
    key: tuple[PipelineName, ...] = ()
    cursor.expect("(")
    while True:
        if not key and cursor.takes("PRIMARY", "KEY"):
            key = cursor.list_of(lambda it: read_name(it, "a column"))
        else:
            entry = _entry(cursor, notes)
            columns += [entry] if entry else []
        if not cursor.takes(","):
            break
    cursor.expect(")")
    while not cursor.at_end:
        cursor.take()  # AUTOSTATS, COMMENT, COLLATE: of SingleStore's storage
    return CreateTable(place, name, tuple(columns), exists, key), tuple(notes)


def _entry(cursor: Cursor, notes: list[Noted]) -> PipelineColumnDefinition | None:
    token = cursor.next
    if token.kind == "word" and token.text.upper() in _LAYOUT:
        cursor.take()
        cursor.expect("KEY", "COLUMNSTORE")
        _skip_to_end_of_entry(cursor)
        message = "has no effect: it is how SingleStore lays out its own tables"
        notes.append(Noted(token.place, f"{token.text.upper()} KEY", message))
        return None
    if token.kind == "word" and token.text.upper() in _KEYS:
        cursor.fail(
            f"{token.text.upper()} is not supported in a table of a pipeline: allowed is one "
            "PRIMARY KEY (columns)"
        )
    return read_column_definition(cursor)


def _skip_to_end_of_entry(cursor: Cursor) -> None:
    depth = 0
    while cursor.next.kind != "end":
        if depth == 0 and cursor.next.says(",", ")"):
            return
        depth += {"(": 1, ")": -1}.get(cursor.take().text, 0)


def read_column_definition(cursor: Cursor) -> PipelineColumnDefinition:
    """`name type ...`, or `name AS expression PERSISTED type`."""
    name = read_name(cursor, "a column")
    if cursor.takes("AS"):
        computed = read_expression(cursor)
        if not cursor.takes("PERSISTED"):
            cursor.fail("expected PERSISTED and a type behind the expression of a computed column")
        kind = read_type(cursor)
        return PipelineColumnDefinition(name, kind, nullable=_attributes(cursor), computed=computed)
    kind = read_type(cursor)
    return PipelineColumnDefinition(name, kind, nullable=_attributes(cursor))


def _attributes(cursor: Cursor) -> bool:
    nullable = True
    while True:
        if cursor.takes("NOT", "NULL"):
            nullable = False
        elif cursor.takes("CHARACTER", "SET") or cursor.takes("COLLATE"):
            cursor.take()
        elif cursor.takes("COMMENT"):
            cursor.text("a comment")
        elif not cursor.takes("NULL"):
            break
    if cursor.next.says("DEFAULT", "AUTO_INCREMENT", "PRIMARY", "UNIQUE", "ON", "GENERATED"):
        cursor.fail(
            f"{cursor.next.text.upper()} is not supported in a column of a pipeline's table: "
            "create the table in the target first"
        )
    return nullable


def read_type(cursor: Cursor) -> PipelineType:
    """A type. Raises Unreadable for one that tables of pipelines cannot have."""
    token = cursor.next
    if token.kind != "word":
        cursor.fail(f"expected a type, found {token}")
    name = ALIASES.get(token.text.upper(), token.text.upper())
    if name not in KINDS:
        cursor.fail(f"the type {token} is not supported; {suggest(name, KINDS)}")
    cursor.take()
    if name == "DOUBLE":
        cursor.takes("PRECISION")
    size = cursor.list_of(lambda it: it.number("a length")) if cursor.sees("(") else ()
    if cursor.next.says("UNSIGNED", "ZEROFILL", "VARYING"):
        cursor.fail(f"{cursor.next.text.upper()} is not supported")
    return _type_of_size(cursor, name, size)


def _type_of_size(cursor: Cursor, name: str, size: tuple[int, ...]) -> PipelineType:
    if KINDS[name] == "text":
        return PipelineType(
            name, size[0] if size and name != "TEXT" else 1 if name == "CHAR" else None
        )
    if KINDS[name] == "decimal":
        length, scale = (*size, 10, 0)[:2] if len(size) != 1 else (size[0], 0)
        if not 0 < length <= _MOST_DIGITS or scale > length:
            cursor.fail(f"DECIMAL has 1 to {_MOST_DIGITS} digits, and no more behind the point")
        return PipelineType(name, length, scale)
    return PipelineType(name)


def read_alter_table(cursor: Cursor) -> AddColumn:
    place = cursor.place
    table = plain_name(cursor, "a table")
    if not cursor.takes("ADD"):
        cursor.fail("only ADD COLUMN is supported: write the table as it is to be")
    cursor.takes("COLUMN")
    if cursor.next.kind == "word" and cursor.next.text.upper() in _KEYS:
        cursor.fail("only ADD COLUMN is supported; an index is made by CREATE INDEX")
    return AddColumn(place, table, read_column_definition(cursor))


def read_index(cursor: Cursor) -> CreateIndex:
    place, name = cursor.place, read_name(cursor, "an index")
    cursor.expect("ON")
    table = plain_name(cursor, "a table")
    columns = cursor.list_of(lambda it: read_name(it, "a column"))
    if cursor.takes("USING"):
        cursor.expect("HASH", "BTREE")
    return CreateIndex(place, name, table, columns)


def plain_name(cursor: Cursor, what: str) -> PipelineName:
    """A name; the database in front of it is not the target's, and so a finding."""
    name = read_name(cursor, what)
    if cursor.sees("."):
        cursor.fail(
            f"a database in front of {what[2:]} is not supported: the target says where tables are"
        )
    return name
