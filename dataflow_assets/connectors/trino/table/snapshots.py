"""What the snapshots of a table tell about a statement: whether its rows are there.

Each snapshot has the id of the query that made it, and names the snapshot before it. But a catalog
of Nessie shows the last one only, without the one before it, and snapshots expire: then the names
of the data files, which begin with the id of the query, are the only trace.
"""

from __future__ import annotations

from collections.abc import Mapping

from dataflow_assets.connectors.trino.client import Client, literal
from dataflow_assets.connectors.trino.table.table import Table

_QUERY = "element_at(summary, 'trino_query_id')"
_HEAD = "SELECT CAST(snapshot_id AS varchar) FROM {refs} WHERE name = 'main'"
_LINE = (
    "SELECT CAST(snapshot_id AS varchar), CAST(parent_id AS varchar), "
    "coalesce({query} = {mine}, false) FROM {snapshots}"
)


def head(client: Client, table: Table) -> str | None:
    """The id of the table's current snapshot; None for a table without any. Raises Failure."""
    found = client.value(_HEAD.format(refs=table.place.hidden("refs")))
    return None if found is None else str(found)


def has_stored(client: Client, table: Table, query: str, base: str | None) -> bool | None:
    """Whether a statement has stored rows; None where nothing tells any more. Raises Failure.

    Called when a session opens, of a statement that has ended or will never begin.

    Args:
        client: of the sink.
        table: the target.
        query: the id of the statement.
        base: the current snapshot just before it; None for a table without any.
    """
    current = head(client, table)
    sql = _LINE.format(query=_QUERY, mine=literal(query), snapshots=table.place.hidden("snapshots"))
    line = client.rows(sql)
    if any(mine for _, _, mine in line):
        return True
    unbroken = reaches({own: before for own, before, _ in line}, current, base)
    if unbroken and base is not None:
        return False
    # What has no snapshot before it may be Nessie's, which names none.
    if _has_files(client, table, query):
        return True
    return False if unbroken else None


def reaches(before: Mapping[str, str | None], current: str | None, base: str | None) -> bool:
    """Whether each snapshot since the base is known: a base that is kept for a tag is no proof.

    A table that was rolled back comes from a snapshot before the base, which is as good: what was
    there before the base was there before the statement. A table that was replaced proves nothing:
    its rows may be copies of those before.

    Args:
        before: by the id of each snapshot that is listed the one that it was made on.
        current: the current snapshot.
        base: where to end, or before it; None: at the first of all.
    """
    older, at = _line(before, base), current
    while at is not None and at not in older:
        if at not in before:
            return False
        at = before[at]
    return at is not None or base is None


def _line(before: Mapping[str, str | None], last: str | None) -> set[str]:
    """A snapshot and those that it comes from, as far as they are listed."""
    found, at = set[str](), last
    while at is not None and at not in found:
        found.add(at)
        at = before.get(at)
    return found


def unless_committed(table: Table, query: str) -> str:
    """The condition that this query has not committed to the table, as SQL inside a statement."""
    listed = table.place.hidden("snapshots")
    mine = f"{_QUERY} = {literal(query)}"
    unlisted = f"NOT EXISTS (SELECT 1 FROM {listed} WHERE {mine})"  # noqa: S608 - quoted
    return f"{unlisted} AND NOT EXISTS (SELECT 1 FROM {_files_of(table, query)})"  # noqa: S608


def _has_files(client: Client, table: Table, query: str) -> bool:
    return bool(client.rows(f"SELECT 1 FROM {_files_of(table, query)} LIMIT 1"))  # noqa: S608


def _files_of(table: Table, query: str) -> str:
    """The files that the query has written, as what stands behind FROM."""
    return f"{table.place.hidden('files')} WHERE file_path LIKE {literal(f'%/{query}-%')}"
