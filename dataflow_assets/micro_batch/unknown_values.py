"""Values that a source does not know, marked for the sinks that replace whole rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.contracts import OFFSET, UNKNOWN, Chunk, Note
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.records.change_event import UNAVAILABLE
from dataflow_assets.records.record import Record

_UNAVAILABLE = (
    "the change has left {} alone, and Debezium sends a placeholder for such values: set "
    'unavailableValuePlaceholder of debeziumUnwrap to "" to pass the placeholder on, or REPLICA '
    "IDENTITY FULL for the table"
)


def with_unknown(
    chunks: Sequence[Chunk],
    branches: Sequence[PassBranch],
    batch: pa.RecordBatch,
    offsets: npt.NDArray[np.int64],
) -> list[Chunk]:
    """The chunks with the column UNKNOWN, where a row lacks a value and its sink asks for that.

    Called inside tasks, once for each batch.

    Args:
        chunks: one for each branch, made of the batch.
        branches: in the same order.
        batch: as the source has delivered it, or as messages.
        offsets: of each row of the batch, ascending.
    """
    why = reasons(batch)
    if why is None:
        return list(chunks)
    return [
        _with(chunk, why, offsets) if branch.traits.replaces_whole_rows else chunk
        for chunk, branch in zip(chunks, branches, strict=True)
    ]


def unavailable(record: Record) -> str | None:
    """Why a source of change events does not know all of a row; None: it knows all of it.

    Called inside tasks, once for each record of a branch.
    """
    names = record.metadata.get(UNAVAILABLE)
    return None if names is None else _UNAVAILABLE.format(names)


def with_reasons(rows: pa.RecordBatch, reasons: Mapping[int, str]) -> pa.RecordBatch:
    """The rows with the column UNKNOWN. Called inside tasks, once for each batch of a branch.

    Args:
        rows: of a chunk.
        reasons: by the index of a row why its source does not know all of it.
    """
    column = pa.array([reasons.get(row) for row in range(rows.num_rows)], pa.string())
    return rows.append_column(pa.field(UNKNOWN, pa.string()), column)


def incomplete(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """A mask of the rows of which the source does not know all values. Called inside tasks."""
    why = reasons(batch)
    if why is None:
        return np.zeros(batch.num_rows, np.bool_)
    mask: npt.NDArray[np.bool_] = why.is_valid().to_numpy(zero_copy_only=False)
    return mask


def reasons(batch: pa.RecordBatch) -> pa.Array | None:
    """The reason for each row of which its source does not know all; None: it knows all rows."""
    at = next((at for at, one in enumerate(batch.schema) if Note.LACKS.marks(one)), None)
    return None if at is None else batch.column(at)


def _with(chunk: Chunk, reasons: pa.Array, offsets: npt.NDArray[np.int64]) -> Chunk:
    places = np.searchsorted(offsets, chunk.rows.column(OFFSET).to_numpy())
    why = reasons.take(pa.array(places))
    if why.null_count == len(why):
        return chunk
    return replace(chunk, rows=chunk.rows.append_column(pa.field(UNKNOWN, pa.string()), why))
