"""Typed rows with values that do not fit the columns of their source: each branch reads JSON.

PostgreSQL holds arrays of other dimensions than a column declares, and times that no column of
Arrow has. A sink that takes them stores them; any other rejects the row, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pyarrow as pa

from dataflow_assets.contracts import OFFSET, Chunk, Sent
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.rows import unfit, unfit_values
from dataflow_assets.micro_batch.branch_rows import BranchRows
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.formatted import merge
from dataflow_assets.micro_batch.message_metadata import as_message, deletions
from dataflow_assets.micro_batch.originals import OriginalMessages
from dataflow_assets.micro_batch.places import Places
from dataflow_assets.records.record import Record, parse

_DELETED = {"operation": "delete"}
_SHOWN = 60  # letters of a value
_KINDS = "an array of other dimensions than declared, or a time beyond the year 294246"


def part(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Rows whose values fit, and the others; None: there are none. Called for each batch."""
    texts = unfit(rows)
    if texts is None:
        return rows, None
    return rows.filter(texts.is_null()), rows.filter(texts.is_valid())


def join(
    chunk: Chunk, rows: pa.RecordBatch, branch: PassBranch, sent: Mapping[int, Sent], places: Places
) -> Chunk:
    """The chunk with more rows, which the branch reads as JSON.

    Called inside tasks, for batches with such rows.

    Args:
        chunk: of the other rows of the batch.
        rows: some of whose values do not fit, with their ordinals.
        branch: that gets them.
        sent: all rows of the batch, by their ordinals.
        places: of the part.
    """
    messages = as_message(rows)
    gone = deletions(messages)
    decoders = cache(lambda whole: branch.decoder("delete", whole=whole))
    of_branch = BranchRows(branch, None, decoders, "delete", gone)
    for at, body in enumerate(messages.column("body").to_pylist()):
        try:
            record = Record(parse(body), _DELETED if at in gone else {})
        except RejectedRecord as error:  # JSON of a column that no record can have
            of_branch.failed.append((at, 0, error))
        else:
            of_branch.take(at, 0, record)
    ordinals = rows.column(OFFSET)
    read = of_branch.chunk(ordinals.to_numpy(), OriginalMessages(ordinals, messages, places=places))
    reasons = _reasons(rows)
    refused = [
        replace(one, stage="encode", reason=f"{reasons[one.offset]}; {one.reason}").of(
            sent[one.offset]
        )
        for one in read.rejected
    ]
    return replace(
        chunk,
        rows=merge([chunk.rows, read.rows]),
        rejected=sorted([*chunk.rejected, *refused], key=lambda one: one.offset),
        size=chunk.size + read.size,
    )


def _reasons(rows: pa.RecordBatch) -> dict[int, str]:
    ordinals = rows.column(OFFSET).to_pylist()
    return {
        ordinals[row]: f"{', '.join(map(_show, values.items()))}: {_KINDS}"
        for row, values in unfit_values(rows).items()
    }


def _show(item: tuple[str, bytes]) -> str:
    name, text = item[0], bytes(item[1]).decode()
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"column {name} of the source holds {cut}"
