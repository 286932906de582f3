"""The publication of the tables: made where it is missing, and what it says about each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow_assets.connectors.postgresql.cdc.errors import AGAIN
from dataflow_assets.connectors.postgresql.cdc.options import Place, PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.tables import CdcTable, table_of
from dataflow_assets.connectors.postgresql.client import TextLink, quote
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.errors import PermanentError

_NO_RIGHT = "42501"
_PUBLICATION = "SELECT to_jsonb(p) FROM pg_publication p WHERE pubname = $1"
_PUBLISHED = "SELECT to_jsonb(t) FROM pg_publication_tables t WHERE pubname = $1"
_ATTRIBUTES = """
SELECT attname FROM pg_attribute WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped
  AND attgenerated = '' ORDER BY attnum
"""
_GENERATED = """
SELECT attname::text FROM pg_attribute WHERE attrelid = $1::oid AND attnum > 0
  AND NOT attisdropped AND attgenerated <> '' ORDER BY attnum
"""


@dataclass(frozen=True)
class Published:
    """The publication's entry for one table."""

    columns: tuple[str, ...]
    row_filter: str = ""


def is_published(link: TextLink, source: PostgresqlCdcOptions) -> bool:
    return bool(link.execute(_PUBLICATION, source.publication))


def publish(link: TextLink, source: PostgresqlCdcOptions, wanted: Sequence[CdcTable]) -> None:
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
    except PostgresqlFailure as failure:
        if failure.sqlstate != _NO_RIGHT:
            raise
        raise PermanentError(
            f"publication {source.publication} cannot be created at {source.server()} by this role "
            f"({failure.reason}): only the owner of the tables may, with the right CREATE on the "
            f"database. Let the owner run: {statement}"
        ) from None


def publish_more(link: TextLink, source: PostgresqlCdcOptions, wanted: Sequence[CdcTable]) -> None:
    """Adds tables to the publication, if the manifest allows that and the role may.

    What is still missing then `published_tables` reports, with what to run.
    """
    if not source.create_publication_if_not_exists:
        return
    published = _all_published(link, source)
    missing = [table.sql for table in wanted if _places(table).isdisjoint(published)]
    if not published or not missing:
        return
    try:
        link.execute(
            f"ALTER PUBLICATION {quote(source.publication)} ADD TABLE {', '.join(missing)}"
        )
    except PostgresqlFailure as failure:
        if failure.sqlstate != _NO_RIGHT:
            raise


def _places(table: CdcTable) -> set[Place]:
    return {table.place, *(leaf.place for leaf in table.leaves)}


def published_tables(
    link: TextLink, source: PostgresqlCdcOptions, wanted: Sequence[CdcTable], *, started: bool
) -> dict[str, Published]:
    """Returns by table what is published of it.

    `started`: the flow has read something, so that what was missed meanwhile is gone. Raises
    PermanentError where the publication lacks a table or an operation.
    """
    rows = link.execute(_PUBLICATION, source.publication)
    name = quote(source.publication)
    missed = ". What changed while it was missing is not logged for it: load the tables again"
    missed = f"{missed} after that: {AGAIN}" if started else ""
    if not rows:
        raise PermanentError(
            f"publication {source.publication} does not exist at {source.server()}: run CREATE "
            f"PUBLICATION {name} FOR TABLE {', '.join(table.sql for table in wanted)} WITH "
            f"(publish_via_partition_root = true){missed}"
        )
    _check_operations(source, rows[0][0], missed)
    published = _all_published(link, source)
    for table in wanted:
        if table.place not in published:
            table_of(link, source, table.place)  # if it was dropped that is the reason
            _refuse(source, table, published, missed)
    return {table.name: _published_table(link, table, published[table.place]) for table in wanted}


def _check_operations(
    source: PostgresqlCdcOptions, publication: dict[str, Any], missed: str
) -> None:
    needed = ["insert", "update", "delete"]
    if source.on_truncate == "fail" or source.envelope_format == "debezium":
        needed.append("truncate")  # else nobody would hear of it
    missing = [op for op in needed if not publication[f"pub{op}"]]
    if missing:
        raise PermanentError(
            f"publication {source.publication} leaves out {', '.join(missing)}: run ALTER "
            f"PUBLICATION {quote(source.publication)} SET (publish = 'insert, update, delete, "
            f"truncate'){missed}"
        )


def _refuse(
    source: PostgresqlCdcOptions, table: CdcTable, found: dict[Place, Any], missed: str
) -> None:
    name = quote(source.publication)
    if any(leaf.place in found for leaf in table.leaves):
        raise PermanentError(
            f"publication {source.publication} publishes the partitions of {table.name} under "
            f"their own names: run ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"
            f"{missed}"
        )
    raise PermanentError(
        f"publication {source.publication} lacks table {table.name}: run ALTER PUBLICATION {name} "
        f"ADD TABLE {table.sql}{missed}"
    )


def _published_table(link: TextLink, table: CdcTable, row: dict[str, Any]) -> Published:
    """Servers before 15 publish all columns, and all rows."""
    columns = row.get("attnames") or [name for (name,) in link.execute(_ATTRIBUTES, table.oid)]
    return Published(tuple(columns), row.get("rowfilter") or "")


def as_published(
    link: TextLink, source: PostgresqlCdcOptions, wanted: Sequence[CdcTable]
) -> dict[str, Published]:
    """The published columns by table, or those to be: the publication need not exist yet."""
    published = _all_published(link, source)
    return {
        table.name: _published_table(link, table, published.get(table.place, {}))
        for table in wanted
    }


def left_out(link: TextLink, wanted: Sequence[CdcTable], published: Mapping[str, Published]) -> str:
    """The generated columns that nobody gets, by table; empty where there are none.

    Called by the driver when it begins to load tables. The server computes these columns, and
    publishes them only where it is asked to (PostgreSQL 18, and stored ones alone).
    """
    hidden = {
        table.name: [
            name
            for (name,) in link.execute(_GENERATED, table.oid)
            if name not in published[table.name].columns
        ]
        for table in wanted
    }
    return "; ".join(f"{table}: {', '.join(names)}" for table, names in hidden.items() if names)


def _all_published(link: TextLink, source: PostgresqlCdcOptions) -> dict[Place, Any]:
    rows = link.execute(_PUBLISHED, source.publication)
    return {(one["schemaname"], one["tablename"]): one for (one,) in rows}
