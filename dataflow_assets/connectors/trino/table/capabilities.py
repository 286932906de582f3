"""What a catalog can do, found by trying it on the very table: names of catalogs say nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dataflow_assets.connectors.trino.client import TrinoClient, literal, quote
from dataflow_assets.connectors.trino.errors import DENIED, TrinoFailure
from dataflow_assets.connectors.trino.table.snapshots import head
from dataflow_assets.connectors.trino.table.table import TrinoTable
from dataflow_assets.errors import PermanentError

log = logging.getLogger(__name__)

_LISTED = "SELECT element_at(summary, 'trino_query_id') FROM {snapshots} LIMIT 1"
_HIDDEN = ("refs", "files")
"""By which the end of a statement is found that nobody has seen, besides the snapshots."""
_READ = "SELECT 1 FROM {hidden} LIMIT 0"
_FLOATING = ("real", "double")
ISOLATION = "write.delete.isolation-level"
"""The property by which Iceberg's commits of a MERGE look for rows that were added meanwhile."""
SERIALIZABLE = "serializable"
_OF_NESSIE = "nessie.catalog.content-id"
"""A property by which Nessie's Iceberg REST catalog shows a table."""
_PROPERTIES = "SELECT key, value FROM {properties} WHERE key IN ({isolation}, {nessie})"
_MERGE = "MERGE INTO {target} t USING (SELECT * FROM {target} WHERE false) s ON {same} {clauses}"
_AT_LEAST_ONCE = (
    "flow %s: catalog %s does not list its commits with the queries that made them: rows that are "
    "appended are stored at least once, and twice where the coordinator ends in the middle of a "
    "commit"
)
_NOT_ISOLATED = (
    "flow %s: the property %s of %s is %s: rows that are appended are stored at least once, and "
    "twice where the commit of a coordinator that has ended arrives late; %s"
)


@dataclass(frozen=True)
class Capabilities:
    """What one table's catalog can do."""

    snapshots: bool
    """It lists its commits with the id of the query that has made each: a commit can be looked for.
    Where it also has MERGE, and is isolated, a commit fails if others have added rows meanwhile."""
    merge: bool
    """MERGE works."""
    why: str = ""
    """Why MERGE does not, in Trino's words."""
    isolation: str = SERIALIZABLE
    """What the table says of ISOLATION, Iceberg's own value unless set; of a table with snapshots.
    With any other value a MERGE commits beside rows that others have added meanwhile."""

    @property
    def is_isolated(self) -> bool:
        """Returns whether a MERGE sees the rows of others, or fails."""
        return self.isolation.lower() == SERIALIZABLE

    @property
    def exactly_once(self) -> bool:
        """Returns whether rows that are appended are stored once whatever happens."""
        return self.snapshots and self.merge and self.is_isolated


def ask(client: TrinoClient, table: TrinoTable, key: Sequence[str]) -> Capabilities:
    """Tries them; nothing is changed. Called when a sink's session opens. Raises Failure.

    Args:
        client: of the sink.
        table: the target.
        key: by which rows are matched; empty where they are appended, which needs fewer rights.

    Raises:
        PermanentError: the user may not do what is tried. Taken for a catalog that cannot, a right
            that is missing would make of exactly once at least once. Or the table is one of Nessie
            without any snapshot.
    """
    hidden = table.place.metadata_table("snapshots")
    snapshots = _works(client, _LISTED.format(snapshots=hidden), f"SELECT from {hidden}")
    rights = "SELECT, INSERT, UPDATE and DELETE" if key else "SELECT and INSERT"
    why = _works(client, _merge(table, key), f"{rights} on {table.place}")
    properties = {} if snapshots else _of_iceberg(client, table)
    if _OF_NESSIE in properties:
        _check_first_snapshot(client, table)
    isolation = properties.get(ISOLATION) or SERIALIZABLE
    return Capabilities(not snapshots, not why, why, isolation)


def _of_iceberg(client: TrinoClient, table: TrinoTable) -> dict[str, str]:
    """The properties. All that is read later is tried: a statement in doubt needs each answer."""
    for hidden in (table.place.metadata_table(name) for name in _HIDDEN):
        with _check_right(f"SELECT from {hidden}"):
            client.run(_READ.format(hidden=hidden))
    return _properties(client, table)


def _properties(client: TrinoClient, table: TrinoTable) -> dict[str, str]:
    sql = _PROPERTIES.format(
        properties=table.place.metadata_table("properties"),
        isolation=literal(ISOLATION),
        nessie=literal(_OF_NESSIE),
    )
    with _check_right(f"SELECT from {table.place.metadata_table('properties')}"):
        return {str(key): str(value) for key, value in client.rows(sql)}


