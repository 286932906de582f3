"""All that a manifest may say about Trino: the connection, the source's table, the sink's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field, field_validator
from typing_extensions import override

from dataflow_assets.connectors.trino.connection import TrinoConnection
from dataflow_assets.contracts import SinkTraits
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.database import ColumnName, ColumnNames
from dataflow_assets.sdk.polling import PolledSource
from dataflow_assets.sdk.upsert_options import AT_ONCE, DeleteMode, SoftDeleteOptions
from dataflow_assets.spec import Addition, Hint, Requires

_TYPE = re.compile(r"[a-z][a-z0-9_ ]*(\(.*\))?( with(out)? time zone)?", re.IGNORECASE | re.DOTALL)
_PLACE = re.compile(r"[^.\s]+(\.[^.\s]+){1,2}")
_ONE_COMMIT = "a commit takes a whole micro-batch"
_APPENDED = (
    "rows that are appended are stored exactly once where the catalog lists its snapshots with the "
    "id of the query, as Iceberg's do; elsewhere at least once: `dataflow run` says which, and "
    "docs/guarantees/trino.md why"
)
_MERGED = (
    "a key has one row, and a micro-batch is stored at once where the catalog commits a MERGE as a "
    "whole, as Iceberg's do; elsewhere readers see half of a micro-batch for a while, and a run "
    "that comes late may store older values: docs/guarantees/trino.md says where"
)


class TrinoSourceOptions(TrinoConnection, PolledSource):
    """What is read, and how its changes are found."""

    change_tracking_column: ColumnName = "updated_at"
    """The column whose value grows with each change. A table without it is read by
    `orderByColumn` alone: new rows, no changes."""
    order_by_column: ColumnName = "id"
    """Orders rows with equal change values, so it must be unique. Available as the metadata
    `id`."""

    @field_validator("change_tracking_column", "order_by_column")
    @classmethod
    def _small(cls, value: str) -> str:
        """Trino has all names in small letters."""
        return value.lower()

    @override
    def no_table(self) -> PermanentError:
        return PermanentError(
            f"{self.title} does not exist: it was dropped, or never made. Create it, or correct "
            "`catalog`, `schema` and `table`"
        )


class TrinoSinkOptions(SoftDeleteOptions, TrinoConnection):
    """Where rows go, and what they replace."""

    text_bodies: ClassVar = True

    batch_size: Annotated[int | None, Hint(_ONE_COMMIT), Field(ge=0)] = None
    """Rows of one statement."""
    batch_flush_interval_seconds: int = Field(10, ge=0)
    """The shortest time between two commits while few records arrive, in seconds: a commit is
    several statements."""
    upsert_mode: Annotated[bool, Requires("conflict_key")] = False
    """Rows are matched by `conflictKey` with MERGE, which the catalog must support: the last row of
    a key wins, and columns that a record does not carry keep their values."""
    conflict_key: Annotated[ColumnNames, Requires("upsert_mode")] = ()
    """One column or a list of them that rows are matched by; required with `upsertMode`. With
    `rawMode` these are metadata of the records, such as `key`, each in a column of its own."""
    soft_delete_column: Annotated[ColumnName | None, Addition(), Requires("upsert_mode")] = None
    """A timestamp column: a delete sets it to the current time, an upsert of the key to null."""
    delete_mode: Annotated[DeleteMode, Requires("soft_delete_column", when="soft")] = None
    """What a delete does: `hard` removes the row, `soft` marks it in `softDeleteColumn`. By default
    `soft` if `softDeleteColumn` is given; otherwise deletes are rejected records."""
    checkpoint_table: Annotated[str | None, Addition()] = None
    """The table with the flow's checkpoint, `schema.table` or `catalog.schema.table`; by default
    `dataflow_checkpoints` in the schema of the target. Its catalog must support UPDATE: if
    the catalog of the target does not, name a table of another catalog."""
    max_statement_length: Annotated[int, Field(ge=10_000), Addition()] = 1_000_000
    """The most characters of one statement: the value of the coordinator's `query.max-length`. A
    longer row is a rejected record."""

    @field_validator("columns")
    @classmethod
    def _types(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name, kind in value.items():
            if name != name.lower():
                raise ValueError(f"{name}: Trino has all names in small letters: {name.lower()}")
            if not _TYPE.fullmatch(kind.strip()):
                raise ValueError(f"{name}: not the name of a type of Trino")
        return value

    @field_validator("conflict_key")
    @classmethod
    def _small(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Trino has all names in small letters."""
        return tuple(name.lower() for name in value)

    @field_validator("checkpoint_table")
    @classmethod
    def _three_names(cls, value: str | None) -> str | None:
        if value is not None and not _PLACE.fullmatch(value):
            raise ValueError("must be schema.table or catalog.schema.table")
        return value

    @field_validator("soft_delete_column")
    @classmethod
    def _small_mark(cls, value: str | None) -> str | None:
        return None if value is None else value.lower()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that rows are matched by; empty where rows are appended."""
        return self.conflict_key if self.upsert_mode else ()

    @property
    @override
    def traits(self) -> SinkTraits:
        return replace(super().traits, flush_seconds=float(self.batch_flush_interval_seconds))

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self.batch_flush_interval_seconds == 0:
            yield "batch_flush_interval_seconds", AT_ONCE
        how = _MERGED if self.upsert_mode else _APPENDED
        yield "catalog", how
        yield "catalog_secret_ref", how
