"""Detects tables that were rolled back to a snapshot before a commit of ours."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

COMMIT_ID = "dataflow.commit"  # in a snapshot's summary


def was_rolled_back(table: Table, commit: str, sequence: int) -> bool:
    """Returns whether the head of a table does not follow a commit of ours.

    Called on the driver before each commit that others would build on. Snapshots may be expired:
    then the numbers of those that are left tell, as far as they can.

    Args:
        table: as it is now.
        commit: the id in the summary of the snapshot that the last commit has made.
        sequence: the number of that snapshot; 0 where the table's format has none.

    Returns:
        False as well where nothing tells.
    """
    head = table.metadata.snapshot_by_name(MAIN_BRANCH)
    if head is None:
        return True
    line = list(_line(table, head, commit))
    if _is_of(line[-1], commit):
        return False
    if any(_is_of(one, commit) for one in table.metadata.snapshots):
        return True
    return any((one.sequence_number or sequence) < sequence for one in line)


def _line(table: Table, head: Snapshot, commit: str) -> Iterator[Snapshot]:
    """The head and what it follows, as far as it is kept, down to the commit."""
    yield head
    if _is_of(head, commit):
        return
    snapshots = {one.snapshot_id: one for one in table.metadata.snapshots}
    snapshot = snapshots.get(head.parent_snapshot_id or -1)
    while snapshot is not None:
        yield snapshot
        if _is_of(snapshot, commit):
            return
        snapshot = snapshots.get(snapshot.parent_snapshot_id or -1)


def _is_of(snapshot: Snapshot, commit: str) -> bool:
    return snapshot.summary is not None and snapshot.summary[COMMIT_ID] == commit
