"""The columns that a manifest chooses, beside those that the tables have."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.tables import CdcTable
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.errors.likely_names import did_you_mean

_NAMES = """
SELECT DISTINCT attname::text FROM pg_attribute
WHERE attrelid = ANY ($1::text[]::oid[]) AND attnum > 0 AND NOT attisdropped ORDER BY 1
"""


def unknown_columns(link: TextLink, source: PostgresqlCdcOptions, found: Sequence[CdcTable]) -> str:
    """Returns what is wrong with `includeColumns` and `excludeColumns`; empty where nothing is.

    A misspelt name of a column that is to be left out would copy the column without a word.

    Args:
        link: to the server.
        source: whose manifest chooses columns.
        found: all tables of the manifest; a name may be that of a column of any of them.
    """
    chosen = {"includeColumns": source.include_columns, "excludeColumns": source.exclude_columns}
    if not any(chosen.values()):
        return ""
    names = [name for (name,) in link.execute(_NAMES, [str(table.oid) for table in found])]
    return misspelt_columns(chosen, names)


def misspelt_columns(chosen: dict[str, tuple[str, ...]], names: Sequence[str]) -> str:
    """Lists by option the names of no column, each with the name that is probably right.

    Args:
        chosen: the names that each option lists.
        names: of all columns, whose case does not count.
    """
    folded = {name.casefold() for name in names}
    return "; ".join(
        f"{option} names {name}, which no table of the flow has as a column"
        f"{did_you_mean(name, names)}"
        for option, listed in chosen.items()
        for name in listed
        if name.casefold() not in folded
    )
