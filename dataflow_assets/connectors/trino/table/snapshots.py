"""What the snapshots of a table tell about a statement: whether its rows are there.

Each snapshot has the id of the query that made it, and names the snapshot before it. But a catalog
of Nessie shows the last one only, without the one before it, and snapshots expire: then the names
of the data files, which begin with the id of the query, are the only trace of a commit, and
`table.commits` the only proof that there was none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataflow_assets.connectors.trino.client import TrinoClient, literal
from dataflow_assets.connectors.trino.table.commits import entries, ruled_out
from dataflow_assets.connectors.trino.table.table import TrinoTable
from dataflow_assets.errors import TransientError

_QUERY = "element_at(summary, 'trino_query_id')"
_HEAD = "SELECT CAST(snapshot_id AS varchar) FROM {refs} WHERE name = 'main'"
_LINE = "SELECT CAST(snapshot_id AS varchar), CAST(parent_id AS varchar), {query} FROM {snapshots}"
_FILES = "FROM {files} WHERE regexp_like(file_path, '/({queries})-')"
_LOOKS = 3  # at a table that others change meanwhile
_WRITTEN = "SELECT DISTINCT regexp_extract(file_path, '/({queries})-', 1) "


def head(client: TrinoClient, table: TrinoTable) -> str | None:
    """The id of the table's current snapshot; None for a table without any. Raises Failure."""
    ref = client.value(_HEAD.format(refs=table.place.metadata_table("refs")))
    return None if ref is None else str(ref)


def have_stored(
    client: TrinoClient, table: TrinoTable, bases: Mapping[str, str | None], *, prove: bool
) -> dict[str, bool | None]:
    """By its id whether each statement has stored rows; None: nothing tells. Raises Failure.

    Called when a session opens, of statements that have ended or will never begin. The table is
    asked a few times, whatever their number.

    Args:
        client: of the sink.
        table: the target.
        bases: by the id of each statement the current snapshot just before it; None for a table
            without any.
        prove: also by the files of others that a statement has failed.

    Raises:
        TransientError: others change the table faster than it can be looked at.
    """
    for _ in range(_LOOKS):
        current = head(client, table)
        stored = _by_snapshots(client, table, bases, current)
        unsure = {query: bases[query] for query, state in stored.items() if state is None}
        if not unsure or not prove:
            return stored
        left = entries(client, table, unsure)
        if head(client, table) == current:
            failed = [q for q, base in unsure.items() if ruled_out(left, q, base, current)]
            return stored | dict.fromkeys(failed, False)
    raise TransientError(
        f"{table.place}: others change the table faster than its files can be looked at "
        f"({_LOOKS} times)"
    )


def _by_snapshots(
    client: TrinoClient, table: TrinoTable, bases: Mapping[str, str | None], current: str | None
) -> dict[str, bool | None]:
    sql = _LINE.format(query=_QUERY, snapshots=table.place.metadata_table("snapshots"))
    line = client.rows(sql)
    before = {own: parent for own, parent, _ in line}
    unbroken = {query: reaches(before, current, base) for query, base in bases.items()}
    sure = {query for _, _, query in line}
    # Nessie names no snapshot before another; and after a rollback rows may have been added again.
    since = _line(before, current)
    unproven = [q for q in bases if q not in sure and not (unbroken[q] and bases[q] in since)]
    sure |= _with_files(client, table, unproven)
    return {q: True if q in sure else (False if unbroken[q] else None) for q in bases}


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
    line, at = set[str](), last
    while at is not None and at not in line:
        line.add(at)
        at = before.get(at)
    return line


def unless_committed(table: TrinoTable, queries: Sequence[str]) -> str:
    """The condition that no such query has committed to the table, as SQL inside a statement.

    The table is asked twice, whatever the number of queries: Trino limits the stages of a query.
    """
    listed, quoted = table.place.metadata_table("snapshots"), ", ".join(map(literal, queries))
    unlisted = f"NOT EXISTS (SELECT 1 FROM {listed} WHERE {_QUERY} IN ({quoted}))"  # noqa: S608 - quoted
    return f"{unlisted} AND NOT EXISTS (SELECT 1 {_fill(_FILES, table, queries)})"


def _with_files(client: TrinoClient, table: TrinoTable, queries: Sequence[str]) -> set[str]:
    if not queries:
        return set()
    return {str(query) for (query,) in client.rows(_fill(_WRITTEN + _FILES, table, queries))}


def _fill(sql: str, table: TrinoTable, queries: Sequence[str]) -> str:
    """Ids of queries are letters, digits and underscores."""
    return sql.format(files=table.place.metadata_table("files"), queries="|".join(queries))
