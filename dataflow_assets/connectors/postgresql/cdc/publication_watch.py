"""Checks that the publication and the tables are still those that the log was read by.

What is not published when it is logged never comes, and the server tells nobody. So each plan asks
by one statement for the numbers that the server has given to the tables and to their places in the
publication, and compares them with those that the position says. A table or a publication that was
made again, and a row filter or a column list that was changed, has another number.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from dataflow_assets.connectors.postgresql.cdc import publication
from dataflow_assets.connectors.postgresql.cdc.errors import AGAIN
from dataflow_assets.connectors.postgresql.cdc.options import Place, PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import CdcMark, Marks, Reached
from dataflow_assets.connectors.postgresql.cdc.tables import CdcTable, table_of
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.errors import PermanentError

_DIGEST = 6  # characters, of a column's name
_DROPPED = "-" * _DIGEST
_SCHEMAS = 150_000  # the version from which a publication has whole schemas
_OF_SCHEMA = """
    UNION SELECT s.oid FROM pg_publication_namespace s
    WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace
"""
_LOOK = """
SELECT w.place, c.oid::int8, p.xmin::text::int8, p.pubowner::int8, ARRAY(
    SELECT m::int8 FROM (
        SELECT p.oid WHERE p.puballtables
        UNION SELECT r.oid FROM pg_publication_rel r WHERE r.prpubid = p.oid AND (
            r.prrelid = c.oid OR r.prrelid IN (SELECT relid FROM pg_partition_ancestors(c.oid)))
        {of_schema}
    ) AS t (m) ORDER BY 1
), ARRAY(
    SELECT CASE WHEN attisdropped THEN '' ELSE attname::text END FROM pg_attribute
    WHERE attrelid = c.oid AND attnum > 0 ORDER BY attnum
), concat(c.relkind, c.relreplident, c.relpersistence, c.relispartition, EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate AND
    CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
), CASE WHEN c.relkind = 'p' THEN (
    SELECT count(*) FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid
    WHERE t.isleaf AND (l.relreplident, l.relpersistence) <> (c.relreplident, c.relpersistence)
) END)
FROM unnest($2::text[], $3::text[], $4::text[]) AS w (place, schema, name)
LEFT JOIN pg_namespace n ON n.nspname = w.schema
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
LEFT JOIN pg_publication p ON p.pubname = $1
"""


@dataclass(frozen=True)
class _Seen:
    """A table as one look has found it."""

    mark: CdcMark | None
    """None: the table or the publication is missing."""
    columns: tuple[str, ...]
    """By their numbers, from 1 on; empty names are of columns that were dropped."""
    state: str
    """What else decides whether the table can be followed."""


class PublicationWatch:
    """A session's memory of the publication. Used by the driver, by one thread at a time."""

    def __init__(self, source: PostgresqlCdcOptions) -> None:
        self.source = source
        self._seen: dict[str, _Seen] = {}
        self._sound: dict[str, _Seen] = {}
        """What was in order when it was looked at in full."""

    def look(self, link: TextLink) -> None:
        """Asks; called before the end of the log is asked for, or is moved to."""
        places: Sequence[Place] = self.source.places
        names = [".".join(place) for place in places]
        schemas, tables = [schema for schema, _ in places], [name for _, name in places]
        query = _LOOK.format(of_schema=_OF_SCHEMA if link.version >= _SCHEMAS else "")
        rows = link.execute(query, self.source.publication, names, schemas, tables)
        self._seen = {row[0]: _parse_row(row) for row in rows}

    def check(
        self, link: TextLink, followed: Sequence[CdcTable], at: Reached, *, started: bool = True
    ) -> None:
        """Raises PermanentError where changes of a table are not published as they were.

        Called by each plan, behind `look`. It asks the server for more only where the look has
        found something that was not there at the last check.

        Args:
            link: to the server.
            followed: tables whose changes are read behind `at`.
            at: where the flow is.
            started: the flow has read changes of them.
        """
        seen = {table.name: self._seen[table.name] for table in followed}
        if any(one != self._sound.get(name) for name, one in seen.items()):
            for table in followed:
                table_of(link, self.source, table.place)
            publication.published_tables(link, self.source, followed, started=started)
            self._sound |= seen
        if started and (reason := next(self._differences(at, seen), "")):
            raise PermanentError(self._stop_message(reason))

    def check_seen(self, at: Reached) -> None:
        """Raises PermanentError by the last look alone; for whoever reports how far a flow is."""
        if reason := next(self._differences(at, at.marks), ""):
            raise PermanentError(self._stop_message(reason))

    def differs(self, at: Reached) -> bool:
        """Returns whether a plan from there is to look: it would stop the flow."""
        return bool(self._seen) and next(self._differences(at, at.marks), None) is not None

    def marks(self, names: Collection[str], before: Marks | None = None) -> dict[str, CdcMark]:
        """Returns what to store with a position, of tables whose changes are read up to there.

        `before`: what was stored with the position before. A target keeps the values of a column
        that was dropped, so its name is remembered.
        """
        seen = {name: self._seen[name].mark for name in names if name in self._seen}
        return {
            name: _remembering(mark, (before or {}).get(name))
            for name, mark in seen.items()
            if mark is not None
        }

    def _stop_message(self, reason: str) -> str:
        return f"{self.source.title}: {reason}. Load the tables again: {AGAIN}"

    def _differences(self, at: Reached, names: Collection[str]) -> Iterator[str]:
        for name in sorted(names):
            then, now = at.marks.get(name), self._seen.get(name)
            if then is not None and now is not None and name not in at.again:
                yield from self._difference(name, then, now, str(at.lsn))

    def _difference(self, name: str, then: CdcMark, now: _Seen, lsn: str) -> Iterator[str]:
        source, mark = self.source, now.mark
        published = f"publication {source.publication}"
        if mark is None or not mark.members:
            yield (
                f"table {name} is not in {published} any more: what has changed since {lsn} is not "
                "published. Add it again"
            )
        elif then.oid != mark.oid:
            yield (
                f"table {name} is another one than was read up to {lsn}: that one was dropped or "
                "renamed, and the target lacks rows that this one had before it was published"
            )
        elif not set(then.members) <= set(mark.members):
            yield (
                f"{published} has table {name} in another way than up to {lsn}: it was taken out "
                "and added again, the publication was dropped and created again, or the row filter "
                "or the column list was changed. What was not published meanwhile is missing"
            )
        elif then.version != mark.version and then.owner == mark.owner:
            yield (
                f"{published} was altered since {lsn} (ALTER PUBLICATION ... SET): what an "
                "operation (publish) or partitions (publish_via_partition_root) have changed while "
                "they were left out is missing"
            )
        elif source.envelope_format == "row":
            yield from _names_used_again(source, name, then, now)


