"""The `clickhouse` sink as a manifest declares it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal, Self

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.clickhouse.options import ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.rejected.error_sink import error_table, rejected_table
from dataflow_assets.connectors.clickhouse.sink.checkpoint import peek_together
from dataflow_assets.connectors.clickhouse.sink.session import ClickhouseSinkSession
from dataflow_assets.connectors.clickhouse.sink.writer import ClickhouseSliceStore
from dataflow_assets.connectors.clickhouse.table.create_table import column_type
from dataflow_assets.contracts import (
    Checkpoint,
    Entries,
    ErrorStore,
    Kind,
    PeeksTogether,
    Run,
    SinkSession,
    SinkTraits,
    Slice,
    Target,
    Ticket,
    Writer,
    kind_of,
)
from dataflow_assets.errors import DataflowError
from dataflow_assets.sdk.sink.slice_commit import SliceWriter
from dataflow_assets.sdk.table_frames import FrameSink, TableFrames
from dataflow_assets.sdk.types.table import MakesColumns


class ClickhouseSink(ClickhouseSinkOptions, FrameSink, MakesColumns, PeeksTogether):
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
    adds_columns: ClassVar[bool] = True

    @property
    @override
    def traits(self) -> SinkTraits:
        return replace(super().traits, replaces_whole_rows=True)

    @override
    @classmethod
    def stored_type(cls, column: pa.Field, *, own: bool = False) -> str | None:
        same = own and kind_of(column) != Kind.JSON
        return None if same else column_type(column, messages=False)

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        return ClickhouseSinkSession(self, target, run)

    @property
    @override
    def connection_group(self) -> Hashable:
        return self.dsn()

    @override
    @classmethod
    def peek_together(
        cls, asked: Sequence[tuple[Self, Target]]
    ) -> list[Checkpoint | DataflowError | None]:
        return peek_together(asked)

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        return SliceWriter(ticket, piece, ClickhouseSliceStore(self, ticket, piece))

    @override
    def error_store(self) -> ErrorStore:
        return error_table(self)

    @override
    def rejected_entries(self) -> Entries:
        return rejected_table(self)

    @override
    def frames(self, namespace: str | None, table: str) -> TableFrames:
        """Tables of ClickHouse. A write is atomic by partition; `overwrite` exchanges the table."""
        from dataflow_assets.connectors.clickhouse.frames import read, write
        from dataflow_assets.connectors.clickhouse.frames.frame_table import ClickhouseFrameTable

        place = ClickhouseFrameTable(self.dsn(), namespace or self.usual_schema(), table)
        return TableFrames(
            partial(read.read, place), partial(write.write, place), partial(read.describe, place)
        )
