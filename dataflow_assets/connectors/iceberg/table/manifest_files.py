"""Manifests and their lists: which files a snapshot holds, read and written."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
from pyiceberg.table.refs import MAIN_BRANCH

from dataflow_assets.sdk.durable_files import sync_written

SMALL_MANIFEST = 1024 * 1024  # bytes; longer ones are not merged again


def current_manifests(table: Table) -> list[ManifestFile]:
    """The current snapshot's manifests that still list something."""
    current = table.metadata.snapshot_by_name(MAIN_BRANCH)
    manifests = current.manifests(table.io) if current else []
    return [m for m in manifests if m.has_added_files() or m.has_existing_files()]


def small(table: Table, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """The manifests to merge: none until there are enough of them."""
    enabled = table.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "true") == "true"
    least = int(table.properties.get(TableProperties.MANIFEST_MIN_MERGE_COUNT, 100))
    small_ones = [
        manifest
        for manifest in manifests
        if manifest.content == ManifestContent.DATA
        and manifest.partition_spec_id == table.spec().spec_id
        and manifest.manifest_length < SMALL_MANIFEST
    ]
    return small_ones if enabled and len(small_ones) >= least else []


def added_since(table: Table, sequence_number: int) -> set[str]:
    """The data files that manifests written after that number list."""
    newer = [m for m in current_manifests(table) if m.sequence_number > sequence_number]
    entries = (entry for manifest in newer for entry in manifest.fetch_manifest_entry(table.io))
    return {entry.data_file.file_path for entry in entries}


def added_entry(snapshot_id: int, file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def again(entry: ManifestEntry, gone_in: int | None = None) -> ManifestEntry:
    """An entry of an older manifest, its sequence numbers spelled out.

    `gone_in`: the snapshot that takes the file out.
    """
    existing = gone_in is None
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING if existing else ManifestEntryStatus.DELETED,
        snapshot_id=entry.snapshot_id if existing else gone_in,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def write(
    table: Table, snapshot_id: int, entries: Iterable[ManifestEntry], others: Sequence[ManifestFile]
) -> list[str]:
    """Writes a manifest for each partition spec among the entries, and the list of all.

    What is taken out is in manifests of its own, which the next snapshot leaves out: else its files
    would be listed for as long as those beside them.

    The paths of what was written, the list's last.
    """
    by_spec: dict[tuple[int, bool], list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        gone = entry.status == ManifestEntryStatus.DELETED
        by_spec[entry.data_file.spec_id, gone].append(entry)
    paths: list[str] = []
    manifests: list[ManifestFile] = []
    for (spec_id, _), mine in by_spec.items():
        paths.append(_new_path(table, f"{uuid.uuid4()}-m0.avro"))
        manifests.append(_write_manifest(table, snapshot_id, paths[-1], mine, spec_id))
    paths.append(_new_path(table, f"snap-{snapshot_id}-0-{uuid.uuid4()}.avro"))
    _write_list(table, snapshot_id, paths[-1], [*manifests, *others])
    for path in paths:
        sync_written(path, table.location())
    return paths


def _write_manifest(
    table: Table, snapshot_id: int, path: str, entries: Sequence[ManifestEntry], spec_id: int
) -> ManifestFile:
    with write_manifest(
        format_version=table.metadata.format_version,
        spec=table.specs()[spec_id],
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
    current = table.metadata.snapshot_by_name(MAIN_BRANCH)
    with write_manifest_list(
        format_version=table.metadata.format_version,
        output_file=table.io.new_output(path),
        snapshot_id=snapshot_id,
        parent_snapshot_id=current.snapshot_id if current else None,
        sequence_number=table.metadata.next_sequence_number(),
        avro_compression=_compression(table),
    ) as writer:
        writer.add_manifests(list(manifests))


def _new_path(table: Table, name: str) -> str:
    return table.location_provider().new_metadata_location(name)


def _compression(table: Table) -> AvroCompressionCodec:
    name = table.properties.get(TableProperties.WRITE_AVRO_COMPRESSION)
    return cast("AvroCompressionCodec", name or TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT)
