"""A checkpoint of the DataFlow Operator as a position."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from dataflow_assets.connectors.iceberg.table.position import BEGINNING, SnapshotPosition
from dataflow_assets.errors import PermanentError

log = logging.getLogger(__name__)


def position_after_checkpoint(
    metadata: TableMetadata, document: Mapping[str, Any]
) -> SnapshotPosition:
    """Returns the position after the snapshot that the original has read last.

    The original moves its checkpoint to a snapshot with the first row of it that is stored; one
    that it was in the middle of is read again whole, for its order of rows is not ours. Raises
    PermanentError where the document names no snapshot that the table knows of.
    """
    acked = _id(document, "lastAckedSnapshotID")
    scanned = _id(document, "scanSnapshotID")
    if scanned is None or (document.get("scanRowOffset") or 0) == 0:
        if acked is None:
            raise PermanentError(
                "the checkpoint has no lastAckedSnapshotID: give the object `iceberg` of the "
                "DataFlow Operator's checkpoint.json"
            )
        return position_after(metadata, acked)
    log.warning(
        "the DataFlow Operator was in the middle of snapshot %s: it is read again, so up to %s of "
        "its rows come twice",
        scanned,
        document["scanRowOffset"],
    )
    return (
        _before(metadata, scanned) if acked in (None, scanned) else position_after(metadata, acked)
    )


def position_after(metadata: TableMetadata, snapshot_id: int) -> SnapshotPosition:
    """The position after a snapshot, which may have expired as long as its child has not.

    Raises PermanentError where the table does not know it.
    """
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is not None:
        return SnapshotPosition.after(snapshot)
    if any(one.parent_snapshot_id == snapshot_id for one in metadata.snapshots):
        return SnapshotPosition(snapshot_id)
    ids = [str(one.snapshot_id) for one in metadata.snapshots]
    listed = f"it knows {ids[0]} to {ids[-1]}" if ids else "it has no snapshots"
    raise PermanentError(f"snapshot {snapshot_id} is not in the table's history: {listed}")


def _before(metadata: TableMetadata, snapshot_id: int) -> SnapshotPosition:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    parent = snapshot.parent_snapshot_id if snapshot else None
    if snapshot is None or parent is None:
        return BEGINNING
    before = metadata.snapshot_by_id(parent)
    return SnapshotPosition.after(before) if before else SnapshotPosition(parent)


def _id(document: Mapping[str, Any], key: str) -> int | None:
    value = document.get(key)
    if value in (None, ""):
        return None
    if isinstance(value, bool) or not str(value).isdecimal():
        raise PermanentError(f"{key} of the checkpoint must be the digits of a snapshot id")
    return int(str(value))
