"""Spark DataFrame -> PostgreSQL table, for assets that users write themselves.

Tasks copy into a table beside the target, and one transaction on the driver moves the rows: readers
see all of them or none. Connection settings travel by closure.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import TextLink, quote
from dataflow_assets.connectors.postgresql.errors import Failure
from dataflow_assets.connectors.postgresql.frames.frame_table import (
    APPLICATION,
    FrameTable,
    is_bytes,
    translated_frames,
)
from dataflow_assets.sdk.table_frames import ATTEMPT, Mode, refuse_unknown_columns, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(place: FrameTable, frame: DataFrame, mode: Mode, key: Sequence[str]) -> int:
    """As `TableFrames.write`; the driver moves the rows in one transaction."""
    from pyspark.sql.pandas.types import to_arrow_schema

    columns: pa.Schema = to_arrow_schema(frame.schema)
    beside = FrameTable(place.connection, place.schema, f"_dataflow_{uuid.uuid4().hex[:12]}")
    with (
        translated_frames(place, "writing"),
        closing(TextLink(place.connection, APPLICATION)) as link,
    ):
        _create(link, place, columns, key)
        types = _types(link, place, columns)
        _create_stage(link, beside, types)
        try:
            attempts, rows = stage(frame, _Stager(beside))
            _Move(place, beside, types, mode, key).run(link, attempts)
        finally:
            with suppress(Failure):
                link.execute(f"DROP TABLE IF EXISTS {beside.name}")
    return rows


@dataclass(frozen=True)
class _Stager:
    """Copies the rows of one Spark partition into the stage."""

    stage: FrameTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> None:
        with closing(TextLink(self.stage.connection, APPLICATION)) as link:
            link.execute("BEGIN")
            for batch in batches:
                link.load_text(self.stage.schema, self.stage.table, _texts(batch))
            link.execute("COMMIT")


def _create(link: TextLink, place: FrameTable, columns: pa.Schema, key: Sequence[str]) -> None:
    if link.execute("SELECT to_regclass($1)::text", place.name)[0][0]:
        return
    link.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(place.schema)}")
    parts = [f"{quote(column.name)} {_sql_type(column.type)}" for column in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    link.execute(f"CREATE TABLE IF NOT EXISTS {place.name} ({', '.join(parts)})")


def _types(link: TextLink, place: FrameTable, columns: pa.Schema) -> dict[str, str]:
    """The target's types of the frame's columns; a column that the table lacks is an error."""
    query = (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"
    )
    known: dict[str, str] = dict(link.execute(query, place.name))
    refuse_unknown_columns(place.name, columns.names, known)
    return {name: known[name] for name in columns.names}


def _create_stage(link: TextLink, stage: FrameTable, types: dict[str, str]) -> None:
    columns = [f"{quote(name)} {kind}" for name, kind in types.items()]
    listed = ", ".join([*columns, f"{quote(ATTEMPT)} text"])
    link.execute(f"CREATE UNLOGGED TABLE {stage.name} ({listed})")


@dataclass(frozen=True)
class _Move:
    """From the stage into the target, in one transaction; rows of failed attempts stay behind."""

    place: FrameTable
    stage: FrameTable
    types: dict[str, str]
    mode: Mode
    key: Sequence[str]

    def run(self, link: TextLink, attempts: list[str]) -> None:
        names = ", ".join(map(quote, self.types))
        # S608: every name is quoted
        rows = f"SELECT {names} FROM {self.stage.name} WHERE {quote(ATTEMPT)} = ANY($1)"  # noqa: S608
        insert = f"INSERT INTO {self.place.name} ({names}) {rows}"
        conflict = _on_conflict(self.types, self.key) if self.mode == "upsert" else ""
        link.execute("BEGIN")
        if self.mode == "overwrite":
            link.execute(f"DELETE FROM {self.place.name}")  # noqa: S608
        link.execute(insert + conflict, attempts)
        link.execute("COMMIT")


def _on_conflict(types: dict[str, str], key: Sequence[str]) -> str:
    others = [quote(name) for name in types if name not in key]
    target = f" ON CONFLICT ({', '.join(map(quote, key))}) DO "
    if not others:
        return target + "NOTHING"
    return target + "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)


def _sql_type(kind: pa.DataType) -> str:
    for test, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_int64, "bigint"),
        (pa.types.is_int32, "integer"),
        (pa.types.is_integer, "smallint"),
        (pa.types.is_float32, "real"),
        (pa.types.is_floating, "double precision"),
        (pa.types.is_date, "date"),
        (pa.types.is_nested, "jsonb"),
        (is_bytes, "bytea"),
    ):
        if test(kind):
            return name
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    return "text"


def _texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What CSV cannot hold as text: nested values as JSON, bytes as PostgreSQL's hex."""
    columns = [_text(batch.column(i)) for i in range(batch.num_columns)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_nested(kind):
        values = [
            None if v is None else json.dumps(_plain(v), default=str) for v in column.to_pylist()
        ]
        return pa.array(values, pa.string())
    if is_bytes(kind):
        return pa.array([None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()])
    return column


def _plain(value: Any) -> Any:
    """Maps arrive as lists of pairs."""
    if isinstance(value, list) and value and all(isinstance(v, tuple) for v in value):
        return {str(k): _plain(v) for k, v in value}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
