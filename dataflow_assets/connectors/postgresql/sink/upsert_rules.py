"""What a sink's manifest says about its upserts, and what one statement of them takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import qualified, quote
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.table.table import Table, key_of
from dataflow_assets.contracts import reserved
from dataflow_assets.errors import PermanentError
from dataflow_assets.likely_names import did_you_mean_or

GROUP = reserved("group")  # column: the number of the row's key
STORED = reserved("stored")  # column: the source says that the key was there before
POSITION = reserved("position")  # column: the number of a key's spelling
MOST_COLUMNS = 20  # that a message lists
DELETED = reserved("deleted")  # optional column: whether the row's key is to be marked as deleted


@dataclass(frozen=True)
class Rules:
    """What the manifest says about keys, versions and deletes."""

    schema: pa.Schema
    key: tuple[str, ...]
    version: str | None = None
    soft: str | None = None
    hard: bool = False

    @classmethod
    def of(cls, sink: PostgresqlSinkOptions, schema: pa.Schema) -> Rules:
        """The rules of a sink."""
        version = sink.upsert_version_column if sink.upsert_strategy == "ifNewer" else None
        return cls(schema, key_of(schema), version, sink.soft, sink.delete_mode == "hard")

    @property
    def deletes(self) -> bool:
        """True where deletes mean something."""
        return self.hard or self.soft is not None


@dataclass(frozen=True)
class FoldedRows:
    """Rows for one statement: distinct keys, in key order, all carrying the same columns."""

    verb: Literal["upsert", "mark", "delete"]
    columns: tuple[str, ...]
    rows: pa.RecordBatch


def _no_column(sink: PostgresqlSinkOptions, name: str, known: Sequence[str]) -> str:
    advice = did_you_mean_or(name, known, f"it has {', '.join(known[:MOST_COLUMNS])}")
    return f"conflictKey: table {sink.table} has no column {name}; {advice}"


def key_columns(sink: PostgresqlSinkOptions, table: Table) -> tuple[str, ...]:
    """What rows are matched by, proved to be unique; empty for append."""
    if not sink.upsert_mode:
        return ()
    key = sink.conflict_key or table.primary
    if not key:
        raise PermanentError(
            f"upsertMode needs a key: table {sink.table} has no primary key and the manifest "
            "no conflictKey"
        )
    indexes = [index for index in table.unique if set(index.names) == set(key)]
    names = [column.name for column in table.columns]
    if not indexes and (unknown := [column for column in key if column not in names]):
        raise PermanentError(_no_column(sink, unknown[0], names))
    if not indexes:
        columns = ", ".join(map(quote, key))
        raise PermanentError(
            f"upsertMode: table {sink.table} has no unique index on exactly ({', '.join(key)}); "
            f"run: CREATE UNIQUE INDEX ON {qualified(*sink.place())} ({columns})"
        )
    if not all(index.alike for index in indexes):
        raise PermanentError(
            f"upsertMode: a unique index of table {sink.table} on ({', '.join(key)}) compares "
            "by another collation or operator class than the columns themselves, so that "
            "inserts and deletes could find different rows; drop that index, or give the "
            "columns its collation"
        )
    return key
