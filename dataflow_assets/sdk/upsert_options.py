"""Options of a sink of table rows: the table it may create, and the key that rows are matched by.

`UpsertOptions` is a base of a sink's declared options, before the class of its connection:
`class PostgresqlSinkOptions(SoftDeleteOptions, PostgresqlConnection)`. A sink declares a field
again only where the field's meaning or verdict differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, field_validator
from typing_extensions import override

from dataflow_assets.contracts import SinkTraits
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.database import ColumnName, ColumnNames
from dataflow_assets.sdk.raw_mode import RawSink
from dataflow_assets.spec import Addition, Hint, Needs, Requires

_ONE_COMMIT = "each slice of a micro-batch is one commit, so no row waits for a batch to fill"
AT_ONCE = "0 is no pause between commits, not a wait for batchSize rows: each has what is there"
"""Of the interval of a sink whose commits are bounded by it."""
DeleteMode = Annotated[Literal["soft", "hard"] | None, Addition(), Requires("upsert_mode")]
"""What a delete does with the row of its key."""


class UpsertOptions(RawSink):
    """A sink whose rows are appended to a table or, with `upsertMode`, matched by a key."""

    batch_size: Annotated[int | None, Hint(_ONE_COMMIT), Field(ge=0)] = None
    """Rows of one statement."""
    batch_flush_interval_seconds: Annotated[int | None, Hint(_ONE_COMMIT), Field(ge=0)] = None
    """How long rows wait for more of them."""
    auto_create_table: bool = False
    """Create a missing table, with the columns and types of the first records."""
    columns: Annotated[Mapping[str, str], Addition(), Needs("auto_create_table")] = Field(
        default_factory=dict
    )
    """Column types for a table that `autoCreateTable` creates."""
    column_names: Annotated[Literal["exact", "ignoreCase"], Addition()] = "exact"
    """Whether keys are the columns' names exactly, or may differ from one of them in case alone."""
    upsert_mode: bool = False
    """Rows are matched by a key: the last row of a key wins."""
    conflict_key: Annotated[ColumnNames, Needs("upsert_mode")] = ()
    """One column or a list of them; without it the table's primary key. With `rawMode` these are
    metadata of the records, such as `key`, each in a column of its own."""
    delete_mode: DeleteMode = None
    """`hard` removes the row of a deleted key, `soft` marks it."""

    @field_validator("conflict_key")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("conflictKey names a column twice")
        return value

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.raw_mode and self.upsert_mode and not self.conflict_key:
            yield (
                "rawMode with upsertMode needs conflictKey: the metadata by which rows are "
                "matched, such as key"
            )

        prefix = self.flatten_metadata_columns_prefix
        if prefix and not all(name.startswith(prefix) for name in self.raw_key):
            yield f"conflictKey names columns of metadata, which all begin with {prefix} here"

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if len(self.conflict_key) == 1 and "," in self.conflict_key[0]:
            several = ", ".join(part.strip() for part in self.conflict_key[0].split(","))
            yield (
                "conflict_key",
                f"is one column with a comma in its name: write several as a list, [{several}]",
            )

    def no_columns(self) -> PermanentError:
        """The error for a table that is to be created, and of which no column is known."""
        return PermanentError(
            f"table {self.address().name} cannot be created: the first records hold no object "
            "with its columns, or are rejected; `dataflow preview` shows each with its reason. "
            "Correct the flow, name the columns under `columns`, or create the table"
        )

    @property
    @override
    def traits(self) -> SinkTraits:
        return replace(
            super().traits,
            upserts=self.upsert_mode,
            ignores_case=self.column_names == "ignoreCase",
            takes_deletes=self.delete_mode is not None if self.upsert_mode else self.raw_mode,
        )

    @override
    def raw_columns(self, sample: pa.Schema) -> list[pa.Field]:
        known = {*sample.names, *self.columns}
        if missing := [name for name in self.raw_key if name not in known]:
            raise PermanentError(
                f"table {self.address().name} cannot be made: the metadata of the first records "
                f"has no {', '.join(missing)}, by which rows are matched: with rawMode conflictKey "
                "names metadata, and no field of the body. Name metadata that records have, such "
                "as key, or leave rawMode out to match rows by fields of the body"
            )
        return super().raw_columns(sample)

    @property
    @override
    def raw_key(self) -> tuple[str, ...]:
        return self.conflict_key if self.raw_mode and self.upsert_mode else ()


class SoftDeleteOptions(UpsertOptions):
    """A sink that marks the rows of deleted keys in a column that the manifest names."""

    soft_delete_column: Annotated[ColumnName | None, Needs("upsert_mode")] = None
    """A delete sets this column to the current time, and keeps the row."""
    delete_mode: Annotated[DeleteMode, Requires("soft_delete_column", when="soft")] = None
    """What a delete does: `hard` removes the row, `soft` marks it in `softDeleteColumn`. By default
    `soft` if `softDeleteColumn` is given."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.soft_delete_column in self.conflict_key:
            yield "softDeleteColumn is a column of conflictKey: take another one"

    @property
    def soft(self) -> str | None:
        """The column that marks deleted rows; None where deletes remove them or mean nothing."""
        return None if self.delete_mode == "hard" else self.soft_delete_column

    @property
    @override
    def traits(self) -> SinkTraits:
        known = super().traits
        marks = self.upsert_mode and self.soft is not None
        return replace(known, takes_deletes=known.takes_deletes or marks)

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self.delete_mode == "hard" and self.soft_delete_column:
            yield "soft_delete_column", "has no effect with deleteMode: hard"