def _check_first_snapshot(client: TrinoClient, table: TrinoTable) -> None:
    """A first snapshot is needed: Nessie does not compare an asserted head that is absent.

    Of two writers that each add the first snapshot both are told that they have committed.
    """
    if head(client, table) is None:
        raise PermanentError(
            f"{table.place} has no snapshot yet, and is in a catalog of Nessie: of two that write "
            "to it first, both would be told that their rows are stored, and the rows of one would "
            "be lost. Drop the table, and create it with CREATE TABLE in Trino or by "
            "autoCreateTable: true, which gives it an empty first snapshot"
        )


def _merge(table: TrinoTable, key: Sequence[str]) -> str:
    """A MERGE of no rows, with the clauses that the sink will use."""
    names = [column.name for column in table.columns]
    first, others = quote(names[0]), [quote(name) for name in names if name not in key]
    clauses = []
    if key:
        clauses.append(f"WHEN MATCHED AND s.{first} IS NULL THEN DELETE")
        clauses += [f"WHEN MATCHED THEN UPDATE SET {name} = s.{name}" for name in others[:1]]
    listed = ", ".join(map(quote, names))
    values = ", ".join(f"s.{quote(name)}" for name in names)
    clauses.append(f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})")  # noqa: S608 - quoted
    same = f"t.{first} = s.{first}"
    return _MERGE.format(target=table.place.quoted_name, same=same, clauses=" ".join(clauses))


def _works(client: TrinoClient, sql: str, right: str) -> str:
    """Why a statement does not work; empty where it does.

    Args:
        client: of the sink.
        sql: the statement.
        right: what the user must be allowed to do, for the error.
    """
    try:
        with _check_right(right):
            client.run(sql)
    except TrinoFailure as failure:
        if failure.transient:  # an outage, also one of the catalog or of its store
            raise
        return failure.reason
    return ""


@contextmanager
def _check_right(right: str) -> Iterator[None]:
    try:
        yield
    except TrinoFailure as failure:
        if failure.name != DENIED:
            raise
        raise PermanentError(
            f"the user of the flow needs the right to {right}: {failure.reason}; without it "
            "nobody can know whether rows are stored once"
        ) from None


def isolating(table: TrinoTable) -> str:
    """Returns what a person does about a table that is not isolated."""
    return (
        f"remove the property with Spark or PyIceberg (ALTER TABLE {table.place} UNSET "
        f"TBLPROPERTIES ('{ISOLATION}'))"
    )


def warn(table: TrinoTable, found: Capabilities, flow: str) -> None:
    """Says in the log where rows that are appended are stored at least once."""
    if found.exactly_once:
        return
    if found.is_isolated:
        log.warning(_AT_LEAST_ONCE, flow, table.place.catalog)
        return
    log.warning(_NOT_ISOLATED, flow, ISOLATION, table.place, found.isolation, isolating(table))


def check_mark(table: TrinoTable, mark: str | None) -> None:
    """Raises PermanentError where a column cannot say when its row was deleted; None: no column."""
    if mark is None:
        return
    kinds = {column.name: column.kind.name for column in table.columns}
    if not kinds.get(mark, "").startswith(("timestamp", "date")):
        state = f"is {kinds[mark]}" if mark in kinds else "does not exist"
        raise PermanentError(
            f"softDeleteColumn: the column {mark} of {table.place} must be a timestamp or date; it "
            f"{state}"
        )


def check_upsert(table: TrinoTable, found: Capabilities, key: Sequence[str]) -> None:
    """Raises PermanentError where rows cannot be matched by this key."""
    if not found.merge:
        raise PermanentError(
            f"upsertMode needs MERGE, which catalog {table.place.catalog} does not support for "
            f"{table.place}: {found.why}; use a catalog that does, such as Iceberg's, or leave "
            "upsertMode out"
        )
    if not found.is_isolated:
        raise PermanentError(
            f"upsertMode needs the property {ISOLATION} of {table.place} to be {SERIALIZABLE}, "
            f"which is Iceberg's own value; it is {found.isolation}, with which two MERGEs that "
            f"run at once store a key twice: {isolating(table)}"
        )
    names = {column.name for column in table.columns}
    if missing := [name for name in key if name not in names]:
        raise PermanentError(
            f"conflictKey names {', '.join(missing)}, which {table.place} does not have; it has "
            f"{', '.join(sorted(names))}"
        )
    if floating := [one for one in table.columns if one.name in key and one.type in _FLOATING]:
        listed = ", ".join(f"{one.name} ({one.type})" for one in floating)
        raise PermanentError(
            f"conflictKey: rows of {table.place} cannot be matched by {listed}: a NaN equals no "
            "other one in Trino, so that it would be stored again with each change; take columns "
            "of whole numbers, decimals, text, times or bytes"
        )
