"""Facts of a row that its values do not show, kept with a rejected row for its replay.

A rejected record is its body and its key. Rows of tables have no key, so what a followed table's
log says of the change takes the key's place: that the row is deleted, and why values of the row are
not known. Without that a replay would store a deleted row, and empty what a change has left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from dataflow_assets.contracts import DELETE, INSERT, OP, Note, system_name
from dataflow_assets.micro_batch import unknown_values
from dataflow_assets.records.decoding import decode_json

_FIELDS = (
    pa.field(OP, pa.int8()),
    pa.field(system_name("unlogged"), pa.string(), metadata={Note.LACKS: b"1"}),
)


class RowChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts of a row beside its values; `unknown` says why values of the row are not known."""

    deleted: bool = False
    unknown: str | None = None


_NOTHING = RowChange()


def dump(batch: pa.RecordBatch, row: int) -> bytes | None:
    """Writes what the source knows of a row as JSON; None where it knows the values only.

    Called inside tasks, for each row that is rejected.

    Args:
        batch: as the source has delivered it, or as messages.
        row: the index of the row.
    """
    deleted = OP in batch.schema.names and batch.column(OP)[row].as_py() == DELETE
    reasons = unknown_values.reasons(batch)
    unknown = None if reasons is None else reasons[row].as_py()
    change = RowChange(deleted, unknown)
    return None if change == _NOTHING else msgspec.json.encode(change)


def parse(key: bytes | None) -> RowChange | None:
    """Reads what was kept in place of the key. Called by replays, once for each entry.

    Args:
        key: of the entry; what an earlier version has kept there tells nothing.
    """
    try:
        change = _NOTHING if key is None else decode_json(key, RowChange)
    except msgspec.DecodeError:
        return None
    return None if change == _NOTHING else change


def with_changes(batch: pa.RecordBatch, changes: Sequence[RowChange | None]) -> pa.RecordBatch:
    """The batch with what its source knew of the rows, as the source has delivered it.

    Called inside the tasks of a replay, once for each batch of entries.

    Args:
        batch: entries as messages.
        changes: one for each row; None: nothing is to be told.
    """
    row_changes = [one or _NOTHING for one in changes]
    operations = pa.array([DELETE if one.deleted else INSERT for one in row_changes], pa.int8())
    reasons = pa.array([one.unknown for one in row_changes], pa.string())
    for field, array in zip(_FIELDS, (operations, reasons), strict=True):
        batch = batch.append_column(field, array)
    return batch