def _parse_row(row: Sequence[Any]) -> _Seen:
    _, oid, version, owner, members, columns, state = row
    if oid is None or version is None:
        return _Seen(None, (), state)
    digests = "".join(_digest(name) for name in columns)
    return _Seen(CdcMark(oid, version, owner, tuple(members), digests), tuple(columns), state)


def _digest(name: str) -> str:
    """In place of a name, so that positions stay small; of a dropped column none."""
    return f"{zlib.crc32(name.encode()) & 0xFFFFFF:0{_DIGEST}x}" if name else _DROPPED


def _digests(columns: str) -> list[str]:
    return [columns[at : at + _DIGEST] for at in range(0, len(columns), _DIGEST)]


def _remembering(mark: CdcMark, before: CdcMark | None) -> CdcMark:
    if before is None or before.oid != mark.oid or _DROPPED not in mark.columns:
        return mark
    pairs = zip_longest(_digests(mark.columns), _digests(before.columns), fillvalue=_DROPPED)
    return replace(mark, columns="".join(two if one == _DROPPED else one for one, two in pairs))


def _names_used_again(
    source: PostgresqlCdcOptions, table: str, then: CdcMark, now: _Seen
) -> Iterator[str]:
    """Names of columns that were those of other columns: rows of the target have their values.

    Two names may have one digest: a column that has that of its number was not renamed.
    """
    digests = _digests(then.columns)
    numbers = {digest: number for number, digest in enumerate(digests)}
    for number, name in enumerate(now.columns):
        digest = _digest(name)
        kept = not name or digest == "".join(digests[number : number + 1])
        before = number if kept else numbers.get(digest, number)
        if before != number and source.reads(name):
            other = now.columns[before]
            became = f"is called {other} now" if other else "was dropped"
            yield (
                f"column {name} of table {table} is another one than before: the column that had "
                f"this name {became}. The rows of the target have the values of that one under "
                f"{name}, except those that were changed since"
            )
