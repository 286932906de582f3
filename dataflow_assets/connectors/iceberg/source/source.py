"""`IcebergSource`: reads one Iceberg table, each of its rows once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from dataflow_assets.connectors.iceberg.settings import IcebergConnection
from dataflow_assets.contracts import Slice, Source, SourceSession, TypeRow
from dataflow_assets.spec import Addition, Hint, Refused

_LARGEST_ID = (1 << 63) - 1
_NO_QUERY = (
    "the DataFlow Operator accepts a query and reads the whole table all the same; use the steps "
    "filter and select"
)


class IcebergSource(IcebergConnection, Source):
    """Reads the current snapshot of one table once, then what later snapshots append.

    Snapshots follow one another in their order; rows of one snapshot have no order among them.
    Position deletes are applied, equality deletes refused. Columns are found by their field ids,
    under the names and types that they have now.

    A table with `data`, other columns and no `_metadata` is taken as written with
    `flattenMetadataColumns`: where its rows become messages, they are
    `{"value": data, "_metadata": {...}}`, and the keys of `_metadata` are metadata too.
    """

    type: ClassVar[str] = "iceberg"
    guarantee: ClassVar[str] = (
        "Each appended row exactly once: a part of a snapshot is stored whole or not at all, and "
        "its borders are recorded before it is read. Compaction adds nothing; a snapshot that "
        "deletes or replaces rows follows `onSourceRewrite`; expired snapshots that were not read "
        "are an error that says what was lost."
    )
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "columns"
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"snapshot_id", "snapshot_sequence"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "namespace": "the table's namespace",
        "table": "the table's name",
        "snapshot_id": "with `incrementalBySnapshot`: the snapshot that added the row",
        "snapshot_sequence": "with `incrementalBySnapshot`: that snapshot's sequence number",
    }

    poll_interval: int = Field(10, ge=1)
    """The least time between two looks at the catalog, in seconds."""
    query: Annotated[str | None, Refused(_NO_QUERY, allowed=(None, ""))] = None
    """A query instead of the table."""
    incremental_by_snapshot: bool = False
    """True: rows carry the metadata `snapshot_id` and `snapshot_sequence`, and `startSnapshotID`
    may say where to begin."""
    start_snapshot_id: str | None = Field(None, alias="startSnapshotID")
    """Where a flow without a checkpoint begins: behind this snapshot; else with the current one."""
    snapshot_checkpoints: Annotated[
        bool, Hint("the position always stands beside the rows, in the same commit")
    ] = True
    """Whether progress is kept."""
    max_rows_per_poll: int = Field(0, ge=0)
    """The most rows of one micro-batch; 0: as many as the flow's limits allow."""
    max_bytes_per_poll: int = Field(0, ge=0)
    """The most bytes of one micro-batch, as they stand in the data files; at least one row is read.
    0: as many as the flow's limits allow."""
    on_source_rewrite: Annotated[Literal["fail", "rescan", "ignore"], Addition()] = "fail"
    """When a snapshot deletes or replaces rows: stop and name it; read the current snapshot in full
    once more, which needs sinks that upsert (rows that were deleted stay in them); or pass over it
    with a note, also over the rows that it adds."""
    parallel_reads: Annotated[int, Addition()] = Field(4, ge=1, le=64)
    """How many parts of a long snapshot are read at the same time."""

    @field_validator("start_snapshot_id", mode="before")
    @classmethod
    def _digits(cls, value: Any) -> Any:
        if value is None:
            return value
        text = str(value)
        if isinstance(value, bool) or not (text.isdecimal() and int(text) <= _LARGEST_ID):
            raise ValueError('must be the digits of a snapshot id, like "1234567890123456789"')
        return text

    @model_validator(mode="after")
    def _by_snapshot(self) -> IcebergSource:
        if self.start_snapshot_id and not self.incremental_by_snapshot:
            raise ValueError("startSnapshotID is used only with incrementalBySnapshot: true")
        return self

    @property
    @override
    def poll_seconds(self) -> float:
        return float(self.poll_interval)

    @property
    @override
    def rereads(self) -> str:
        return "onSourceRewrite: rescan" if self.on_source_rewrite == "rescan" else ""

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        return {"namespace": self.namespace, "table": self.table}

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.connectors.iceberg.source.session import IcebergSourceSession

        return IcebergSourceSession(self, flow)

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.iceberg.source.read import read

        return read(self, piece, metadata)

    @override
    def message_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from dataflow_assets.connectors.iceberg.raw_messages import message_form

        return message_form(batch)

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        from dataflow_assets.connectors.iceberg.source.types import rows

        return rows()
