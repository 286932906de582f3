"""The `postgresql-cdc` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.postgresql.cdc.envelope import OPERATION, operations
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import StreamPart, parse_part
from dataflow_assets.connectors.postgresql.cdc.read import read, read_in_order
from dataflow_assets.connectors.postgresql.cdc.session import PostgresqlCdcSession
from dataflow_assets.contracts import OP, PartSlice, Slice, Span
from dataflow_assets.contracts.declared import KeepsLog
from dataflow_assets.contracts.reading import FormsMessages, ReadsInOrder


class PostgresqlCdcSource(PostgresqlCdcOptions, KeepsLog, ReadsInOrder, FormsMessages):
    """Follows tables by the server's log: every insert, update and delete, in the order of commits.

    The first run loads the rows that the tables have at one position of the log, then reads all
    changes behind that position. The server needs `wal_level = logical`.
    """

    type: ClassVar = "postgresql-cdc"
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "columns"
    guarantee: ClassVar = (
        "Each change of a committed transaction exactly once, and the changes of a table in the "
        "order of commits, behind the first rows as of one position of the log. The slot moves "
        "only when every branch has committed; a repeated read gives the same changes. If the "
        "process dies while it loads the first rows, a sink that upserts continues, and is right "
        "once it has the changes since then; a sink that appends must begin again with an empty "
        "table."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset(
        {"operation", "table", "id", "lsn", "xid", "committed_at"}
    )
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "operation": "`insert`, `update` or `delete`; rows that are loaded first are inserts",
        "table": "`schema.table`",
        "id": "the row's value of `primaryKeyColumn`, where the table has such a column",
        "lsn": "where the commit of the transaction begins in the log, such as `0/16B3748`",
        "xid": "the id of the transaction; null for rows that are loaded first",
        "committed_at": "when the transaction was committed; null for rows that are loaded first",
    }

    @override
    def open(self, flow: str) -> PostgresqlCdcSession:
        return PostgresqlCdcSession(self, flow)

    @override
    def left_behind(self) -> str:
        return (
            f"slot {self.slot} and publication {self.publication} stay on {self.server()} "
            "for the next run. If there is to be none, drop the slot, or it keeps log until the "
            f"disk is full: SELECT pg_drop_replication_slot('{self.slot}')"
        )

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        return read(self, piece, metadata)

    @override
    def batches_in_order(
        self, pieces: Sequence[Slice], metadata: frozenset[str]
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        return read_in_order(self, pieces, metadata)

    @override
    def reads_in_order(self, span: Span, *, upserts: bool) -> bool:
        """Stretches of the log always: a slot has one reader, and commits have an order."""
        parts = (parse_part(one.part) for one in span.slices if isinstance(one, PartSlice))
        return any(isinstance(part, StreamPart) for part in parts)

    @override
    def message_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With the operation of each row, which says what a sink does with it."""
        if OP not in batch.schema.names or OPERATION.name in batch.schema.names:
            return batch
        return batch.append_column(OPERATION, operations(batch.column(OP)))
