"""Whether a table is there, and what the role may do with it; what to do where it is not so."""

from __future__ import annotations

from dataflow_assets.connectors.postgresql.client import Link, qualified_name, quote
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.errors import PermanentError
from dataflow_assets.errors.likely_names import likely, suggestion
from dataflow_assets.sdk.database import DatabaseTable, NamedTable

_TABLES = """
SELECT c.relname, quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm')
AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
ORDER BY lower(c.relname) = lower($2) DESC, lower(n.nspname) = lower($1) DESC, 2 LIMIT 5000
"""
"""Those of the same name first."""
_READABLE = "SELECT has_table_privilege($1::oid, 'SELECT')"
_INSERTABLE = "SELECT has_any_column_privilege($1::oid, 'INSERT'), current_user::text"
# 68: a trigger INSTEAD OF INSERT.
_WRITABLE = """
SELECT c.relkind = 'v', row_security_active(c.oid), current_user::text,
    EXISTS (SELECT FROM pg_trigger t
            WHERE t.tgrelid = c.oid AND t.tgtype & 68 = 68 AND t.tgenabled IN ('O', 'A'))
FROM pg_class c WHERE c.oid = $1::oid
"""
_KIND = """
SELECT c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind NOT IN ('r', 'p', 'f', 'v')
"""
_KINDS = {
    "m": "a materialized view, which only REFRESH fills",
    "S": "a sequence",
    "c": "a composite type",
}
_ANY = "SELECT 1 FROM {} LIMIT 1"


def missing_table_error(link: Link, owner: NamedTable) -> PermanentError:
    """Why a table is not found; with the one of this name that is elsewhere, or spelled otherwise.

    Called on the driver, where a table is missing that nobody is to create.
    """
    error = owner.no_table()
    schema, name = owner.place()
    places: dict[str, str] = {}
    for oid, place in link.execute(_TABLES, schema, name):
        places.setdefault(str(oid), str(place))
    meant = name if name in places else likely(name, places)
    return PermanentError(f"{error}{suggestion(places.get(meant or ''))}")


def check_insertable(link: Link, sink: DatabaseTable, oid: str) -> None:
    """Raises PermanentError where the role may insert into no column of the table."""
    ((allowed, role),) = link.execute(_INSERTABLE, oid)
    if not allowed:
        raise PermanentError(
            f"{sink.address()} cannot be written to: role {role} may not insert rows. Let the "
            f"owner run: GRANT INSERT ON {qualified_name(*sink.place())} TO {quote(role)} "
            "(upserts also need SELECT and UPDATE, and deleteMode: hard DELETE)"
        )


def check_writable(link: Link, sink: PostgresqlSinkOptions, oid: str) -> None:
    """Raises PermanentError where the statements of the sink are none for this table or view.

    Called on the driver when a branch opens, so that it does not show at the first record.
    """
    ((view, secured, role, triggered),) = link.execute(_WRITABLE, oid)
    place = qualified_name(*sink.place())
    if view and sink.upsert_mode:
        raise PermanentError(
            f"{place} is a view: it has no unique index that rows could be matched by; name the "
            "table behind it"
        )
    if view and not triggered:
        raise PermanentError(
            f"{place} is a view, and COPY writes to views only by a trigger INSTEAD OF INSERT: "
            "name the table behind it, or create such a trigger"
        )
    if secured and not sink.upsert_mode:
        raise PermanentError(
            f"row policies of {place} hold for role {role}, and COPY writes to no such table: run "
            f"ALTER ROLE {quote(role)} BYPASSRLS, let the owner of the table write, or set "
            "upsertMode: true, whose statements obey the policies"
        )


def check_name(link: Link, sink: PostgresqlSinkOptions) -> None:
    """Raises PermanentError where something else than a table has the name of a missing one."""
    for (kind,) in link.execute(_KIND, *sink.place()):
        raise PermanentError(
            f"{qualified_name(*sink.place())} is {_KINDS.get(kind, 'an index')}: name a table"
        )


def holds_rows(link: Link, schema: str, name: str, oid: str) -> bool:
    """Returns whether the table has a row; True as well for a role that may not read it."""
    if not link.execute(_READABLE, oid)[0][0]:
        return True
    return bool(link.execute(_ANY.format(qualified_name(schema, name))))
