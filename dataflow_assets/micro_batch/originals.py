"""Messages found again by their offsets, and rejections that name them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import HEADER_LIST, Rejection, Sent
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.micro_batch import row_changes
from dataflow_assets.micro_batch.message_metadata import MetadataRows
from dataflow_assets.micro_batch.places import Places


@dataclass(frozen=True)
class OriginalMessages(Mapping[int, Sent]):
    """Finds the message of an offset, for the few rows that are refused."""

    offsets: pa.Array
    batch: pa.RecordBatch
    rows: MetadataRows | None = None
    """What reads the metadata, where messages have become records."""
    several: Mapping[int, int] = field(default_factory=dict)
    """How many records a message has become, where that is not one."""
    named: pa.RecordBatch | None = None
    """The batch with its keys as text, where they are not sent as text."""
    _: KW_ONLY
    places: Places

    def __getitem__(self, offset: int) -> Sent:  # KeyError for a foreign offset
        index = pc.index(self.offsets, offset).as_py()
        if index < 0:
            raise KeyError(offset)
        raw = self.batch.column("body")[index].as_py()
        place = self.places.of(self.batch, index, offset, raw)
        # All headers as they were sent, where the batch has them: a replay forwards them again.
        names = self.batch.schema.names
        headers_sent = self.batch.column("headers")[index].as_py() if "headers" in names else None
        headers, change = (
            ({HEADER_LIST: headers_sent} if headers_sent else {}),
            row_changes.dump(self.batch, index),
        )
        if self.rows is None:
            return Sent(raw, headers or None, place=place, change=change)
        with_metadata = self.batch if self.named is None else self.named
        ((_, metadata),) = self.rows.records(with_metadata.slice(index, 1))
        metadata = {**with_offset(metadata, offset), **headers}
        return Sent(raw, metadata, self.several.get(offset, 1), place, change)

    def __iter__(self) -> Iterator[int]:
        return iter(self.offsets.to_pylist())

    def __len__(self) -> int:
        return len(self.offsets)


def rejection(offset: int, error: RejectedRecord, sent: Sent) -> Rejection:
    """Why a record is rejected, in the words of the step that refused it."""
    where = "" if error.step is None else f"transformations[{error.step}] ({error.step_type}): "
    reason = f"{where}{error.reason}"
    entry = Rejection(offset, error.stage, reason, None, step=error.step, step_type=error.step_type)
    return entry.of(sent)


def sink_rejection(offset: int, n: int, error: RejectedRecord, sent: OriginalMessages) -> Rejection:
    return replace(rejection(offset, error, sent[offset]), n=n)


def with_offset(metadata: Mapping[str, Any], offset: int) -> Mapping[str, Any]:
    """With the offset, where nobody has read it; what is replayed has kept its own."""
    return {"offset": offset, **metadata}
