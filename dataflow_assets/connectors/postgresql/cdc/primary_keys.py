"""The primary keys by which changes are read where the log does not name them.

Under REPLICA IDENTITY FULL the log has all columns of an old row. Which of them are the key's the
catalogue says, as of now. So a position says what the keys were there: where a key is another one
when the changes behind the position are read, nobody knows from which of them on, and an update of
that table is a deletion and an insert.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dataflow_assets.connectors.postgresql.cdc import slot
from dataflow_assets.connectors.postgresql.cdc.position import Keys, Lsn
from dataflow_assets.connectors.postgresql.cdc.tables import CdcTable
from dataflow_assets.connectors.postgresql.client import TextLink

_KEYS = """
SELECT c.oid::int8, ARRAY(
    SELECT k::int FROM pg_index i, unnest((i.indkey::int2[])[:i.indnkeyatts - 1]) AS k
    WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY k)
FROM pg_class c WHERE c.oid = ANY ($1::text[]::oid[]) AND c.relreplident = 'f'
"""


def keys_of(link: TextLink, found: Sequence[CdcTable]) -> Keys:
    """The keys as they are now, of tables whose log does not name them.

    Called by the driver when it looks at the tables, and again before the end of the log is asked
    for.
    """
    names = {
        table.oid: table.name
        for table in found
        if any(leaf.identity == "f" for leaf in table.leaves)
    }
    rows = link.execute(_KEYS, [str(oid) for oid in names]) if names else []
    return {names[oid]: tuple(columns) for oid, columns in rows}


class SeenKeys:
    """The keys as a session saw them last, and the end of the log then."""

    def __init__(self) -> None:
        self._seen: tuple[Lsn, Keys] | None = None
        self._used: tuple[Lsn, Keys] | None = None
        """The last look that a position has come to: of branches, others come to it later."""
        self._reported = set[str]()

    def look(self, link: TextLink, found: Sequence[CdcTable]) -> None:
        """Looks, unless no position has come to where the log was at the last look."""
        if self._seen is None and (keys := keys_of(link, found)):
            self._seen = slot.end_of_log(link), keys  # asked in this order: no change is between

    def after(self, upto: Lsn, before: Keys) -> Keys:
        """The keys to store with a position.

        Args:
            upto: the position.
            before: those that were stored with the position before.
        """
        if self._seen is not None and upto.value >= self._seen[0].value:
            self._used, self._seen = self._seen, None
        if self._used is None or upto.value < self._used[0].value:
            return before
        return self._used[1]

    def changed_tables(self, before: Keys) -> Iterator[str]:
        """Tables whose key is another one than was stored, each once."""
        _, keys = self._seen or (None, {})
        for name in before.keys() & keys.keys() - self._reported:
            if before[name] != keys[name]:
                self._reported.add(name)
                yield name
