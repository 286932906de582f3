"""A table that is kept small by the flow that writes it, between two commits, without a job."""

from __future__ import annotations

import json
import logging
import time
from datetime import datetime, timedelta

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from pyiceberg.types import TimestamptzType

from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.maintenance import compact
from dataflow_assets.connectors.iceberg.maintenance.compact import KEY, Moved, live, still
from dataflow_assets.connectors.iceberg.maintenance.expire import expire, own_age
from dataflow_assets.connectors.iceberg.maintenance.orphans import sweep_later
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.table.commit import Committer, TableChange
from dataflow_assets.connectors.iceberg.table.foreign import ForeignWriters
from dataflow_assets.contracts import utc_now
from dataflow_assets.errors import DataflowError
from dataflow_assets.failpoints import reach

log = logging.getLogger(__name__)

EVERY = 8  # commits of a flow between two looks
SHARE, LEAST_SECONDS = 0.5, 5.0
"""Of the time since the last look, how much may go into merging files; and at least so much."""
EXPIRE_SECONDS = 600.0
SNAPSHOTS = 10
"""So many stay, however old. Files of snapshots that expire stay for as long as ORPHANS."""
ORPHANS = timedelta(days=3)
SWEEP = timedelta(days=1)
SWEPT = "dataflow.swept"
"""The property that says when files were last looked for."""


class Upkeep:
    """Maintenance of one table, for as long as a session of its flow lives; used by one thread."""

    def __init__(self, sink: TableSinkOptions) -> None:
        self._sink = sink
        self._commits = 0
        self._looked = time.monotonic()
        self._expired = -EXPIRE_SECONDS
        self._foreign = ForeignWriters()

    def after_commit(self, committer: Committer) -> None:
        """A turn now and then; the first commit of a run has one.

        What fails here is a warning: rows and checkpoint are stored, and the next turn tries again.
        """
        if self._sink.written_alone and committer.table.name() == self._sink.identifier:
            self._foreign.look(committer.table)
        self._commits += 1
        if (self._commits - 1) % EVERY:
            return
        try:
            with translate_errors(self._sink, "tidy"):
                self._turn(committer)
        except DataflowError as error:
            log.warning("%s; the flow goes on, and its table is tidied later", error)

    def _turn(self, committer: Committer) -> None:
        self._merge(committer)
        if time.monotonic() - self._expired < EXPIRE_SECONDS:
            return
        self._expired = time.monotonic()
        self._forget(committer)
        stay = self._sink.snapshots_stay
        if stay is None or committer.table.properties.get("gc.enabled", "").lower() == "false":
            return
        age = max(stay, own_age(committer.table))
        expire(committer.catalog, committer.table, SNAPSHOTS, utc_now() - age)
        if _is_due(committer.table.properties.get(SWEPT)):
            table = committer.table
            update = SetPropertiesUpdate(updates={SWEPT: json.dumps(utc_now().isoformat())})
            same = AssertTableUUID(uuid=table.metadata.table_uuid)
            committer.catalog.commit_table(table, (same,), (update,))
            sweep_later(committer.catalog, table, utc_now(), ORPHANS)
        committer.reload()

    def _forget(self, committer: Committer) -> None:
        """Rows beyond the retention, of the flow's table alone."""
        retention, column = self._sink.row_retention
        if retention is None or committer.table.name() != self._sink.identifier:
            return
        gone = forget_rows(committer, column, utc_now() - retention)
        if gone:
            log.info("%s: %d files are too old", ".".join(self._sink.identifier), gone)

    def _merge(self, committer: Committer) -> None:
        """Group after group, until there is none or the time is over: as files come, they go."""
        began = time.monotonic()
        until = began + max(LEAST_SECONDS, SHARE * (began - self._looked))
        while merged := compact.turn(committer, self._sink.target_file_size_bytes):
            log.info("%s: %d files became one", ".".join(committer.table.name()), merged)
            if time.monotonic() > until:
                break
        self._looked = time.monotonic()


def _is_due(text: str | None) -> bool:
    return text is None or utc_now() - datetime.fromisoformat(json.loads(text)) > SWEEP


def forget_rows(committer: Committer, column: str, before: datetime) -> int:
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
