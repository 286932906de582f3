"""`IcebergSink`: rows into one Iceberg table, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from dataflow_assets.connectors.iceberg.settings import IcebergConnection
from dataflow_assets.connectors.iceberg.table.column_types import parse_field
from dataflow_assets.connectors.iceberg.table.layout import parse_order, parse_term
from dataflow_assets.contracts import (
    Checkpoint,
    Entries,
    ErrorStore,
    Positions,
    Run,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.sdk.maintenance import Keep, Maintained, Tidied
from dataflow_assets.sdk.raw_mode import RawSink
from dataflow_assets.sdk.table_frames import FrameSink, TableFrames
from dataflow_assets.spec import Addition, Hint, Needs


class IcebergSink(IcebergConnection, RawSink, FrameSink, Maintained):
    """Appends rows to one table of an Iceberg REST catalog, or merges them into it by a key.

    Without `upsertMode` deletes are rejected records. With it the last row of a key wins, and
    columns that a record does not carry keep their values; the files that hold changed rows are
    written again (copy on write).

    Other than the original's one string column `data`, nested objects and lists become struct and
    list columns; `rawMode` keeps bodies as text.
    """

    type: ClassVar[str] = "iceberg"
    guarantee: ClassVar[str] = (
        "Exactly once: files and checkpoint are one commit that asserts the table's head, so that "
        "of two drivers on one span only one succeeds; with `upsertMode` the same commit takes out "
        "the files that were rewritten. Rejected records go to the table "
        "`<table>_rejected` beside it before the rows: at least once, by id."
    )
    commits: ClassVar[Literal["slice", "span"]] = "span"
    text_bodies: ClassVar[bool] = True

    batch_size: Annotated[int, Hint("a commit takes a whole micro-batch")] = Field(100, ge=0)
    """Rows per flush."""
    batch_flush_interval_seconds: int = Field(10, ge=0)
    """The least time between two commits while little arrives."""
    auto_create_table: bool = False
    """True: a missing namespace or table is created, with `columns` and the types of a sample."""
    columns: Annotated[dict[str, str], Addition(), Needs("auto_create_table")] = Field(
        default_factory=dict
    )
    """Columns of a table that is created: name to Iceberg type, such as `decimal(10,2)`."""
    target_file_size_bytes: Annotated[int, Addition()] = Field(128 * 1024 * 1024, ge=1024)
    """A data file is closed once it is this long."""
    partition_by: Annotated[tuple[str, ...], Addition(), Needs("auto_create_table")] = ()
    """Partitions of a table that is created: `created_at`, `year(..)`, `month(..)`, `day(..)`,
    `hour(..)`, `bucket(16, id)`, `truncate(10, name)`."""
    sort_by: Annotated[tuple[str, ...], Addition(), Needs("auto_create_table")] = ()
    """Sort order of a table that is created: `id`, `created_at desc nulls last`."""
    upsert_mode: Annotated[bool, Addition()] = False
    """True: rows replace those of the same `conflictKey`, and deletes delete."""
    conflict_key: Annotated[tuple[str, ...], Addition()] = ()
    """One column or a list of them that rows are matched by; required with `upsertMode`."""
    delete_mode: Annotated[Literal["soft", "hard"] | None, Addition()] = None
    """`hard` removes the row of a deleted key, `soft` marks it; soft where `softDeleteColumn` is
    given, else hard."""
    soft_delete_column: Annotated[str | None, Addition()] = None
    """A timestamp column that deletes set to now; an upsert of the key takes the mark away."""

    @field_validator("columns")
    @classmethod
    def _types(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            parse_field(name, text)
        return value

    @field_validator("partition_by", "sort_by", "conflict_key", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value or ()

    @field_validator("partition_by")
    @classmethod
    def _terms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [parse_term(text).name for text in value]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)} stands there twice")
        return value

    @field_validator("sort_by")
    @classmethod
    def _orders(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            parse_order(text)
        return value

    @model_validator(mode="after")
    def _upserting(self) -> Self:
        if len(set(self.conflict_key)) < len(self.conflict_key):
            raise ValueError("conflictKey names a column twice")
        if self.upsert_mode and not self.conflict_key:
            raise ValueError(
                "upsertMode requires conflictKey: the columns that rows are matched by"
            )
        if self.raw_mode and self.upsert_mode:
            raise ValueError(
                "rawMode and upsertMode exclude each other: a whole body has no key column to "
                "match rows by; leave one of them out"
            )
        if self.delete_mode == "soft" and not self.soft_delete_column:
            raise ValueError("deleteMode soft requires softDeleteColumn")
        return self._only_with_upserts()

    def _only_with_upserts(self) -> Self:
        given = {
            "conflictKey": self.conflict_key,
            "deleteMode": self.delete_mode,
            "softDeleteColumn": self.soft_delete_column,
        }
        if not self.upsert_mode and (wrong := [name for name, value in given.items() if value]):
            raise ValueError(f"{', '.join(wrong)} requires upsertMode: true")
        if self.soft_delete_column in self.conflict_key:
            raise ValueError("softDeleteColumn is a column of conflictKey: take another one")
        return self

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that rows are matched by; empty where rows are appended."""
        return self.conflict_key if self.upsert_mode else ()

    @property
    def soft(self) -> str | None:
        """The column that marks deleted rows; None where deletes remove them."""
        return None if self.delete_mode == "hard" else self.soft_delete_column

    @property
    @override
    def upserts(self) -> bool:
        return self.upsert_mode

    def open(self, target: Target, run: Run) -> SinkSession:
        """One commit to a table that exists: taking the epoch moves its head."""
        from dataflow_assets.connectors.iceberg.sink.session import IcebergSession

        return IcebergSession(self, target, run)

    def peek(self, target: Target) -> Checkpoint | None:
        """From the table or, before there is one, from its namespace."""
        from dataflow_assets.connectors.iceberg.sink.session import peek

        return peek(self, target)

    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        """Writes below the table's location; it does not ask the catalog."""
        from dataflow_assets.connectors.iceberg.sink.writer import IcebergWriter, WriteTicket

        if not isinstance(ticket, WriteTicket):
            raise TypeError(f"an Iceberg writer needs a ticket of its own session, not {ticket!r}")
        return IcebergWriter(self, ticket, piece)

    def error_store(self) -> ErrorStore:
        """Error records as rows of the table: at least once, by id."""
        from dataflow_assets.connectors.iceberg.rejected.error_sink import IcebergErrors

        return IcebergErrors(self)

    def rejected(self) -> Entries:
        """Those of `<table>_rejected`."""
        from dataflow_assets.connectors.iceberg.rejected.replay import Waiting

        return Waiting(self)

    def frames(self, namespace: str | None, table: str) -> TableFrames:
        """Tables of an Iceberg catalog. A write is one commit."""
        from dataflow_assets.connectors.iceberg.frames import read, write

        update = {"namespace": namespace or self.namespace, "table": table}
        sink = self.model_copy(update=update)
        return TableFrames(
            partial(read.read, sink), partial(write.write, sink), partial(read.describe, sink)
        )

    def maintain(self, keep: Keep, readers: Sequence[Positions]) -> list[Tidied]:
        """Snapshots expire; files that no snapshot lists are deleted."""
        from dataflow_assets.connectors.iceberg.maintenance.maintain import maintain

        return maintain(self, keep, readers)

    @classmethod
    def stored(cls, column: pa.Field) -> str:
        """As `autoCreateTable` makes it."""
        from dataflow_assets.connectors.iceberg.types import table_schema

        return str(table_schema([column]).fields[0].field_type)

    def flush_seconds(self) -> float:
        """What batchFlushIntervalSeconds says."""
        return float(self.batch_flush_interval_seconds)
