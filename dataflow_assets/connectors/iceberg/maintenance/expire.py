"""Old snapshots leave the table's metadata; rows and checkpoint stay.

The checkpoint is a property of the table, so no snapshot holds it. What a driver does look for in
snapshots is its own commit's id, minutes after an answer was lost: what was current within the last
hour is never removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from pyiceberg import exceptions as ice
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate

from dataflow_assets.connectors.iceberg.table.snapshot import asserting, head
from dataflow_assets.errors import TransientError

ATTEMPTS = 10


def expire(catalog: Catalog, table: Table, least: int, before: datetime) -> int:
    """Removes what is older, in one commit; how many. Gives way to writers, never the other way.

    The commit asserts the head: a table that was rolled back meanwhile is looked at again.
    """
    for attempt in range(ATTEMPTS):
        ids = sorted(expired_snapshots(table, least, before))
        if not ids:
            return 0
        request = asserting(table, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}))
        try:
            catalog.commit_table(table, request.requirements, request.updates)
        except ice.CommitFailedException:
            time.sleep(0.1 * 2**attempt)
            table = catalog.load_table(table.name())
        else:
            return len(ids)
    raise TransientError(f"table {'.'.join(table.name())} moves too fast to expire snapshots")


def expired_snapshots(table: Table, least: int, before: datetime) -> set[int]:
    """Snapshots of the main branch that stopped being current before that, but for the last ones.

    Kept are also heads of branches and tags, and what the table's own properties ask to keep.
    """
    properties = table.properties
    least = max(least, int(properties.get(TableProperties.MIN_SNAPSHOTS_TO_KEEP, 1)), 1)
    referenced = {ref.snapshot_id for ref in table.metadata.refs.values()}
    lineage = list(_lineage(table))
    old = {
        snapshot.snapshot_id
        for follower, snapshot in pairwise(lineage)
        if follower.timestamp_ms < before.timestamp() * 1000
    }
    return old - referenced - {snapshot.snapshot_id for snapshot in lineage[:least]}


def own_age(table: Table) -> timedelta:
    """For how long the table's own properties ask to keep snapshots."""
    return timedelta(milliseconds=int(table.properties.get(TableProperties.MAX_SNAPSHOT_AGE_MS, 0)))


def _lineage(table: Table) -> Iterator[Snapshot]:
    """The head of the main branch, what it was made from, and so on."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    place = head(table)
    while place in snapshots:
        yield snapshots[place]
        place = snapshots.pop(place).parent_snapshot_id
