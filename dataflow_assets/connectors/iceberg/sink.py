"""`IcebergSink`: appends to one Iceberg table, exactly once."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from dataflow_assets.connectors.iceberg.columns import parse_field
from dataflow_assets.connectors.iceberg.settings import IcebergConnection
from dataflow_assets.contracts import (
    Checkpoint,
    Entries,
    ErrorStore,
    Run,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.raw import RawSink
from dataflow_assets.spec import Addition, Hint


class IcebergSink(IcebergConnection, RawSink):
    """Appends rows to one table of an Iceberg REST catalog. Deletes are rejected records.

    Other than the original's one string column `data`, nested objects and lists become struct and
    list columns; `rawMode` keeps bodies as text.
    """

    type: ClassVar[str] = "iceberg"
    guarantee: ClassVar[str] = (
        "Exactly once: files and checkpoint are one commit that asserts the table's head, so that "
        "of two drivers on one span only one succeeds. Rejected records go to the table "
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
    columns: Annotated[dict[str, str], Addition()] = Field(default_factory=dict)
    """Columns of a table that is created: name to Iceberg type, such as `decimal(10,2)`."""
    target_file_size_bytes: Annotated[int, Addition()] = Field(128 * 1024 * 1024, ge=1024)
    """A data file is closed once it is this long."""

    @field_validator("columns")
    @classmethod
    def _types(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            parse_field(name, text)
        return value

    def open(self, target: Target, run: Run) -> SinkSession:
        """One commit to a table that exists: taking the epoch moves its head."""
        from dataflow_assets.connectors.iceberg.session import IcebergSession

        return IcebergSession(self, target, run)

    def peek(self, target: Target) -> Checkpoint | None:
        """From the table or, before there is one, from its namespace."""
        from dataflow_assets.connectors.iceberg.session import peek

        return peek(self, target)

    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        """Writes below the table's location; it does not ask the catalog."""
        from dataflow_assets.connectors.iceberg.writer import IcebergWriter, WriteTicket

        if not isinstance(ticket, WriteTicket):
            raise TypeError(f"an Iceberg writer needs a ticket of its own session, not {ticket!r}")
        return IcebergWriter(self, ticket, piece)

    def error_store(self) -> ErrorStore:
        """Error records as rows of the table: at least once, by id."""
        from dataflow_assets.connectors.iceberg.errors import IcebergErrors

        return IcebergErrors(self)

    def rejected(self) -> Entries:
        """Those of `<table>_rejected`."""
        from dataflow_assets.connectors.iceberg.waiting import Waiting

        return Waiting(self)

    @classmethod
    def stored(cls, column: pa.Field) -> str:
        """As `autoCreateTable` makes it."""
        from dataflow_assets.connectors.iceberg.types import table_schema

        return str(table_schema([column]).fields[0].field_type)

    def flush_seconds(self) -> float:
        """What batchFlushIntervalSeconds says."""
        return float(self.batch_flush_interval_seconds)
