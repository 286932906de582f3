"""The `clickhouse` sink as a manifest declares it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from dataflow_assets.connectors.clickhouse.settings import ClickhouseConnection
from dataflow_assets.contracts import (
    KIND,
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
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.database import ColumnName
from dataflow_assets.sdk.raw_mode import RawSink
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.table_frames import FrameSink, TableFrames
from dataflow_assets.spec import Addition, Hint, Needs

_ONE_INSERT = "every slice of a micro-batch is one INSERT, so no row waits for a batch to fill"
VERSION, DELETED = "_version", "_deleted"


class ClickhouseSink(ClickhouseConnection, RawSink, FrameSink):
    """Rows into one ClickHouse table of the MergeTree family: appended, or replaced by a key."""

    type: ClassVar = "clickhouse"
    guarantee: ClassVar = (
        "Exactly once, as long as the table remembers its last INSERTs: each slice is one INSERT "
        "whose borders are recorded first, in the table `dataflow_ledger` of the same database, "
        "so that a crash repeats it under the same deduplication token. Tables that flows make "
        "remember 10,000; others are checked, and an INSERT in doubt that is older stops the "
        "flow. Rejected records go to `<table>_rejected` before the rows, once for `FINAL`."
    )
    commits: ClassVar[Literal["slice", "span"]] = "slice"
    own_columns: ClassVar = frozenset({DATA, METADATA, "created_at"})
    text_bodies: ClassVar = True

    batch_size: Annotated[int | None, Hint(_ONE_INSERT), Field(ge=0)] = None
    """Rows of one statement."""
    batch_flush_interval_seconds: Annotated[int | None, Hint(_ONE_INSERT), Field(ge=0)] = None
    """How long rows wait for more of them."""
    auto_create_table: bool = False
    """Make a missing table from the first records."""
    upsert_mode: bool = False
    """A later row replaces the one with its key: the table is a ReplacingMergeTree, and queries
    with `FINAL` see one row for each key."""
    conflict_key: tuple[ColumnName, ...] = ()
    """One column or a list of them, the table's ORDER BY; without it what the table has."""
    table_engine: Literal["MergeTree", "ReplacingMergeTree"] | None = None
    """Engine of a table that autoCreateTable makes; `ReplacingMergeTree` with upsertMode."""
    replacing_version_column: ColumnName | None = None
    """Column of the records by which a ReplacingMergeTree tells the newest row of a key."""
    delete_mode: Annotated[Literal["soft", "hard"] | None, Addition()] = None
    """`hard`: queries with FINAL see the row of a deleted key no more. `soft`: they see it, and its
    column `_deleted` is 1."""
    columns: Annotated[Mapping[str, str], Addition(), Needs("auto_create_table")] = Field(
        default_factory=dict
    )
    """Column types for a table that autoCreateTable makes."""
    order_by: Annotated[tuple[ColumnName, ...], Addition(), Needs("auto_create_table")] = ()
    """ORDER BY of a table that autoCreateTable makes, where conflictKey does not say."""
    partition_by: Annotated[str | None, Addition(), Needs("auto_create_table")] = None
    """PARTITION BY of a table that autoCreateTable makes, e.g. `toYYYYMM(created)`."""

    @field_validator("conflict_key", "order_by", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value or ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.conflict_key)) < len(self.conflict_key):
            raise ValueError("conflictKey names a column twice")
        if self.conflict_key and self.order_by:
            raise ValueError("conflictKey is the ORDER BY already; leave orderBy out")
        if self.raw_mode and self.upsert_mode:
            raise ValueError(
                "rawMode and upsertMode exclude each other: a whole body has no key column to "
                "match rows by; leave one of them out"
            )
        if self.upsert_mode and self.table_engine == "MergeTree":
            raise ValueError("upsertMode needs tableEngine ReplacingMergeTree")
        return self._upserting()

    def _upserting(self) -> Self:
        if self.delete_mode and not self.upsert_mode:
            raise ValueError("deleteMode requires upsertMode: true")
        if self.delete_mode and self.replacing_version_column:
            raise ValueError(
                "deleteMode and replacingVersionColumn exclude each other: a deletion carries no "
                f"version; leave the column out, and {VERSION} is filled in the order of reading"
            )
        if self.replacing_version_column and self.engine != "ReplacingMergeTree":
            raise ValueError("replacingVersionColumn requires tableEngine ReplacingMergeTree")
        return self

    @property
    def engine(self) -> str:
        """What autoCreateTable makes."""
        return self.table_engine or ("ReplacingMergeTree" if self.upsert_mode else "MergeTree")

    @override
    @classmethod
    def keeps(cls, column: pa.Field) -> bool:
        return (column.metadata or {}).get(KIND) != b"json"

    @override
    @classmethod
    def stored(cls, column: pa.Field) -> str:
        from dataflow_assets.connectors.clickhouse.sink.create_table import column_type

        return column_type(column, messages=False)

    @property
    @override
    def upserts(self) -> bool:
        return self.upsert_mode

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        from dataflow_assets.connectors.clickhouse.sink.session import ClickhouseSession

        return ClickhouseSession(self, target, run)

    @override
    def peek(self, target: Target) -> Checkpoint | None:
        from dataflow_assets.connectors.clickhouse.sink.session import peek

        return peek(self, target)

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        from dataflow_assets.connectors.clickhouse.sink.writer import ClickhouseWriter

        return ClickhouseWriter(self, ticket, piece)

    @override
    def error_store(self) -> ErrorStore:
        from dataflow_assets.connectors.clickhouse.rejected.error_sink import ClickhouseErrors

        return ClickhouseErrors(self)

    @override
    def rejected(self) -> Entries:
        from dataflow_assets.connectors.clickhouse.rejected.replay import Waiting

        return Waiting(self)

    @override
    def frames(self, namespace: str | None, table: str) -> TableFrames:
        """Tables of ClickHouse. A write is atomic by partition; `overwrite` exchanges the table."""
        from dataflow_assets.connectors.clickhouse.frames import read, write
        from dataflow_assets.connectors.clickhouse.frames.place import Place

        place = Place(self.dsn(), namespace or self.usual_schema(), table)
        return TableFrames(
            partial(read.read, place), partial(write.write, place), partial(read.describe, place)
        )

    def no_table(self) -> PermanentError:
        """Why there is nowhere to write, and the two ways out."""
        return PermanentError(
            f"table {'.'.join(self.place())} does not exist at {self.address()}; create it, or set "
            "autoCreateTable: true"
        )

    def dropped(self) -> PermanentError:
        """The table went away under a run."""
        return PermanentError(
            f"table {'.'.join(self.place())} of {self.address()} was dropped while the flow ran; "
            "create it again, or set autoCreateTable: true: the next run fills it anew"
        )
