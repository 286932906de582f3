"""LIKE: what a table takes over from another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.reader.read_tables import includes, overwrites
from dataflow_assets.languages.sql.reader.syntax import (
    FlinkColumnDefinition,
    FlinkCreateTable,
    Like,
    Option,
    Watermark,
)


def merge(table: FlinkCreateTable, other: FlinkCreateTable) -> FlinkCreateTable:
    """LIKE: what a table takes over from another one. Raises Unreadable."""
    like = table.like
    assert like is not None  # noqa: S101 - that is what this is called for
    key, key_place = table.key, table.key_place
    if not key and includes(like, "CONSTRAINTS"):
        key, key_place = other.key, other.key_place and like.place
    return replace(
        table,
        columns=(*_others(table, like, other), *table.columns),
        key=key,
        key_place=key_place,
        watermark=_watermark(table, like, other),
        options=_options(table, like, other),
        like=None,
    )


def _others(
    table: FlinkCreateTable, like: Like, other: FlinkCreateTable
) -> Iterator[FlinkColumnDefinition]:
    """The columns of the other table, without those that are replaced."""
    own = {one.name: one for one in table.columns}
    for one in other.columns:
        if not _takes(one, table):
            continue
        mine = own.get(one.name)
        if mine is None:
            yield one
        elif not (_word(one) == _word(mine) and overwrites(like, _word(one))):
            raise Unreadable(like.place, f"the column {one.name} is in both tables")


def _word(column: FlinkColumnDefinition) -> str:
    return "" if column.physical else "GENERATED" if column.metadata is None else "METADATA"


def _watermark(table: FlinkCreateTable, like: Like, other: FlinkCreateTable) -> Watermark | None:
    theirs = other.watermark if includes(like, "WATERMARKS") else None
    if table.watermark is None or theirs is None or overwrites(like, "WATERMARKS"):
        return table.watermark or theirs
    message = "both tables have a WATERMARK: leave one of them out by EXCLUDING or OVERWRITING"
    raise Unreadable(like.place, f"{message} WATERMARKS")


def _options(table: FlinkCreateTable, like: Like, other: FlinkCreateTable) -> tuple[Option, ...]:
    """The table's own options win, unless LIKE includes the others in so many words."""
    own = {one.key: one for one in table.options}
    if not includes(like, "OPTIONS"):
        return table.options
    if like.options.get("OPTIONS") == "INCLUDING":
        for one in other.options:
            if one.key in own:
                message = f"the option {one.key} is in both tables: write OVERWRITING OPTIONS"
                raise Unreadable(like.place, message)
    theirs = {one.key: replace(one, place=like.place) for one in other.options}
    return tuple((theirs | own).values())


def _takes(column: FlinkColumnDefinition, table: FlinkCreateTable) -> bool:
    assert table.like is not None  # noqa: S101
    if column.computed is not None:
        return includes(table.like, "GENERATED")
    return column.metadata is None or includes(table.like, "METADATA")
