"""Tables whose rows do not outlast a crash, or are committed elsewhere, cannot keep a promise.

Rows and checkpoint are one commit only where both are logged by the same server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.errors import PermanentError

# Rows go into partitions, never into tables that only inherit.
_WEAKNESS = """
WITH RECURSIVE tree AS (
    SELECT {table} AS oid
  UNION
    SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT CASE c.relkind WHEN 'f' THEN 'f' ELSE c.relpersistence::text END || c.oid::regclass::text
FROM tree JOIN pg_class c USING (oid)
WHERE (c.relkind = 'f' OR c.relkind = 'r' AND c.relpersistence <> 'p')
AND (c.oid = {table} OR c.relispartition)
ORDER BY 1 LIMIT 1
"""
_UNLOGGED = """
SELECT c.oid::regclass::text
FROM json_array_elements_text($1::json) AS place JOIN pg_class c ON c.oid = to_regclass(place)
WHERE c.relkind = 'r' AND c.relpersistence <> 'p' ORDER BY 1 LIMIT 1
"""
_SENTENCES = {
    "f": "{name} is a foreign table: its rows are committed on another server, before the "
    "checkpoint and not with it, so that a crash could store them twice; name that server in "
    "connectionString, and the table as it is called there",
    "u": "{name} is an unlogged table: a crash of the server empties it, and the checkpoint would "
    "still count its rows as stored; run: ALTER TABLE {name} SET LOGGED",
    "t": "{name} is a temporary table: it ends with the session that made it, and the checkpoint "
    "would still count its rows as stored; name another table",
}


def weakness_sql(table: str) -> str:
    """The weakest part of a table as an expression: null, or a letter of what it is, and its name.

    `table`: the expression of the table's oid.
    """
    return f"({_WEAKNESS.format(table=table)})"


def check(weakness: str | None) -> None:
    """Raises PermanentError where rows and checkpoint would not be one commit."""
    if weakness:
        raise PermanentError(_SENTENCES[weakness[0]].format(name=weakness[1:]))


def check_logged(link: Link, places: Iterable[str]) -> None:
    """Raises PermanentError where one of our own tables would be emptied by a crash.

    `places`: their quoted names; those that are missing are passed over.
    """
    for (name,) in link.execute(_UNLOGGED, json.dumps(list(places))):
        raise PermanentError(
            f"{name} is an unlogged table: a crash of the server empties it, and the flow would "
            f"not know what it has stored; run: ALTER TABLE {name} SET LOGGED"
        )
