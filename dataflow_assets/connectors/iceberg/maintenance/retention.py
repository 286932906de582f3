"""Rows whose record is too old leave the table: whole files, in one commit."""

from __future__ import annotations

import json
from datetime import datetime

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.types import TimestamptzType

from dataflow_assets.connectors.iceberg.maintenance.compact import KEY, Moved, live, still
from dataflow_assets.connectors.iceberg.table.commit import Committer, TableChange
from dataflow_assets.failpoints import reach


def forget(committer: Committer, column: str, before: datetime) -> int:
    """Takes out the files all of whose rows are of before that time.

    Called on the driver between two commits of a flow. The table is partitioned by that time, so
    that no row stays for longer than its partition is wide. A row without a time stays.

    Args:
        committer: of the table, as the flow itself commits to it.
        column: with the time of each row.
        before: the oldest time that stays.

    Returns:
        How many files were taken out.

    Raises:
        TransientError: the commit could not be made, or nobody knows: the next call looks again.
    """
    field = committer.table.schema().find_field(column)
    oldest = int(before.timestamp() * 1_000_000)
    files = [entry.data_file for entry in live(committer.table)]
    gone = frozenset(one.file_path for one in files if _newest(one, field.field_id) < oldest)
    if not gone:
        return 0
    change = TableChange(KEY, lambda _: None, gone=gone, guard=still(gone))
    reach("iceberg.forgetting")
    try:
        committer.commit(change.putting(json.dumps({"commit": change.commit_id})))
    except Moved:
        return 0
    return len(gone)


def _newest(file: DataFile, field: int) -> int:
    """In microseconds; of a file with rows without a time none is old enough."""
    bound = (file.upper_bounds or {}).get(field)
    if bound is None or (file.null_value_counts or {}).get(field):
        return 1 << 63
    return int(from_bytes(TimestamptzType(), bound))
