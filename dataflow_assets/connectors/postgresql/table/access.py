"""Whether a table is there, and what the role may do with it; what to do where it is not so."""

from __future__ import annotations

from dataflow_assets.connectors.postgresql.client import Link, qualified, quote
from dataflow_assets.errors import PermanentError
from dataflow_assets.likely_names import likely, suggestion
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
_ANY = "SELECT 1 FROM {} LIMIT 1"


def absent(link: Link, owner: NamedTable) -> PermanentError:
    """Why a table is not found; with the one of this name that is elsewhere, or spelled otherwise.

    Called on the driver, where a table is missing that nobody is to create.
    """
    error = owner.no_table()
    schema, name = owner.place()
    places: dict[str, str] = {}
    for found, place in link.execute(_TABLES, schema, name):
        places.setdefault(str(found), str(place))
    meant = name if name in places else likely(name, places)
    return PermanentError(f"{error}{suggestion(places.get(meant or ''))}")


def check_insertable(link: Link, sink: DatabaseTable, oid: str) -> None:
    """Raises PermanentError where the role may insert into no column of the table."""
    ((allowed, role),) = link.execute(_INSERTABLE, oid)
    if not allowed:
        raise PermanentError(
            f"{sink.address()} cannot be written to: role {role} may not insert rows. Let the "
            f"owner run: GRANT INSERT ON {qualified(*sink.place())} TO {quote(role)} (upserts also "
            "need SELECT and UPDATE, and deleteMode: hard DELETE)"
        )


def holds_rows(link: Link, schema: str, name: str, oid: str) -> bool:
    """Whether the table has a row; True as well for a role that may not read it."""
    if not link.execute(_READABLE, oid)[0][0]:
        return True
    return bool(link.execute(_ANY.format(qualified(schema, name))))
