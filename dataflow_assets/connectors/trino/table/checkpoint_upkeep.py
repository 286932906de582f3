"""Keeps the table of checkpoints small where its catalog is Iceberg's.

Each change of a row leaves a data file, a file that takes the old row out, and a snapshot: without
this every statement that asks for the checkpoint takes longer than the one before. Of the target's
own table nothing is touched.
"""

from __future__ import annotations

import logging
from contextlib import closing

from dataflow_assets.connectors.trino.client import TrinoClient, literal, quote
from dataflow_assets.connectors.trino.errors import ANY
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table.table import TrinoPlace

log = logging.getLogger(__name__)

MOST_FILES = 12
"""Files of a branch above which they become one."""
MOST_SNAPSHOTS = 100
"""Snapshots that nobody reads any more above which they go."""
_HOUR = 3_600


def retention(sink: TrinoSinkOptions) -> int:
    """Seconds for which a snapshot stays: a statement may read what was there when it began."""
    return max(_HOUR, 2 * sink.seconds)


def keep_small(sink: TrinoSinkOptions, place: TrinoPlace, branch: str) -> None:
    """One query, and statements only where there is something to do.

    Called on the driver when a session opens and now and then between micro-batches. What fails is
    logged: nothing depends on it, and the next turn tries again.

    Args:
        sink: whose session it is.
        place: the table of checkpoints.
        branch: `Target.id`; only the files of its own row are rewritten.
    """
    try:
        with closing(TrinoClient(sink, "dataflow-upkeep")) as client:
            seconds = retention(sink)
            files, old = _count(client, place, branch, seconds)
            if files > MOST_FILES:
                _rewrite(client, place, branch)
            if old > MOST_SNAPSHOTS:
                _expire(client, place, seconds)
    except ANY as error:
        log.debug("%s is not kept small: %s", place, error)


def _count(client: TrinoClient, place: TrinoPlace, branch: str, seconds: int) -> tuple[int, int]:
    """Files of the branch, and snapshots that nobody reads any more."""
    partitions, snapshots = place.metadata_table("partitions"), place.metadata_table("snapshots")
    mine = f"partition.id = {literal(branch)}"
    aged = f"committed_at < current_timestamp - INTERVAL '{seconds}' SECOND"
    files = f"SELECT sum(file_count) FROM {partitions} WHERE {mine}"  # noqa: S608 - quoted
    old = f"SELECT count(*) FROM {snapshots} WHERE {aged}"  # noqa: S608 - quoted
    ((files_count, expired),) = client.rows(f"SELECT ({files}), ({old})")
    return int(files_count or 0), int(expired)


def _rewrite(client: TrinoClient, place: TrinoPlace, branch: str) -> None:
    where = f"WHERE id = {literal(branch)}"
    client.run(f"ALTER TABLE {place.quoted_name} EXECUTE optimize {where}")


def _expire(client: TrinoClient, place: TrinoPlace, seconds: int) -> None:
    least = f"{quote(place.catalog)}.expire_snapshots_min_retention"
    client.run(f"SET SESSION {least} = '{seconds}s'")
    expire = f"expire_snapshots(retention_threshold => '{seconds}s')"
    client.run(f"ALTER TABLE {place.quoted_name} EXECUTE {expire}")
