"""Spark DataFrame -> PostgreSQL table, for assets that users write themselves.

Tasks copy into a table beside the target, and one transaction on the driver moves the rows: readers
see all of them or none. Connection settings travel by closure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import TextLink, lock_name, quote
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.frames.columns import column_kinds
from dataflow_assets.connectors.postgresql.frames.conditions import condition
from dataflow_assets.connectors.postgresql.frames.frame_table import (
    APPLICATION,
    PostgresqlFrameTable,
    translated_frames,
)
from dataflow_assets.connectors.postgresql.frames.modifiers import (
    ColumnTypes,
    StagedValues,
    column_types,
)
from dataflow_assets.connectors.postgresql.frames.texts import sql_type, texts
from dataflow_assets.connectors.postgresql.table import table
from dataflow_assets.contracts import Note
from dataflow_assets.formats.columns import fit
from dataflow_assets.sdk.table_frames import (
    STAGES,
    Mode,
    attempt_column,
    left_behind,
    refuse_null_keys,
    refuse_unknown_columns,
    stage,
    stage_name,
)
from dataflow_assets.sdk.table_partitions import Partitions

_STAGED = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND starts_with(c.relname, $2) AND c.relpersistence = 'u'
"""
Encode = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Rows of a sink as text COPY takes them."""

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(  # noqa: PLR0913 - as `TableFrames.write`, and how its sink encodes rows
    place: PostgresqlFrameTable,
    frame: DataFrame,
    mode: Mode,
    key: Sequence[str],
    partitions: Partitions | None = None,
    *,
    encode: Encode,
) -> int:
    """As `TableFrames.write`; the driver moves the rows in one transaction."""
    from pyspark.sql.pandas.types import to_arrow_schema

    columns: pa.Schema = to_arrow_schema(frame.schema)
    beside = replace(place, table=stage_name())
    with (
        translated_frames(place, "writing"),
        closing(TextLink(place.connection, APPLICATION)) as link,
    ):
        _create(link, place, columns, key)
        types = _types(link, place, columns)
        move = _Move(place, beside, types, mode, key, _only(link, place, partitions))
        _drop_left(link, place)
        _create_stage(link, beside, types)
        try:
            matched = tuple(key) if mode == "upsert" else ()
            stager = _PostgresqlStager(
                place, beside, _schema(link, place, columns), matched, encode
            )
            attempts, rows = stage(frame, stager)
            move.check(link, attempts, partitions)
            move.run(link, attempts)
        finally:
            with suppress(PostgresqlFailure):
                link.execute("ROLLBACK")  # in a transaction that failed nothing can be dropped
                link.execute(f"DROP TABLE IF EXISTS {beside.name}")
    return rows


def _only(link: TextLink, place: PostgresqlFrameTable, partitions: Partitions | None) -> str:
    """A condition on the rows that are replaced; empty for all of them."""
    if partitions is None:
        return ""
    return condition(partitions, place.name, column_kinds(link, place))


@dataclass(frozen=True)
class _PostgresqlStager:
    """Copies the rows of one Spark partition into the stage."""

    place: PostgresqlFrameTable
    stage: PostgresqlFrameTable
    schema: pa.Schema
    key: tuple[str, ...]
    encode: Encode

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> None:
        with (
            translated_frames(self.place, "writing"),
            closing(TextLink(self.stage.connection, APPLICATION)) as link,
        ):
            link.execute("BEGIN")
            for batch in batches:
                refuse_null_keys(self.place.name, batch, self.key)
                rows = fit(self.place.name, texts(batch), self.schema)
                link.load_text(self.stage.schema, self.stage.table, self.encode(rows))
            link.execute("COMMIT")


def _schema(link: TextLink, place: PostgresqlFrameTable, columns: pa.Schema) -> pa.Schema:
    """The columns as rows of flows have them; those that only the server fills are text."""
    target = table.find(link, place.schema, place.table)
    by_name = {column.name: column.field for column in target.columns} if target else {}
    fields = [by_name.get(name) or pa.field(name, pa.string()) for name in columns.names]
    mark = pa.field(attempt_column(columns.names), pa.string())
    return pa.schema([*fields, mark], {Note.NO_NUL: b"1"})


def _create(
    link: TextLink, place: PostgresqlFrameTable, columns: pa.Schema, key: Sequence[str]
) -> None:
    if link.execute("SELECT to_regclass($1)::text", place.name)[0][0]:
        return
    parts = [f"{quote(column.name)} {sql_type(column.type)}" for column in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    link.execute("BEGIN")
    lock_name(link, place.schema)
    link.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(place.schema)}")
    link.execute(f"CREATE TABLE IF NOT EXISTS {place.name} ({', '.join(parts)})")
    link.execute("COMMIT")


def _types(
    link: TextLink, place: PostgresqlFrameTable, columns: pa.Schema
) -> dict[str, ColumnTypes]:
    """The target's types of the frame's columns; a column that the table lacks is an error."""
    types = column_types(link, place)
    refuse_unknown_columns(place.name, columns.names, types)
    return {name: types[name] for name in columns.names}


def _create_stage(
    link: TextLink, stage: PostgresqlFrameTable, types: Mapping[str, ColumnTypes]
) -> None:
    columns = [f"{quote(name)} {each.staged}" for name, each in types.items()]
    listed = ", ".join([*columns, f"{quote(attempt_column(types))} text"])
    link.execute(f"CREATE UNLOGGED TABLE {stage.name} ({listed})")


def _drop_left(link: TextLink, place: PostgresqlFrameTable) -> None:
    """One that another role has made stays."""
    for name in left_behind(name for (name,) in link.execute(_STAGED, place.schema, STAGES)):
        with suppress(PostgresqlFailure):
            link.execute(f"DROP TABLE IF EXISTS {replace(place, table=name).name}")


@dataclass(frozen=True)
class _Move:
    """From the stage into the target, in one transaction; rows of failed attempts stay behind."""

    place: PostgresqlFrameTable
    stage: PostgresqlFrameTable
    types: Mapping[str, ColumnTypes]
    mode: Mode
    key: Sequence[str]
    only: str = ""
    """Which rows `overwrite` replaces; empty for all of them."""

    def check(self, link: TextLink, attempts: list[str], partitions: Partitions | None) -> None:
        """Raises PermanentError for rows that the target would change, or that are of others."""
        staged = StagedValues(link, self.place.name, self._from_stage, attempts)
        staged.refuse_changes(self.types)
        if partitions is not None:
            names = partitions.columns
            if row := self._example(link, attempts, names, f"({self.only}) IS NOT TRUE"):
                raise partitions.outside(self.place.name, dict(zip(names, row[0], strict=True)))

    def _example(
        self, link: TextLink, attempts: list[str], names: Sequence[str], condition: str
    ) -> list[tuple[object, ...]]:
        """One row of the frame of which the condition is true, if there is any."""
        listed = ", ".join(f"{quote(name)}::text" for name in names)
        return link.execute(
            f"SELECT {listed} {self._from_stage} AND ({condition}) LIMIT 1", attempts
        )

    @property
    def _from_stage(self) -> str:
        return f"FROM {self.stage.name} WHERE {quote(attempt_column(self.types))} = ANY($1)"

    def run(self, link: TextLink, attempts: list[str]) -> None:
        names = ", ".join(map(quote, self.types))
        # S608: every name is quoted
        insert = f"INSERT INTO {self.place.name} ({names}) SELECT {names} {self._from_stage}"
        conflict = _on_conflict(self.types, self.key) if self.mode == "upsert" else ""
        link.execute("BEGIN")
        if self.mode == "overwrite":
            self._delete(link)
        link.execute(insert + conflict, attempts)
        link.execute("COMMIT")

    def _delete(self, link: TextLink) -> None:
        """Under a lock: a DELETE does not see what another transaction has yet to commit."""
        link.execute("SET LOCAL lock_timeout = 0")  # the lock is held while rows move
        link.execute(f"LOCK TABLE {self.place.name} IN SHARE ROW EXCLUSIVE MODE")
        link.execute(f"DELETE FROM {self.place.name}" + (self.only and f" WHERE {self.only}"))  # noqa: S608


def _on_conflict(types: Iterable[str], key: Sequence[str]) -> str:
    changed = [quote(name) for name in types if name not in key] or list(map(quote, key))
    values = ", ".join(f"{name} = excluded.{name}" for name in changed)
    return f" ON CONFLICT ({', '.join(map(quote, key))}) DO UPDATE SET {values}"
