"""Snapshots that another program has committed to a table which its flow writes alone."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dataflow_assets.connectors.iceberg.table.commit import FRAME
from dataflow_assets.connectors.iceberg.table.lineage import COMMIT_ID

log = logging.getLogger(__name__)

_OURS = (COMMIT_ID, FRAME)
_NAMES = (
    "engine-name",
    "engine-version",
    "app-name",
    "app-id",
    "spark.app.id",
    "flink.job-id",
    "trino_query_id",
    "trino_user",
    "iceberg-version",
)
"""What engines write about themselves into the summary of a snapshot."""


class ForeignWriters:
    """Other writers of one table, each named once in the life of a session."""

    def __init__(self) -> None:
        self._reported: set[int] = set()

    def look(self, table: Table) -> None:
        """Warns of snapshots that are not ours; called on the driver behind each commit."""
        for snapshot in table.metadata.snapshots:
            if snapshot.snapshot_id not in self._reported and not _is_ours(snapshot):
                self._reported.add(snapshot.snapshot_id)
                log.warning(
                    "table %s: snapshot %d of %s was written by another program (%s). Its flow "
                    "must be the only one that writes the table: find that program and stop it",
                    ".".join(table.name()),
                    snapshot.snapshot_id,
                    _time(snapshot),
                    writer(snapshot),
                )


def _is_ours(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    return summary is not None and any(summary[key] is not None for key in _OURS)


def writer(snapshot: Snapshot) -> str:
    """Returns what the snapshot says about the program that made it."""
    summary = snapshot.summary
    properties = {key: summary[key] for key in _NAMES} if summary else {}
    words = [f"{key} {value}" for key, value in properties.items() if value is not None]
    what = f"{summary.operation.value}; " if summary else ""
    return what + (", ".join(words) or "it does not say its name, as PyIceberg does not")


def _time(snapshot: Snapshot) -> str:
    return f"{datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
