"""One commit request: manifests written, updates and the head they assert."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table, TableProperties
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

SMALL_MANIFEST = 1024 * 1024  # bytes; longer ones are not merged again


@dataclass
class Attempt:
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


def asserting(table: Table, *updates: TableUpdate) -> Attempt:
    """Updates that fail unless the table still has the head that was seen."""
    same = AssertTableUUID(uuid=table.metadata.table_uuid)
    unmoved = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head(table)})
    return Attempt(updates, (same, unmoved), table.metadata.next_sequence_number() - 1)


def appending(
    table: Table,
    files: Sequence[DataFile],
    notes: dict[str, str],
    *updates: TableUpdate,
    tidy: bool = True,
) -> Attempt:
    """The same with a new snapshot that adds the files; no files make a snapshot too.

    `tidy` merges small manifests once there are many, as every commit leaves one.
    """
    snapshot_id = table.metadata.new_snapshot_id()
    entries = [_entry(ManifestEntryStatus.ADDED, snapshot_id, file) for file in files]
    collector = SnapshotSummaryCollector()
    for file in files:
        collector.add_file(data_file=file, schema=table.schema(), partition_spec=table.spec())
    summary = Summary(operation=Operation.APPEND, **collector.build(), **notes)
    kept = _kept(table)
    small = _small(table, kept) if tidy else []
    for manifest in small:
        kept.remove(manifest)
        live = manifest.fetch_manifest_entry(table.io)
        entries += [
            _again(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in live
        ]
    return _snapshot(table, snapshot_id, entries, kept, summary, *updates)


def _small(table: Table, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """The manifests to merge: none until there are enough of them."""
    enabled = table.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "true") == "true"
    least = int(table.properties.get(TableProperties.MANIFEST_MIN_MERGE_COUNT, 100))
    found = [
        manifest
        for manifest in manifests
        if manifest.content == ManifestContent.DATA
        and manifest.partition_spec_id == table.spec().spec_id
        and manifest.manifest_length < SMALL_MANIFEST
    ]
    return found if enabled and len(found) >= least else []


def emptying(table: Table, notes: dict[str, str], *updates: TableUpdate) -> Attempt:
    """The same with a new snapshot that lists every file as deleted."""
    snapshot_id = table.metadata.new_snapshot_id()
    collector = SnapshotSummaryCollector()
    entries: list[ManifestEntry] = []
    for manifest in _kept(table):
        for entry in manifest.fetch_manifest_entry(table.io):
            spec = table.specs()[manifest.partition_spec_id]
            collector.remove_file(entry.data_file, table.schema(), spec)
            if manifest.content == ManifestContent.DATA:
                entries.append(_again(entry, ManifestEntryStatus.DELETED, snapshot_id))
    summary = Summary(operation=Operation.DELETE, **collector.build(), **notes)
    return _snapshot(table, snapshot_id, entries, [], summary, *updates)


def _entry(status: ManifestEntryStatus, snapshot_id: int, file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def _again(
    entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None
) -> ManifestEntry:
    """An entry of an older manifest, its sequence numbers spelled out."""
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _kept(table: Table) -> list[ManifestFile]:
    """The current snapshot's manifests that still list something."""
    current = table.metadata.snapshot_by_name(MAIN_BRANCH)
    known = current.manifests(table.io) if current else []
    return [m for m in known if m.has_added_files() or m.has_existing_files()]


def added_since(table: Table, sequence_number: int) -> set[str]:
    """The data files that manifests written after that number list."""
    newer = [m for m in _kept(table) if m.sequence_number > sequence_number]
    entries = (entry for manifest in newer for entry in manifest.fetch_manifest_entry(table.io))
    return {entry.data_file.file_path for entry in entries}


def _snapshot(
    table: Table,
    snapshot_id: int,
    entries: Sequence[ManifestEntry],
    kept: Sequence[ManifestFile],
    summary: Summary,
    *updates: TableUpdate,
) -> Attempt:
    written: list[str] = []
    manifests = list(kept)
    if entries:
        written.append(_new_path(table, f"{uuid.uuid4()}-m0.avro"))
        manifests.insert(0, _write_manifest(table, snapshot_id, written[0], entries))
    written.append(_new_path(table, f"snap-{snapshot_id}-0-{uuid.uuid4()}.avro"))
    _write_list(table, snapshot_id, written[-1], manifests)
    current = table.metadata.snapshot_by_name(MAIN_BRANCH)
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": head(table),
            "manifest-list": written[-1],
            "sequence-number": table.metadata.next_sequence_number(),
            "summary": update_snapshot_summaries(summary, current.summary if current else None),
            "schema-id": table.metadata.current_schema_id,
        }
    )
    moved = SetSnapshotRefUpdate.model_validate(
        {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
    )
    attempt = asserting(table, AddSnapshotUpdate(snapshot=snapshot), moved, *updates)
    attempt.written = written
    return attempt


def _write_manifest(
    table: Table, snapshot_id: int, path: str, entries: Sequence[ManifestEntry]
) -> ManifestFile:
    with write_manifest(
        format_version=table.metadata.format_version,
        spec=table.spec(),
        schema=table.schema(),
        output_file=table.io.new_output(path),
        snapshot_id=snapshot_id,
        avro_compression=_compression(table),
    ) as writer:
        for entry in entries:
            writer.add_entry(entry)
    return writer.to_manifest_file()


def _write_list(
    table: Table, snapshot_id: int, path: str, manifests: Sequence[ManifestFile]
) -> None:
    with write_manifest_list(
        format_version=table.metadata.format_version,
        output_file=table.io.new_output(path),
        snapshot_id=snapshot_id,
        parent_snapshot_id=head(table),
        sequence_number=table.metadata.next_sequence_number(),
        avro_compression=_compression(table),
    ) as writer:
        writer.add_manifests(list(manifests))


def _new_path(table: Table, name: str) -> str:
    return table.location_provider().new_metadata_location(name)


def _compression(table: Table) -> AvroCompressionCodec:
    name = table.properties.get(TableProperties.WRITE_AVRO_COMPRESSION)
    return cast("AvroCompressionCodec", name or TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT)
