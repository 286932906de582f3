"""The data files of a snapshot in a fixed order: all of them, or those that it added.

Snapshots never change, so that a place in this order means the same rows whenever it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import FileScanTask, ManifestGroupPlanner, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import PrimitiveType

from dataflow_assets.connectors.iceberg.table.position import Scan
from dataflow_assets.errors import PermanentError

MERGED = "dataflow.merged"
"""Marks a snapshot that follows another one than its own parent: its files tell what is new."""
_EVERY_FILE = {"include_empty_files": "true"}


@dataclass(frozen=True)
class SourceFile:
    """One data file: `deletes` are paths of files with positions to leave out.

    `values`: by field id, in Iceberg's binary form, in hexadecimal digits: what the partition tells
    of columns that a file imported from Hive does not hold itself.
    """

    path: str
    rows: int
    bytes: int
    deletes: tuple[str, ...] = ()
    values: dict[str, str] = field(default_factory=dict)

    def rows_in(self, size: int) -> int:
        """About how many of its rows take this many bytes."""
        return size * self.rows // max(1, self.bytes)

    def size(self, rows: int) -> int:
        """About how many bytes so many of its rows take."""
        return rows * self.bytes // max(1, self.rows)


def files(table: Table, snapshot: Snapshot, scan: Scan) -> tuple[SourceFile, ...]:
    """Oldest first, then by path. Raises PermanentError for what cannot be read."""
    numbers: dict[str, int] = {}
    added = _added_by_merge(table, snapshot) if scan == "added" else None

    def is_read(entry: ManifestEntry) -> bool:
        _check(table, entry.data_file)
        numbers[entry.data_file.file_path] = entry.sequence_number or 0
        if added is not None:
            return entry.data_file.file_path in added
        return scan == "full" or (
            entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
        )

    planner = ManifestGroupPlanner(table.metadata, table.io, options=_EVERY_FILE)
    manifests = _manifests(snapshot, table.io, scan if added is None else "full")
    tasks = planner.plan_files(manifests, is_read)
    source_files = [_source_file(table.metadata, task) for task in tasks]
    return tuple(sorted(source_files, key=lambda file: (numbers[file.path], file.path)))


@dataclass(frozen=True)
class IcebergChanged:
    """The files in which one snapshot differs from another one; `deletes` are new delete files."""

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]


def compare_snapshots(io: FileIO, older: Snapshot, newer: Snapshot) -> IcebergChanged:
    """Compares two snapshots of a table; manifests that both have are not read."""
    before = {manifest.manifest_path: manifest for manifest in older.manifests(io)}
    after = {manifest.manifest_path: manifest for manifest in newer.manifests(io)}
    old = _live(io, (before[path] for path in before.keys() - after.keys()))
    new = _live(io, (after[path] for path in after.keys() - before.keys()))
    more = [new[path] for path in sorted(new.keys() - old.keys())]
    gone = [old[path] for path in sorted(old.keys() - new.keys())]
    data = DataFileContent.DATA
    return IcebergChanged(
        tuple(file for file in more if file.content == data),
        tuple(file for file in gone if file.content == data),
        tuple(file for file in more if file.content != data),
    )


def _live(io: FileIO, manifests: Iterable[ManifestFile]) -> dict[str, DataFile]:
    entries = (entry for one in manifests for entry in one.fetch_manifest_entry(io))
    return {entry.data_file.file_path: entry.data_file for entry in entries}


def _added_by_merge(table: Table, snapshot: Snapshot) -> frozenset[str] | None:
    """The paths of what a merge has added; None where the snapshot follows its own parent."""
    parent = snapshot.parent_snapshot_id
    older = None if parent is None else table.metadata.snapshot_by_id(parent)
    if older is None or snapshot.summary is None or snapshot.summary[MERGED] is None:
        return None
    return frozenset(file.file_path for file in compare_snapshots(table.io, older, snapshot).added)


def _manifests(snapshot: Snapshot, io: FileIO, scan: Scan) -> Iterator[ManifestFile]:
    for manifest in snapshot.manifests(io):
        own = manifest.added_snapshot_id == snapshot.snapshot_id
        if scan == "full" or (own and manifest.content == ManifestContent.DATA):
            yield manifest


def _check(table: Table, file: DataFile) -> None:
    if file.content == DataFileContent.EQUALITY_DELETES:
        raise PermanentError(
            f"table {'.'.join(table.name())} has equality deletes ({file.file_path}), which cannot "
            "be applied when a snapshot is read in full: let its writer compact the table "
            "(rewrite_data_files), then run again"
        )
    data = file.content == DataFileContent.DATA
    if data and file.file_format != FileFormat.PARQUET:
        raise PermanentError(
            f"table {'.'.join(table.name())} has data in {file.file_format} files "
            f"({file.file_path}): only Parquet can be read; rewrite them (rewrite_data_files)"
        )


def _source_file(metadata: TableMetadata, task: FileScanTask) -> SourceFile:
    file = task.file
    deletes = tuple(sorted(delete.file_path for delete in task.delete_files))
    values = _partition_values(metadata, file)
    return SourceFile(file.file_path, file.record_count, file.file_size_in_bytes, deletes, values)


def _partition_values(metadata: TableMetadata, file: DataFile) -> dict[str, str]:
    values: dict[str, str] = {}
    schema, spec = metadata.schema(), metadata.specs()[file.spec_id or 0]
    for index, part in enumerate(spec.fields):
        value = file.partition[index]
        has_value = isinstance(part.transform, IdentityTransform) and value is not None
        if has_value and part.source_id in schema.field_ids:
            kind = spec.partition_type(schema).fields[index].field_type
            assert isinstance(kind, PrimitiveType)  # noqa: S101 - others cannot partition
            values[str(part.source_id)] = to_bytes(kind, value).hex()
    return values


def row_groups(io: FileIO, file: SourceFile) -> tuple[int, ...]:
    """The row numbers at which the file's row groups end. Reads the footer."""
    with io.new_input(file.path).open() as stream, pq.ParquetFile(stream) as parquet:
        footer = parquet.metadata
        ends, rows = [], 0
        for group in range(footer.num_row_groups):
            rows += footer.row_group(group).num_rows
            ends.append(rows)
        return tuple(ends)
