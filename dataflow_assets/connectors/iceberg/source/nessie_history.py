"""The snapshots of a table on a branch of Nessie, as the branch's history tells them.

Nessie's Iceberg REST catalog shows the current snapshot only, but each commit of the branch is kept
and can be asked for the table as it was then. So the snapshots between a position and the current
one are put together from these, as if the catalog had shown them, and each follows the one before
it on the branch. A merge into the branch is one commit, and may put a snapshot on the branch that
was written behind another one: behind others of the branch that was merged, or, where the merge was
forced, behind none of this branch. Nessie does not show what a snapshot was written behind, its
manifest list does. Where that is another snapshot, what the merge did is found by comparing the
files.

A position that is up to date costs no request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pyiceberg.avro.file import AvroFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.typedef import Identifier

from dataflow_assets.connectors.iceberg.client import NessieCatalog, TableCommit
from dataflow_assets.connectors.iceberg.source.data_files import (
    MERGED,
    IcebergChanged,
    compare_snapshots,
)
from dataflow_assets.connectors.iceberg.table.position import SnapshotPosition
from dataflow_assets.errors import TransientError

KEPT = 20_000
"""Snapshots that a process keeps: sensors and runs ask for the same ones again and again."""
THREADS = 8

_PARENT = "parent-snapshot-id"

_Key = tuple[str, int, int]  # table, snapshot, the one before it on the branch or 0
_snapshots: OrderedDict[_Key, Snapshot] = OrderedDict()
_lock = threading.Lock()


class BranchHistory:
    """Commits of one table on its branch, as far back as they were needed so far."""

    def __init__(self, catalog: NessieCatalog, identifier: Identifier) -> None:
        self._catalog, self._identifier = catalog, identifier
        self._line: list[TableCommit] = []  # the newest first, each with a snapshot of its own
        self._whole = False

    def complete(self, table: Table, wanted: Collection[SnapshotPosition], *, whole: bool) -> Table:
        """The table with its snapshots back to all that are wanted; `whole`: with all there are.

        Where a position is inside what a snapshot added, the snapshot before it is there too: only
        both tell what a merge added. One that is not on the branch is not found. Raises
        TransientError where the branch moved between two questions.
        """
        head = table.metadata.current_snapshot_id
        inside = {one.snapshot for one in wanted if one.snapshot and one.scan == "added"}
        missing = {one.snapshot for one in wanted if one.snapshot and one.snapshot != head}
        if head is None or not (missing or inside or whole):
            return table
        places = missing | inside
        snapshots = self._load(table, self._back_to(head, places, inside, whole=whole))
        if any(one.snapshot_id in inside and _is_merged(one) for one in snapshots):
            # It may have been put back: only where it first came tells which files it added.
            self._walk(head, places, inside, whole=True)
            snapshots = self._load(table, self._back_to(head, places, inside, whole=whole))
        metadata = table.metadata.model_copy(update={"snapshots": [*snapshots]})
        return Table(
            table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config
        )

    def arrivals(self) -> Mapping[int, int]:
        """When each snapshot came to the branch, of those that were asked for last.

        A merge brings snapshots that are older than itself.
        """
        return {commit.snapshot: commit.at for commit in self._line}

    def _back_to(
        self, head: int, missing: set[int], inside: set[int], *, whole: bool
    ) -> list[TableCommit]:
        self._walk(head, missing, inside, whole=whole)
        snapshots = [commit.snapshot for commit in self._line]
        if head not in snapshots:
            raise TransientError(f"the branch of {'.'.join(self._identifier)} moved meanwhile")
        first = {one: at + (one in inside) for at, one in enumerate(snapshots)}
        line = [first[one] for one in missing if one in first]
        complete = whole or len(line) < len(missing)
        return self._line[snapshots.index(head) : None if complete else max(line) + 1]

    def _walk(self, head: int, missing: set[int], inside: set[int], *, whole: bool) -> None:
        for known_line in ([*self._line], []):
            if not self._covers(head, missing, inside, whole=whole):
                self._line = self._walk_back(missing, inside, known_line, whole=whole)

    def _covers(self, head: int, missing: set[int], inside: set[int], *, whole: bool) -> bool:
        snapshots = [commit.snapshot for commit in self._line]
        if not snapshots or snapshots[0] != head or self._whole or whole:
            return bool(snapshots) and snapshots[0] == head and self._whole
        return missing <= {*snapshots} and inside <= {*snapshots[:-1]}

    def _walk_back(
        self, missing: set[int], inside: set[int], known: Sequence[TableCommit], *, whole: bool
    ) -> list[TableCommit]:
        """Back to what is known, to what is missing, or to the commit that made the table."""
        commits: list[TableCommit] = []
        left = set(missing)
        for commit in self._catalog.commits(self._identifier):
            if known and commit.hash == known[0].hash:
                again = bool(commits) and commits[-1].snapshot == commit.snapshot
                if again:
                    commits[-1] = replace(commits[-1], at=known[0].at)
                return [*commits, *known[again:]]
            if commits and commits[-1].snapshot == commit.snapshot:  # it changed properties only
                commits[-1] = replace(commits[-1], at=commit.at)
                continue
            commits.append(commit)
            left.discard(commit.snapshot)
            if not (left or known or whole or commit.snapshot in inside):
                self._whole = False
                return commits
        self._whole = True
        return commits

    def _load(self, table: Table, line: Sequence[TableCommit]) -> list[Snapshot]:
        """The snapshots of the line, the oldest first, each with the one before as its parent.

        One that comes again was put back: what came between is no longer in the table.
        """
        with ThreadPoolExecutor(THREADS) as pool:
            shown = [*pool.map(lambda commit: self._snapshot(table, commit), line)][::-1]
            following = pool.map(lambda pair: _following(table, *pair), _successive(shown))
            return [*shown[:1], *following]

    def _snapshot(self, table: Table, commit: TableCommit) -> Snapshot:
        key = (str(table.metadata.table_uuid), commit.snapshot, 0)
        return _from_cache(key) or _keep(key, self._catalog.snapshot(commit, self._identifier))


def _successive(line: Sequence[Snapshot]) -> list[tuple[Snapshot, Snapshot]]:
    """Each snapshot that comes for the first time, with the one that was current before it."""
    pairs: dict[int, tuple[Snapshot, Snapshot]] = {}
    for before, one in pairwise(line):
        if one.snapshot_id != line[0].snapshot_id:
            pairs.setdefault(one.snapshot_id, (one, before))
    return [*pairs.values()]


def _following(table: Table, snapshot: Snapshot, before: Snapshot) -> Snapshot:
    key = (str(table.metadata.table_uuid), snapshot.snapshot_id, before.snapshot_id)
    if cached := _from_cache(key):
        return cached
    update: dict[str, Any] = {"parent_snapshot_id": before.snapshot_id}
    if _written_after(table, snapshot) != str(before.snapshot_id):
        update["summary"] = _summary(snapshot, compare_snapshots(table.io, before, snapshot))
    return _keep(key, snapshot.model_copy(update=update))


def _written_after(table: Table, snapshot: Snapshot) -> str | None:
    """The snapshot's own parent, as whoever wrote it has noted in the manifest list."""
    with AvroFile[Any](table.io.new_input(snapshot.manifest_list)) as written:
        return written.header.meta.get(_PARENT)


def _from_cache(key: _Key) -> Snapshot | None:
    with _lock:
        if key in _snapshots:
            _snapshots.move_to_end(key)
        return _snapshots.get(key)


def _keep(key: _Key, snapshot: Snapshot) -> Snapshot:
    with _lock:
        _snapshots[key] = snapshot
        while len(_snapshots) > KEPT:
            _snapshots.popitem(last=False)
    return snapshot


def _is_merged(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary[MERGED] is not None


def _summary(snapshot: Snapshot, change: IcebergChanged) -> Summary:
    takes_away = bool(change.removed or change.deletes)
    operation = Operation.OVERWRITE if takes_away else Operation.APPEND
    total = snapshot.summary["total-records"] if snapshot.summary else None
    figures = {
        "added-data-files": str(len(change.added)),
        "added-records": str(sum(file.record_count for file in change.added)),
        "deleted-data-files": str(len(change.removed)),
        "deleted-records": str(sum(file.record_count for file in change.removed)),
        "added-delete-files": str(len(change.deletes)),
        **({} if total is None else {"total-records": str(total)}),
        MERGED: "true",
    }
    return Summary(operation=operation, **figures)
