"""What the files of a table prove about commits whose snapshots are not listed any more.

Each commit to a table of Iceberg takes the next sequence number, and each file keeps the number and
the snapshot of the commit that has added it. If each number since the snapshot before a statement
has a file that others have written, no number is left for a commit of the statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dataflow_assets.connectors.trino.client import TrinoClient, literal
from dataflow_assets.connectors.trino.errors import DENIED, MISSING, TrinoFailure
from dataflow_assets.connectors.trino.table.table import TrinoTable

_ENTRIES = (
    "SELECT DISTINCT IF(status <> 2, CAST(snapshot_id AS varchar)), file_sequence_number, "
    "regexp_extract(data_file.file_path, '/({queries})-', 1) FROM {entries} "
    "WHERE file_sequence_number >= (SELECT min(file_sequence_number) FROM {entries} "
    "WHERE status <> 2 AND CAST(snapshot_id AS varchar) IN ({bases}))"
)
_NOT_LISTED = MISSING | {DENIED, "NOT_SUPPORTED", "GENERIC_INTERNAL_ERROR"}


class TrinoEntry(NamedTuple):
    """A file of the table, or several of one commit."""

    snapshot: str | None
    """That has added the file; None where the current snapshot has removed the file."""
    number: int
    """The sequence number of the commit that has added the file."""
    query: str | None
    """Which of the queries in doubt has written the file; None: somebody else."""


def entries(
    client: TrinoClient, table: TrinoTable, bases: Mapping[str, str | None]
) -> list[TrinoEntry]:
    """The files of the current snapshot, from the first one that a base has added.

    Called when a session opens, where the snapshots tell nothing. Raises Failure. Trino 476 cannot
    list files whose sort order is not stated, as PyIceberg writes them: that is no outage. A Trino
    that does not know the table of entries says that this table is not found.

    Args:
        client: of the sink.
        table: the target.
        bases: by the id of each query in doubt the snapshot just before it.

    Returns:
        Nothing where no base has files left, where the user may not read `"<table>$entries"`, or
        where Trino cannot list the files.
    """
    present = [base for base in bases.values() if base is not None]
    if not present:
        return []
    sql = _ENTRIES.format(
        entries=table.place.metadata_table("entries"),
        queries="|".join(bases),
        bases=", ".join(map(literal, present)),
    )
    try:
        return [TrinoEntry(snapshot, number, query) for snapshot, number, query in client.rows(sql)]
    except TrinoFailure as failure:
        if failure.name not in _NOT_LISTED:
            raise
        return []


def ruled_out(
    found: Sequence[TrinoEntry], query: str, base: str | None, current: str | None
) -> bool:
    """Whether it is certain that the statement has not committed, whatever has happened since.

    A file of the base proves that the base is one of the snapshots that the current one comes from:
    a commit of the statement would have a later number. Format version 1 has no numbers.

    Args:
        found: as `entries` has returned them.
        query: the id of the statement.
        base: the snapshot just before the statement; None: not known.
        current: the current snapshot.
    """
    after, last = _number(found, base), _number(found, current)
    others = {one.number for one in found if one.query != query}
    if not 0 < after < last or any(one.query == query for one in found):
        return False
    return last - after <= len(others) and others.issuperset(range(after + 1, last + 1))


def _number(found: Sequence[TrinoEntry], snapshot: str | None) -> int:
    """The sequence number of a snapshot; 0 where no file tells."""
    return max((one.number for one in found if snapshot and one.snapshot == snapshot), default=0)
