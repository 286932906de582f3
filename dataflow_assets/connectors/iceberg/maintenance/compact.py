"""Small data files become long ones, while the flow that writes them runs.

A turn is bounded: it merges one group of files of one partition value and of about one size, so
that each row is written again as often as the size has digits, and not with each turn. One commit
takes the files out and puts the long one in; it changes no row and no checkpoint.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry
from pyiceberg.table import FileScanTask, Table

from dataflow_assets.connectors.iceberg.table.commit import Committer, TableChange
from dataflow_assets.connectors.iceberg.table.data_files import (
    ParquetFile,
    data_file,
    write_target,
)
from dataflow_assets.connectors.iceberg.table.file_writer import ROW_GROUP_BYTES
from dataflow_assets.connectors.iceberg.table.manifest_files import current_manifests
from dataflow_assets.connectors.iceberg.table.stored_rows import IcebergUnreadable, stored_rows
from dataflow_assets.connectors.iceberg.types import file_schema
from dataflow_assets.failpoints import reach

log = logging.getLogger(__name__)

KEY = "dataflow.maintenance"
"""The property by which the commit of a turn is found again."""
FEWEST = 16  # files of a group; also the ratio between two sizes
MOST = 64


class Moved(Exception):
    """Somebody else has taken out what was to be merged."""


def turn(committer: Committer, target_bytes: int) -> int:
    """Merges one group of small files, if there is one.

    Called on the driver between two commits of a flow.

    Args:
        committer: of the table, as the flow itself commits to it.
        target_bytes: how long files are to be; half of it is long enough.

    Returns:
        How many files became one.

    Raises:
        TransientError: the commit could not be made, or nobody knows: nothing is lost or doubled.
    """
    table = committer.table
    group = next(_groups(table, target_bytes), None)
    if group is None:
        return 0
    gone = frozenset(one.file_path for one in group)
    files = [data_file(_merge(table, group), table)]
    reach("iceberg.compacted")
    change = TableChange(
        KEY, lambda _: None, files=files, gone=gone, guard=still(gone), same_rows=True
    )
    text = json.dumps({"commit": change.commit_id})
    try:
        committer.commit(change.putting(text))
    except Moved:
        committer.discard(files)
        return 0
    return len(group)


def _groups(table: Table, target_bytes: int) -> Iterator[list[DataFile]]:
    """Groups of at least `FEWEST` files of one partition value and size, the oldest files first.

    None of a table with a sort order, which the rows of a merged file would not have.
    """
    if not table.sort_order().is_unsorted:
        return
    entries = [one for one in live(table) if one.data_file.file_size_in_bytes < target_bytes / 2]
    current = table.spec().spec_id
    ours = sorted((one for one in entries if one.data_file.spec_id == current), key=_kind_and_age)
    for _, some in groupby(ours, key=lambda one: _kind_and_age(one)[:2]):
        files = _within([one.data_file for one in some], target_bytes)
        if len(files) >= FEWEST:
            yield files


def _kind_and_age(entry: ManifestEntry) -> tuple[str, int, int]:
    size = entry.data_file.file_size_in_bytes
    tier = next(n for n in range(64) if size < FEWEST**n)
    return repr(entry.data_file.partition), tier, entry.sequence_number or 0


def _within(files: Sequence[DataFile], target_bytes: int) -> list[DataFile]:
    group: list[DataFile] = []
    for one in files[:MOST]:
        target_bytes -= one.file_size_in_bytes
        if target_bytes < 0:
            break
        group.append(one)
    return group


def live(table: Table) -> list[ManifestEntry]:
    """The data files of the current snapshot; none where others have left deletes beside them."""
    manifests = current_manifests(table)
    if any(one.content != ManifestContent.DATA for one in manifests):
        return []
    return [entry for one in manifests for entry in one.fetch_manifest_entry(table.io)]


def still(gone: frozenset[str]) -> Callable[[Table], None]:
    """A guard of a change: raises Moved where one of these files is not in the table any more."""

    def guard(table: Table) -> None:
        if not gone <= {one.data_file.file_path for one in live(table)}:
            raise Moved

    return guard


def _merge(table: Table, group: Sequence[DataFile]) -> str:
    """One file with the rows of all, in the columns that the table has now; as a document."""
    target = write_target(table)
    schema = file_schema(table.schema(), [column.name for column in table.schema().fields])
    file = ParquetFile(target, schema, "merged", group[0].partition)
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in (batch for one in group for batch in _rows(table, one, schema)):
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= ROW_GROUP_BYTES:
            file.write(pa.Table.from_batches(held, schema))
            held, held_bytes = [], 0
    if held:
        file.write(pa.Table.from_batches(held, schema))
    file.close()
    return file.document()


def _rows(table: Table, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Piece by piece; a file of another program without field ids is read by PyIceberg, whole."""
    try:
        yield from stored_rows(table.io, file.file_path, schema)
    except IcebergUnreadable:
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        for batch in scan.to_record_batches([FileScanTask(file)]):
            rows = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
            yield from rows.to_batches()
