"""CREATE TABLE and the options of WITH."""

from __future__ import annotations

from dataflow_assets.languages.common.cursor import RESERVED, Cursor
from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.reader.read_expressions import read_expression
from dataflow_assets.languages.sql.reader.read_types import read_type
from dataflow_assets.languages.sql.reader.syntax import (
    FlinkColumnDefinition,
    FlinkCreateTable,
    Like,
    Option,
    Watermark,
)

_WORDS = ("ALL", "CONSTRAINTS", "PARTITIONS", "DISTRIBUTION")
_MERGED = ("GENERATED", "METADATA", "OPTIONS", "WATERMARKS")


class _Items:
    """The items between the parentheses of a table."""

    def __init__(self) -> None:
        self.columns: list[FlinkColumnDefinition] = []
        self.key: tuple[str, ...] = ()
        self.key_place: Place | None = None
        self.watermark: Watermark | None = None


def read_table(cursor: Cursor) -> FlinkCreateTable:
    exists = cursor.takes("IF", "NOT", "EXISTS")
    place, name = cursor.place, qualified_name(cursor)
    items = _Items()
    if cursor.takes("("):
        _read_items(cursor, items)
    comment = cursor.text("a comment") if cursor.takes("COMMENT") else ""
    _refuse_layout(cursor)
    options = read_options(cursor) if cursor.takes("WITH") else ()
    like = _like(cursor) if cursor.sees("LIKE") else None
    if cursor.sees("AS"):
        cursor.fail("AS SELECT is not supported: write an INSERT INTO of its own")
    if not options and like is None:
        cursor.fail(f"table {name}: WITH is missing, and so the connector")
    return FlinkCreateTable(
        place=place,
        name=name,
        columns=tuple(items.columns),
        key=items.key,
        key_place=items.key_place,
        watermark=items.watermark,
        options=options,
        like=like,
        comment=comment,
        if_not_exists=exists,
    )


def _refuse_layout(cursor: Cursor) -> None:
    if cursor.sees("PARTITIONED") or cursor.next.says("DISTRIBUTED"):
        cursor.fail(f"{cursor.next.text.upper()} is not supported: no connector here uses it")


def qualified_name(cursor: Cursor) -> str:
    name = cursor.name("the name of a table")
    while cursor.takes("."):
        name = cursor.name("the name of a table")
    return name


def read_alias(cursor: Cursor) -> str | None:
    """The name behind a table of FROM, with or without AS; None where there is none."""
    if cursor.takes("AS"):
        return cursor.name("a name for the table")
    token = cursor.next
    plain = token.kind == "word" and token.text.upper() not in RESERVED | {"QUALIFY", "MINUS"}
    return cursor.take().text if token.kind == "quoted" or plain else None


def read_options(cursor: Cursor) -> tuple[Option, ...]:
    cursor.expect("(")
    options: dict[str, Option] = {}
    while not cursor.sees(")"):
        option = read_option(cursor)
        if option.key in options:
            raise Unreadable(option.place, f"the option {option.key} is written twice")
        options[option.key] = option
        if not cursor.takes(","):
            break
    if not cursor.takes(")"):  # what is there may be the rest of a secret
        cursor.fail("expected , or ) behind an option; a quote inside a text is written twice")
    return tuple(options.values())


def read_option(cursor: Cursor) -> Option:
    place, key = cursor.place, cursor.text("an option")
    cursor.expect("=")
    at = cursor.place
    return Option(place, at, key, cursor.text("the value of an option"))


def _read_items(cursor: Cursor, items: _Items) -> None:
    while True:
        if cursor.sees("WATERMARK", "FOR"):
            _read_watermark(cursor, items)
        elif cursor.sees("CONSTRAINT"):
            cursor.take()
            cursor.name("the name of a constraint")
            _read_key(cursor, items)
        elif cursor.sees("PRIMARY", "KEY"):
            _read_key(cursor, items)
        else:
            _read_column(cursor, items)
        if not cursor.takes(","):
            break
    if not cursor.takes(")"):
        cursor.fail(f"expected , or ) behind a column, found {cursor.next}")


def _read_watermark(cursor: Cursor, items: _Items) -> None:
    place = cursor.take().place
    cursor.take()
    if items.watermark is not None:
        raise Unreadable(place, "a table has one WATERMARK")
    column = cursor.name("a column")
    cursor.expect("AS")
    items.watermark = Watermark(place, column, read_expression(cursor))


def _read_key(cursor: Cursor, items: _Items) -> None:
    place = cursor.place
    cursor.expect("PRIMARY")
    cursor.expect("KEY")
    _set_key(items, place, cursor.list_of(lambda it: it.name("a column")))
    _not_enforced(cursor)


def _set_key(items: _Items, place: Place, key: tuple[str, ...]) -> None:
    if items.key:
        raise Unreadable(place, "a table has one PRIMARY KEY")
    items.key, items.key_place = key, place


def _not_enforced(cursor: Cursor) -> None:
    if not cursor.takes("NOT", "ENFORCED"):
        cursor.fail("a PRIMARY KEY is NOT ENFORCED in Flink: write PRIMARY KEY (...) NOT ENFORCED")


def _read_column(cursor: Cursor, items: _Items) -> None:
    place, name = cursor.place, cursor.name("a column")
    if any(one.name == name for one in items.columns):
        raise Unreadable(place, f"the column {name} is written twice")
    if cursor.takes("AS"):
        computed = read_expression(cursor)
        _comment(cursor)
        items.columns.append(FlinkColumnDefinition(place, name, computed=computed))
        return
    kind, nullable = read_type(cursor)
    metadata, virtual = None, False
    if cursor.takes("METADATA"):
        metadata = cursor.text("a key of metadata") if cursor.takes("FROM") else name
        virtual = cursor.takes("VIRTUAL")
    while cursor.next.says("PRIMARY", "CONSTRAINT", "NOT", "COMMENT"):
        at = cursor.place
        if cursor.takes("NOT", "NULL"):
            nullable = False
        elif cursor.sees("COMMENT"):
            _comment(cursor)
        else:
            if cursor.takes("CONSTRAINT"):
                cursor.name("the name of a constraint")
            cursor.expect("PRIMARY")
            cursor.expect("KEY")
            _set_key(items, at, (name,))
            _not_enforced(cursor)
    items.columns.append(FlinkColumnDefinition(place, name, kind, nullable, metadata, virtual))


def _comment(cursor: Cursor) -> None:
    if cursor.takes("COMMENT"):
        cursor.text("a comment")


def _like(cursor: Cursor) -> Like:
    place = cursor.take().place
    table = qualified_name(cursor)
    options: dict[str, str] = {}
    if cursor.takes("("):
        while not cursor.sees(")"):
            way = cursor.expect("INCLUDING", "EXCLUDING", "OVERWRITING").text.upper()
            allowed = _MERGED if way == "OVERWRITING" else (*_WORDS, *_MERGED)
            options[cursor.expect(*allowed).text.upper()] = way
            cursor.takes(",")
        cursor.take()
    return Like(place, table, options)


def includes(like: Like, word: str) -> bool:
    """Returns whether a part of the other table is taken over."""
    return like.options.get(word, like.options.get("ALL")) != "EXCLUDING"


def overwrites(like: Like, word: str) -> bool:
    """Returns whether the table's own part may replace that of the other one."""
    return like.options.get(word) == "OVERWRITING"
