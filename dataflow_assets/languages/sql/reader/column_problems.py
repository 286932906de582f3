"""Checks the declared columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.tokens import Place
from dataflow_assets.languages.sql.engine.casts import cast
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.types import FlinkType
from dataflow_assets.languages.sql.reader import options as known
from dataflow_assets.languages.sql.reader.syntax import FlinkColumnDefinition, FlinkCreateTable

_NO_METADATA = {
    "leader-epoch": "is not known to readers here",
    "timestamp-type": "is not known to readers here",
}


def column_problems(
    table: FlinkCreateTable, connector: str, metadata: Mapping[str, FlinkType]
) -> Iterator[tuple[Place, str]]:
    """Yields mistakes in the columns of a table; `metadata`: the keys that it has."""
    columns = {one.name: one for one in table.columns}
    for name in table.key:
        one = columns.get(name)
        place = table.key_place or table.place
        if one is None:
            yield place, f"PRIMARY KEY: no column {name}; {suggest(name, columns)}"
        elif not one.physical:
            yield place, f"PRIMARY KEY: {name} is not a column of the record itself"
    for column in table.columns:
        if column.metadata is not None:
            yield from _metadata_problems(column, connector, metadata)
    if table.watermark is not None:
        yield from _watermark_problems(table, columns)


def _metadata_problems(
    column: FlinkColumnDefinition, connector: str, known_keys: Mapping[str, FlinkType]
) -> Iterator[tuple[Place, str]]:
    key = column.metadata or ""
    if connector in known.TABLES:
        yield column.place, "METADATA is of topics only"
    elif key in _NO_METADATA:
        yield column.place, f"METADATA {key}: {_NO_METADATA[key]}"
    elif key not in known_keys:
        yield column.place, f"no METADATA {key}; {suggest(key, known_keys)}"
    elif column.type is not None and not _casts(known_keys[key], column.type):
        message = f"METADATA {key} is {known_keys[key]}, which cannot be cast to {column.type}"
        yield column.place, message


def _casts(kind: FlinkType, wanted: FlinkType) -> bool:
    return cast(kind, wanted, Environment().local) is not None


def _watermark_problems(
    table: FlinkCreateTable, named: Mapping[str, FlinkColumnDefinition]
) -> Iterator[tuple[Place, str]]:
    watermark = table.watermark
    assert watermark is not None  # noqa: S101
    one = named.get(watermark.column)
    if one is None:
        message = f"WATERMARK: no column {watermark.column}; {suggest(watermark.column, named)}"
        yield watermark.place, message
    elif one.type is not None and not one.type.moment:
        yield watermark.place, f"WATERMARK: {one.name} is {one.type}, and no TIMESTAMP(3)"
