"""The tables as they are published: their columns, who holds their rows, what names a row."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow_assets.connectors.postgresql.cdc.errors import AGAIN
from dataflow_assets.connectors.postgresql.cdc.options import Place, PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.client import TextLink, qualified_name
from dataflow_assets.errors import PermanentError

_TABLES = """
SELECT c.oid::int8, c.relkind::text, c.relreplident::text, ARRAY(
    SELECT a.attname::text
    FROM pg_index i, unnest((i.indkey::int2[])[:i.indnkeyatts - 1]) WITH ORDINALITY AS k (num, n)
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
       c.relpersistence = 'p', pg_relation_size(c.oid)::int8,
       pg_table_size(c.oid)::int8, greatest(c.reltuples, 0)::int8
FROM leaves JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY c.oid
"""
_NAMES = {"d": "DEFAULT", "n": "NOTHING", "f": "FULL", "i": "USING INDEX"}


@dataclass(frozen=True)
class Leaf:
    """A holder of rows: a table, or a partition of one."""

    oid: int
    place: Place
    identity: str
    """`relreplident`: d, n, f or i."""
    has_index: bool
    """Whether there is the index that a replica identity of d or i names rows by. The server takes
    no deferrable one."""
    is_logged: bool
    """Nothing of an UNLOGGED table is in the log."""
    bytes: int
    """Of its blocks."""
    size: int
    """With the large values that it keeps apart."""
    rows: int
    """As the server estimates it."""


@dataclass(frozen=True)
class CdcTable:
    """A table that is to be read."""

    place: Place
    oid: int
    key: tuple[str, ...]
    """The primary key's columns; none where it has no such key."""
    leaves: tuple[Leaf, ...]

    @property
    def name(self) -> str:
        return ".".join(self.place)

    @property
    def sql(self) -> str:
        return qualified_name(*self.place)


def tables(link: TextLink, source: PostgresqlCdcOptions) -> list[CdcTable]:
    """All tables of the manifest. Raises PermanentError where one cannot be read."""
    return [table_of(link, source, place) for place in source.places]


def table_of(link: TextLink, source: PostgresqlCdcOptions, place: Place) -> CdcTable:
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
        Leaf(leaf, (schema, relation), *rest)
        for leaf, schema, relation, _, *rest in link.execute(_LEAVES, oid)
    )
    table = CdcTable(place, oid, tuple(key), leaves)
    for leaf in leaves:
        _check_logged(leaf)
        _check_identity(leaf)
        _check_same_identity(table, identity, leaf)
    return table


def _check_logged(leaf: Leaf) -> None:
    """A publication of all tables, or of a schema, leaves it out without a word."""
    if not leaf.is_logged:
        raise PermanentError(
            f"table {'.'.join(leaf.place)} cannot be followed: it is UNLOGGED, so the log has no "
            f"change of it. Run ALTER TABLE {qualified_name(*leaf.place)} SET LOGGED; what changed "
            f"meanwhile is missing, so load the tables again after that: {AGAIN}"
        )


def _check_identity(leaf: Leaf) -> None:
    """Without it the server refuses UPDATE and DELETE as soon as the table is published."""
    if leaf.identity == "f" or (leaf.identity != "n" and leaf.has_index):
        return
    why = {
        "d": "it has no primary key, or a deferrable one, which is no replica identity",
        "i": "the index of its replica identity was dropped",
        "n": "its replica identity is NOTHING",
    }[leaf.identity]
    name = qualified_name(*leaf.place)
    raise PermanentError(
        f"table {'.'.join(leaf.place)} cannot be followed: {why}, so its log does not say which "
        f"rows are changed. Run: ALTER TABLE {name} REPLICA IDENTITY FULL, or give it a primary key"
    )


def _check_same_identity(table: CdcTable, identity: str, leaf: Leaf) -> None:
    """A partition logs by its own identity, and the server announces that of the root.

    Where they differ, an old row is taken for a key, or a key for an old row of nulls.
    """
    if leaf.identity == identity:
        return
    other = table.sql if leaf.identity == "f" else qualified_name(*leaf.place)
    raise PermanentError(
        f"table {table.name} cannot be followed: its replica identity is {_NAMES[identity]}, and "
        f"that of its partition {'.'.join(leaf.place)} is {_NAMES[leaf.identity]}, so its log "
        f"would be misread. Give the table and each of its partitions the same, such as ALTER "
        f"TABLE {other} REPLICA IDENTITY FULL: no partition inherits it, nor does a new one"
    )
