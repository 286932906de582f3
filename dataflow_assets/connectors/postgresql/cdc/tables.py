"""The tables as they are published: their columns, who holds their rows, what names a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dataflow_assets.connectors.postgresql.cdc.errors import AGAIN
from dataflow_assets.connectors.postgresql.cdc.options import Place, PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.client import TextLink, qualified, quote
from dataflow_assets.connectors.postgresql.errors import Failure
from dataflow_assets.errors import PermanentError

_NO_RIGHT = "42501"
_TABLES = """
SELECT c.oid::int8, c.relkind::text, c.relreplident::text, ARRAY(
    SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (num, n)
    JOIN pg_attribute a ON a.attnum = k.num
    WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid ORDER BY k.n)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2
"""
# A partitioned table has no rows of its own; what is logged is what the partition identifies by.
_LEAVES = """
WITH leaves AS (
    SELECT $1::oid AS oid WHERE (SELECT relkind FROM pg_class WHERE oid = $1::oid) <> 'p'
    UNION ALL
    SELECT relid FROM pg_partition_tree($1::oid::regclass)
    WHERE isleaf AND (SELECT relkind FROM pg_class WHERE oid = $1::oid) = 'p'
)
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid
               AND i.indimmediate AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
                                      ELSE i.indisprimary END),
       pg_relation_size(c.oid)::int8, pg_table_size(c.oid)::int8, greatest(c.reltuples, 0)::int8
FROM leaves JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY c.oid
"""
_PUBLICATION = "SELECT to_jsonb(p) FROM pg_publication p WHERE pubname = $1"
_PUBLISHED = "SELECT to_jsonb(t) FROM pg_publication_tables t WHERE pubname = $1"
_ATTRIBUTES = """
SELECT attname FROM pg_attribute WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped
  AND attgenerated = '' ORDER BY attnum
"""


@dataclass(frozen=True)
class Leaf:
    """What holds rows: a table, or a partition of one."""

    oid: int
    place: Place
    identity: str
    """`relreplident`: d, n, f or i."""
    has_index: bool
    """Whether there is the index that a replica identity of d or i names rows by. The server takes
    no deferrable one."""
    bytes: int
    """Of its blocks."""
    size: int
    """With the large values that it keeps apart."""
    rows: int
    """As the server estimates it."""


@dataclass(frozen=True)
class Table:
    """A table that is to be read."""

    place: Place
    oid: int
    key: tuple[str, ...]
    """The primary key's columns; none where it has no such key."""
    leaves: tuple[Leaf, ...]

    @property
    def name(self) -> str:
        """As metadata name it."""
        return ".".join(self.place)

    @property
    def sql(self) -> str:
        """As statements name it."""
        return qualified(*self.place)


@dataclass(frozen=True)
class Published:
    """What a publication says about one table."""

    columns: tuple[str, ...]
    row_filter: str = ""


def tables(link: TextLink, source: PostgresqlCdcOptions) -> list[Table]:
    """All tables of the manifest. Raises PermanentError where one cannot be read."""
    return [table_of(link, source, place) for place in source.places]


def table_of(link: TextLink, source: PostgresqlCdcOptions, place: Place) -> Table:
    """One of them."""
    name = ".".join(place)
    rows = link.execute(_TABLES, *place)
    if not rows:
        raise PermanentError(
            f"table {name} does not exist at {source.server()}: create it, or fix `tables`"
        )
    ((oid, kind, identity, key),) = rows
    if kind not in {"r", "p"}:
        raise PermanentError(
            f"{name} at {source.server()} is not a table: only tables have a log of their changes"
        )
    leaves = tuple(
        Leaf(leaf, (schema, relation), identity, has_index, heap, size, estimate)
        for leaf, schema, relation, _, identity, has_index, heap, size, estimate in link.execute(
            _LEAVES, oid
        )
    )
    found = Table(place, oid, tuple(key), leaves)
    for leaf in leaves:
        _check_identity(leaf)
        _check_same_identity(found, identity, leaf)
    return found


def _check_identity(leaf: Leaf) -> None:
    """Without it the server refuses UPDATE and DELETE as soon as the table is published."""
    if leaf.identity == "f" or (leaf.identity != "n" and leaf.has_index):
        return
    why = {
        "d": "it has no primary key, or a deferrable one, which is no replica identity",
        "i": "the index of its replica identity was dropped",
        "n": "its replica identity is NOTHING",
    }[leaf.identity]
    name = qualified(*leaf.place)
    raise PermanentError(
        f"table {'.'.join(leaf.place)} cannot be followed: {why}, so its log does not say which "
        f"rows are changed. Run: ALTER TABLE {name} REPLICA IDENTITY FULL, or give it a primary key"
    )


def _check_same_identity(table: Table, identity: str, leaf: Leaf) -> None:
    """A partition logs by its own identity, and the server announces that of the root.

    Where they differ, an old row is taken for a key, or a key for an old row of nulls.
    """
    if leaf.identity == identity:
        return
    named = {"d": "DEFAULT", "n": "NOTHING", "f": "FULL", "i": "USING INDEX"}
    other = table.sql if leaf.identity == "f" else qualified(*leaf.place)
    raise PermanentError(
        f"table {table.name} cannot be followed: its replica identity is {named[identity]}, and "
        f"that of its partition {'.'.join(leaf.place)} is {named[leaf.identity]}, so its log would "
        f"be misread. Give the table and each of its partitions the same, such as ALTER TABLE "
        f"{other} REPLICA IDENTITY FULL: no partition inherits it, nor does a new one"
    )


