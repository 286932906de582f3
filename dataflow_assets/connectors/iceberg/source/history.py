"""A table's snapshots as a chain: what came after a position, and what each one did to the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from dataflow_assets.connectors.iceberg.table.position import SnapshotPosition, commit_time

_TAKES_AWAY = ("deleted-data-files", "added-delete-files", "removed-delete-files")


@dataclass(frozen=True)
class SnapshotChange:
    """The effect of one snapshot. `kind`: `nothing` covers compaction, which moves rows only."""

    snapshot: Snapshot
    kind: Literal["nothing", "appended", "rewritten"]

    @property
    def rows_added(self) -> int:
        """Rows in the files that it added."""
        return _count(self.snapshot, "added-records")

    def __str__(self) -> str:
        summary = self.snapshot.summary
        removed = _count(self.snapshot, "deleted-records")
        hidden = _count(self.snapshot, "added-position-deletes")
        files = _count(self.snapshot, "deleted-data-files", "added-delete-files")
        return (
            f"snapshot {self.snapshot.snapshot_id} of {commit_time(self.snapshot)} "
            f"({summary.operation.value if summary else 'operation unknown'}) took away or "
            f"replaced {removed + hidden} rows in {files} files and added {self.rows_added}"
        )


@dataclass(frozen=True)
class History:
    """Changes between a position and a head, oldest first."""

    changes: tuple[SnapshotChange, ...]
    abandoned: bool = False
    """The table was rolled back: rows after the common ancestor are no longer in it."""


class Lost(Exception):
    """The chain of parents does not lead back to the position."""


def between(metadata: TableMetadata, position: SnapshotPosition, head: Snapshot) -> History:
    """Returns what came after the position, up to the head. Raises Lost."""
    last = None if position.snapshot is None else metadata.snapshot_by_id(position.snapshot)
    roots = {snapshot.snapshot_id for snapshot in lineage(metadata, last)}
    changes: list[SnapshotChange] = []
    for snapshot in lineage(metadata, head):
        if snapshot.snapshot_id in roots:
            return History(tuple(changes[::-1]), snapshot.snapshot_id != position.snapshot)
        changes.append(change(snapshot))
        if snapshot.parent_snapshot_id == position.snapshot:  # itself it may have expired
            return History(tuple(changes[::-1]))
    raise Lost


def lags(metadata: TableMetadata, position: SnapshotPosition, end: SnapshotPosition) -> bool:
    """Returns whether a reader at the position has still to read something before it is at the end.

    Behind any end is a place in what the table was rolled back from. What the table does not know
    (it has expired, or is newer than what was seen of the table) is judged by its number.
    """
    if position.snapshot == end.snapshot or end.snapshot is None:
        return end.snapshot is not None and position.place < end.place
    line = [one.snapshot_id for one in lineage(metadata, metadata.current_snapshot())]
    if position.snapshot is None or (position.snapshot in line and end.snapshot in line):
        return position.snapshot is None or line.index(position.snapshot) > line.index(end.snapshot)
    if position.snapshot not in line and metadata.snapshot_by_id(position.snapshot):
        return True
    if end.snapshot not in line and metadata.snapshot_by_id(end.snapshot):
        return False
    return position.order < end.order


def lineage(metadata: TableMetadata, head: Snapshot | None) -> Iterator[Snapshot]:
    """The head and its parents, as far back as the table knows them."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    while head is not None:
        yield head
        parent = head.parent_snapshot_id
        head = None if parent is None else snapshots.get(parent)


def arrivals(metadata: TableMetadata, head: Snapshot | None) -> Mapping[int, int]:
    """When each snapshot came to the table, in milliseconds since 1970.

    One that was written aside and published later is older than that. What came with a later
    one has no entry of its own in the table's log, where an older one still has.
    """
    logged: dict[int, int] = {}
    for entry in metadata.snapshot_log:
        logged.setdefault(entry.snapshot_id, entry.timestamp_ms)
    line = [*lineage(metadata, head)]
    oldest = max((at for at, one in enumerate(line) if one.snapshot_id in logged), default=-1)
    arrivals_by_id: dict[int, int] = {}
    came: int | None = None
    for at, one in enumerate(line):
        came = logged.get(one.snapshot_id, came if at < oldest else None)
        arrivals_by_id[one.snapshot_id] = one.timestamp_ms if came is None else came
    return arrivals_by_id


def change(snapshot: Snapshot) -> SnapshotChange:
    """The change by the snapshot's summary; an operation other than `append` may only add."""
    summary = snapshot.summary
    if summary is None:
        return SnapshotChange(snapshot, "rewritten")
    if summary.operation == Operation.REPLACE:
        return SnapshotChange(snapshot, "nothing")
    has_totals = summary["total-records"] is not None
    if summary.operation != Operation.APPEND and not (
        has_totals and not _count(snapshot, *_TAKES_AWAY)
    ):
        return SnapshotChange(snapshot, "rewritten")
    empty = has_totals and not _count(snapshot, "added-data-files", "added-records")
    return SnapshotChange(snapshot, "nothing" if empty else "appended")


def total_rows(snapshot: Snapshot) -> int:
    """Rows in the snapshot; those that delete files hide count too."""
    return _count(snapshot, "total-records")


def _count(snapshot: Snapshot, *names: str) -> int:
    summary: Mapping[str, Any] = snapshot.summary or {}
    return sum(int(summary.get(name) or 0) for name in names)
