"""Why a table is not found, and which one was probably meant."""

from __future__ import annotations

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.errors import PermanentError
from dataflow_assets.likely_names import likely
from dataflow_assets.sdk.database import NamedTable

_TABLES = """
SELECT c.relname, quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm')
AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
ORDER BY lower(c.relname) = lower($2) DESC, lower(n.nspname) = lower($1) DESC, 2 LIMIT 5000
"""
"""Those of the same name first."""


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
    return PermanentError(f"{error}; did you mean {places[meant]}?") if meant else error
