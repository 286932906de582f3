"""The `clickhouse` sink as a manifest declares it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import model_validator
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
from dataflow_assets.sdk.database import ColumnName, ColumnNames
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.table_frames import FrameSink, TableFrames
from dataflow_assets.sdk.upsert_options import DeleteMode, UpsertOptions
from dataflow_assets.spec import Addition, Needs

VERSION, DELETED = "_version", "_deleted"


class ClickhouseSink(UpsertOptions, ClickhouseConnection, FrameSink):
    """Rows into one ClickHouse table of the MergeTree family: appended, or replaced by a key.

    With `upsertMode` the table is a ReplacingMergeTree: a later row replaces the one with its key,
    and queries with `FINAL` see one row for each key.
    """

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

    conflict_key: ColumnNames = ()
    """One column or a list of them, the table's ORDER BY; without it what the table has."""
    table_engine: Literal["MergeTree", "ReplacingMergeTree"] | None = None
    """Engine of a table that autoCreateTable makes; `ReplacingMergeTree` with upsertMode."""
    replacing_version_column: ColumnName | None = None
    """Column of the records by which a ReplacingMergeTree finds the newest row of a key."""
    delete_mode: DeleteMode = None
    """`hard`: queries with FINAL see the row of a deleted key no more. `soft`: they see it, and its
    column `_deleted` is 1."""
    order_by: Annotated[ColumnNames, Addition(), Needs("auto_create_table")] = ()
    """ORDER BY of a table that autoCreateTable makes, where conflictKey does not say."""
    partition_by: Annotated[str | None, Addition(), Needs("auto_create_table")] = None
    """PARTITION BY of a table that autoCreateTable makes, e.g. `toYYYYMM(created)`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.conflict_key and self.order_by:
            raise ValueError("conflictKey is the ORDER BY already; leave orderBy out")
        if self.upsert_mode and self.table_engine == "MergeTree":
            raise ValueError("upsertMode needs tableEngine ReplacingMergeTree")
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
            "create it again, or set autoCreateTable: true: the next run fills it from the start"
        )