def is_published(link: TextLink, source: PostgresqlCdcOptions) -> bool:
    """Whether there is the publication."""
    return bool(link.execute(_PUBLICATION, source.publication))


def publish(link: TextLink, source: PostgresqlCdcOptions, wanted: Sequence[Table]) -> None:
    """Creates the publication if it is missing and the manifest allows that."""
    if is_published(link, source):
        return
    statement = (
        f"CREATE PUBLICATION {quote(source.publication)} FOR TABLE "
        f"{', '.join(table.sql for table in wanted)} WITH (publish_via_partition_root = true)"
    )
    if not source.create_publication_if_not_exists:
        raise PermanentError(
            f"publication {source.publication} does not exist at {source.server()}: run "
            f"{statement}, or set createPublicationIfNotExists: true"
        )
    try:
        link.execute(statement)
    except Failure as failure:
        if failure.sqlstate != _NO_RIGHT:
            raise
        raise PermanentError(
            f"publication {source.publication} cannot be created at {source.server()} by this role "
            f"({failure.reason}): only the owner of the tables may, with the right CREATE on the "
            f"database. Let the owner run: {statement}"
        ) from None


def publish_more(link: TextLink, source: PostgresqlCdcOptions, wanted: Sequence[Table]) -> None:
    """Adds tables to the publication, if the manifest allows that and the role may.

    What is still missing then `published` reports, with what to run.
    """
    if not source.create_publication_if_not_exists:
        return
    found = _all_published(link, source)
    missing = [table.sql for table in wanted if _places(table).isdisjoint(found)]
    if not found or not missing:
        return
    try:
        link.execute(
            f"ALTER PUBLICATION {quote(source.publication)} ADD TABLE {', '.join(missing)}"
        )
    except Failure as failure:
        if failure.sqlstate != _NO_RIGHT:
            raise


def _places(table: Table) -> set[Place]:
    return {table.place, *(leaf.place for leaf in table.leaves)}


def published(
    link: TextLink, source: PostgresqlCdcOptions, wanted: Sequence[Table], *, begun: bool
) -> dict[str, Published]:
    """By table what is published of it.

    `begun`: the flow has read something already, so that what was missed meanwhile is gone. Raises
    PermanentError where the publication lacks a table or an operation.
    """
    rows = link.execute(_PUBLICATION, source.publication)
    name = quote(source.publication)
    missed = f". What changed while it was missing is not logged for it: then {AGAIN}"
    missed = missed if begun else ""
    if not rows:
        raise PermanentError(
            f"publication {source.publication} does not exist at {source.server()}: run CREATE "
            f"PUBLICATION {name} FOR TABLE {', '.join(table.sql for table in wanted)} WITH "
            f"(publish_via_partition_root = true){missed}"
        )
    _check_operations(source, rows[0][0])
    found = _all_published(link, source)
    for table in wanted:
        if table.place not in found:
            table_of(link, source, table.place)  # if it was dropped that is the reason
            _refuse(source, table, found, missed)
    return {table.name: _published(link, table, found[table.place]) for table in wanted}


def _check_operations(source: PostgresqlCdcOptions, publication: dict[str, Any]) -> None:
    needed = ["insert", "update", "delete"]
    if source.on_truncate == "fail" or source.envelope_format == "debezium":
        needed.append("truncate")  # else nobody would hear of it
    lacking = [op for op in needed if not publication[f"pub{op}"]]
    if lacking:
        raise PermanentError(
            f"publication {source.publication} leaves out {', '.join(lacking)}: run ALTER "
            f"PUBLICATION {quote(source.publication)} SET (publish = 'insert, update, delete, "
            "truncate')"
        )


def _refuse(
    source: PostgresqlCdcOptions, table: Table, found: dict[Place, Any], missed: str
) -> None:
    name = quote(source.publication)
    if any(leaf.place in found for leaf in table.leaves):
        raise PermanentError(
            f"publication {source.publication} publishes the partitions of {table.name} under "
            f"their own names: run ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"
        )
    raise PermanentError(
        f"publication {source.publication} lacks table {table.name}: run ALTER PUBLICATION {name} "
        f"ADD TABLE {table.sql}{missed}"
    )


def _published(link: TextLink, table: Table, row: dict[str, Any]) -> Published:
    """Servers before 15 publish all columns, and all rows."""
    columns = row.get("attnames") or [name for (name,) in link.execute(_ATTRIBUTES, table.oid)]
    return Published(tuple(columns), row.get("rowfilter") or "")


def as_published(
    link: TextLink, source: PostgresqlCdcOptions, wanted: Sequence[Table]
) -> dict[str, Published]:
    """By table what is published of it, or would be: the publication need not exist yet."""
    found = _all_published(link, source)
    return {table.name: _published(link, table, found.get(table.place, {})) for table in wanted}


def _all_published(link: TextLink, source: PostgresqlCdcOptions) -> dict[Place, Any]:
    """What the server says of each table of the publication."""
    rows = link.execute(_PUBLISHED, source.publication)
    return {(one["schemaname"], one["tablename"]): one for (one,) in rows}
