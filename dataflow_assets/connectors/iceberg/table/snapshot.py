"""One commit request: the snapshot it adds, and the head it asserts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from dataflow_assets.connectors.iceberg.table.manifest_files import (
    added_entry,
    again,
    current_manifests,
    small,
    write,
)


@dataclass
class IcebergAttempt:
    """One request as it is sent, and what became of it."""

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    based_on: int
    """Sequence number of the table that was seen."""
    written: list[str] = field(default_factory=list)
    unknown: bool = False


def head(table: Table) -> int | None:
    """The snapshot that the main branch points to."""
    ref = table.metadata.refs.get(MAIN_BRANCH)
    return ref.snapshot_id if ref else None


def total_records(table: Table) -> int | None:
    """The rows in the table; None where its snapshot does not tell them for certain."""
    current = table.metadata.snapshot_by_name(MAIN_BRANCH)
    if current is None:
        return 0
    summary = current.summary
    if summary is None or summary["total-records"] is None:
        return None
    deleted = ("total-position-deletes", "total-equality-deletes")
    hidden = any(int(summary[name] or 0) for name in deleted)
    return None if hidden else int(summary["total-records"])


def total_files(table: Table) -> int | None:
    """The data files of the table; None where its snapshot does not tell."""
    current = table.metadata.snapshot_by_name(MAIN_BRANCH)
    if current is None:
        return 0
    count = current.summary["total-data-files"] if current.summary else None
    return None if count is None else int(count)


def asserting(table: Table, *updates: TableUpdate) -> IcebergAttempt:
    """Updates that fail unless the table still has the head that was seen."""
    same = AssertTableUUID(uuid=table.metadata.table_uuid)
    unmoved = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head(table)})
    return IcebergAttempt(updates, (same, unmoved), table.metadata.next_sequence_number() - 1)


def appending(
    table: Table,
    files: Sequence[DataFile],
    notes: dict[str, str],
    *updates: TableUpdate,
    tidy: bool = True,
) -> IcebergAttempt:
    """This metadata with a new snapshot that adds the files; no files make a snapshot too.

    `tidy` merges small manifests once there are many, as every commit leaves one.
    """
    snapshot_id = table.metadata.new_snapshot_id()
    entries = [added_entry(snapshot_id, file) for file in files]
    summary = _summary(table, Operation.APPEND, files, [], notes)
    others = current_manifests(table)
    for manifest in small(table, others) if tidy else []:
        others.remove(manifest)
        entries += map(again, manifest.fetch_manifest_entry(table.io))
    return _snapshot(table, snapshot_id, entries, others, summary, *updates)


def replacing(
    table: Table,
    files: Sequence[DataFile],
    gone: frozenset[str],
    notes: dict[str, str],
    *updates: TableUpdate,
    operation: Operation = Operation.OVERWRITE,
) -> IcebergAttempt:
    """This metadata with a new snapshot that adds the files and takes those of the paths out."""
    snapshot_id = table.metadata.new_snapshot_id()
    entries = [added_entry(snapshot_id, file) for file in files]
    removed: list[DataFile] = []
    others: list[ManifestFile] = []
    for manifest in current_manifests(table):
        live = manifest.fetch_manifest_entry(table.io)
        mine = [entry.data_file for entry in live if entry.data_file.file_path in gone]
        if not mine:
            others.append(manifest)
            continue
        removed += mine
        entries += [again(e, snapshot_id if e.data_file.file_path in gone else None) for e in live]
    summary = _summary(table, Operation.OVERWRITE, files, removed, notes)
    return _snapshot(table, snapshot_id, entries, others, summary, *updates, operation=operation)


def emptying(table: Table, notes: dict[str, str], *updates: TableUpdate) -> IcebergAttempt:
    """This metadata with a new snapshot that lists every file as deleted."""
    snapshot_id = table.metadata.new_snapshot_id()
    removed: list[DataFile] = []
    entries: list[ManifestEntry] = []
    for manifest in current_manifests(table):
        live = manifest.fetch_manifest_entry(table.io)
        removed += [entry.data_file for entry in live]
        if manifest.content == ManifestContent.DATA:
            entries += [again(entry, snapshot_id) for entry in live]
    summary = _summary(table, Operation.DELETE, [], removed, notes)
    return _snapshot(table, snapshot_id, entries, [], summary, *updates)


def _summary(
    table: Table,
    operation: Operation,
    files: Sequence[DataFile],
    removed: Sequence[DataFile],
    notes: dict[str, str],
) -> Summary:
    collector = SnapshotSummaryCollector()
    for file in files:
        collector.add_file(file, table.schema(), table.specs()[file.spec_id])
    for file in removed:
        collector.remove_file(file, table.schema(), table.specs()[file.spec_id])
    return Summary(operation=operation, **collector.build(), **notes)


def _snapshot(  # noqa: PLR0913 - one snapshot's whole story
    table: Table,
    snapshot_id: int,
    entries: Sequence[ManifestEntry],
    others: Sequence[ManifestFile],
    summary: Summary,
    *updates: TableUpdate,
    operation: Operation | None = None,
) -> IcebergAttempt:
    """`operation`: where it is another one than that by which PyIceberg counts totals."""
    written = write(table, snapshot_id, entries, others)
    current = table.metadata.snapshot_by_name(MAIN_BRANCH)
    counted = update_snapshot_summaries(summary, current.summary if current else None)
    if operation is not None:
        counted = Summary(operation=operation, **counted.additional_properties)
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": head(table),
            "manifest-list": written[-1],
            "sequence-number": table.metadata.next_sequence_number(),
            "summary": counted,
            "schema-id": table.metadata.current_schema_id,
        }
    )
    moved = SetSnapshotRefUpdate.model_validate(
        {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
    )
    attempt = asserting(table, AddSnapshotUpdate(snapshot=snapshot), moved, *updates)
    attempt.written = written
    return attempt
