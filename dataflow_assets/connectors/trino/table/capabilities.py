"""What a catalog can do, found by trying it on the very table: names of catalogs say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataflow_assets.connectors.trino.client import Client, quote
from dataflow_assets.connectors.trino.errors import Failure
from dataflow_assets.connectors.trino.table.table import Table
from dataflow_assets.errors import PermanentError

_LISTED = "SELECT element_at(summary, 'trino_query_id') FROM {snapshots} LIMIT 1"
_MERGE = """
MERGE INTO {target} t USING (SELECT * FROM {target} WHERE false) s ON {same}
WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})
"""


@dataclass(frozen=True)
class Capabilities:
    """What one table's catalog can do."""

    snapshots: bool
    """It lists its commits with the id of the query that has made each: a commit can be looked for.
    Where it also has MERGE, a commit fails if others have added rows meanwhile."""
    merge: bool
    """MERGE works."""
    why: str = ""
    """Why MERGE does not, in Trino's words."""

    @property
    def exactly_once(self) -> bool:
        """Whether rows that are appended are stored once whatever happens."""
        return self.snapshots and self.merge


def ask(client: Client, table: Table) -> Capabilities:
    """Tries both; nothing is changed. Called when a sink's session opens. Raises Failure."""
    snapshots = _works(client, _LISTED.format(snapshots=table.place.hidden("snapshots")))
    names = [column.name for column in table.columns]
    first = quote(names[0])
    merge = _MERGE.format(
        target=table.place.quoted,
        same=f"t.{first} = s.{first}",
        columns=", ".join(map(quote, names)),
        values=", ".join(f"s.{quote(name)}" for name in names),
    )
    why = _works(client, merge)
    return Capabilities(not snapshots, not why, why)


def _works(client: Client, sql: str) -> str:
    """Why a statement does not work; empty where it does."""
    try:
        client.run(sql)
    except Failure as failure:
        if failure.transient and failure.type != "EXTERNAL":
            raise
        return failure.reason
    return ""


def check_upsert(table: Table, found: Capabilities, key: Sequence[str]) -> None:
    """Raises PermanentError where rows cannot be matched by this key."""
    if not found.merge:
        raise PermanentError(
            f"upsertMode needs MERGE, which catalog {table.place.catalog} does not support for "
            f"{table.place}: {found.why}; use a catalog that does, such as Iceberg's, or leave "
            "upsertMode out"
        )
    known = {column.name for column in table.columns}
    if missing := [name for name in key if name not in known]:
        raise PermanentError(
            f"conflictKey names {', '.join(missing)}, which {table.place} does not have; it has "
            f"{', '.join(sorted(known))}"
        )
