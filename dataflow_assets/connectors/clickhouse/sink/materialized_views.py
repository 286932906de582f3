"""Materialized views on the target: they see an INSERT that is repeated after a crash once more."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.connectors.clickhouse import client as clients
from dataflow_assets.connectors.clickhouse.client import Client
from dataflow_assets.connectors.clickhouse.table.table import Table, find

# Older servers do not tell where a view stores its rows.
_TOLD = """
SELECT count() FROM system.columns
WHERE database = 'system' AND table = 'tables' AND name = 'target_table'
"""
_VIEWS = """
SELECT database, name, target_database, target_table FROM system.tables
WHERE engine = 'MaterializedView' AND (database, name) IN (
    SELECT arrayJoin(arrayZip(dependencies_database, dependencies_table))
    FROM system.tables WHERE uuid = {u:UUID})
ORDER BY database, name
"""


def forgetful(client: Client, target: Table) -> Iterator[str]:
    """What a person should know of each view whose table does not remember what was inserted."""
    ((told,),) = clients.rows(client, _TOLD)
    views = clients.rows(client, _VIEWS, {"u": target.uuid}) if told else []
    for database, name, *place in views:
        table = find(client, *place)
        if table is not None and table.forgets:
            yield (
                f"materialized view {database}.{name} may count rows twice after a crash: its "
                f"table does not remember what was inserted; run: {table.remember}"
            )
