"""The sources that a manifest declares: messages in offset slices, a typed table read in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import pyarrow as pa

from dataflow_assets.connectors.memory.options import MemorySourceOptions
from dataflow_assets.connectors.memory.source.read import read_rows
from dataflow_assets.connectors.memory.source.session import (
    MemoryOffsetSession,
    MemoryPartSession,
    current_identity,
)
from dataflow_assets.contracts import PartSlice, Slice
from dataflow_assets.contracts.reading import ConfirmsTopics, ReadsParts
from dataflow_assets.errors import TransientError
from dataflow_assets.formats.source_options import MessageSource


class MemoryOffsetSource(MemorySourceOptions, MessageSource, ConfirmsTopics):
    """A topic with integer offsets; `partitions` of them."""

    type: ClassVar[str] = "memory-offsets"
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"key"})
    partitions: int = 2

    def metadata(self, piece: Slice) -> dict[str, Any]:
        return {"topic": self.topic, "partition": int(piece.partition)}

    def open(self, flow: str) -> MemoryOffsetSession:  # noqa: ARG002 - no server keeps anything by flow
        return MemoryOffsetSession(self, self.partitions)

    def confirm(self, identity: str) -> None:
        if current_identity(self) != identity:
            raise TransientError(f"topic {self.topic} was recreated while it was read")


class MemoryPartSource(MemorySourceOptions, ReadsParts):
    """A table with columns `id` and `name`, ids ascending.

    Rows are the messages of partition 0: the offset is the id, the body the name.
    """

    type: ClassVar[str] = "memory-parts"
    delivers: ClassVar[Literal["messages", "columns"]] = "columns"

    def open(self, flow: str) -> MemoryPartSession:  # noqa: ARG002 - no server keeps anything by flow
        return MemoryPartSession(self)

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - rows have none
        assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
        yield read_rows(self, *json.loads(piece.part))
