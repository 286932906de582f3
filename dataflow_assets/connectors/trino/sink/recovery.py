"""Whether a statement whose end nobody has seen has stored its rows.

Called when a session opens, under its new stamp: what has not begun by then writes nothing. What
has begun is in Trino's list of queries, and is waited for; then its commit is looked for.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from dataflow_assets.connectors.trino.client import Client, literal
from dataflow_assets.connectors.trino.errors import Failure
from dataflow_assets.connectors.trino.table.capabilities import Capabilities
from dataflow_assets.connectors.trino.table.checkpoint_table import Pending
from dataflow_assets.connectors.trino.table.table import Table
from dataflow_assets.errors import PermanentError, TransientError

log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds that a query of an earlier driver is waited for."""
_PAUSE = 0.2
_ENDED = frozenset({"FINISHED", "FAILED"})
_STATE = "SELECT state FROM system.runtime.queries WHERE query_id = {query}"
_KILL = "CALL system.runtime.kill_query(query_id => {query}, message => 'another run took over')"


def has_committed(
    client: Client, table: Table | None, found: Capabilities, pending: Pending, flow: str
) -> bool:
    """Whether the rows of the statement are in the table. Raises Failure.

    Raises:
        TransientError: the query still runs.
        PermanentError: nothing tells any more.
    """
    state = _ended(client, pending, flow)
    if table is None:
        return False
    if found.snapshots:
        return _is_listed(client, table, pending, flow)
    if not state:
        log.warning(
            "flow %s: catalog %s does not say whether query %s has stored its rows: they are read "
            "again, and may be in the table twice",
            flow,
            table.place.catalog,
            pending.query,
        )
    return state == "FINISHED"


def _ended(client: Client, pending: Pending, flow: str) -> str:
    """The state in which the query ended; empty where Trino does not know it any more."""
    until = time.monotonic() + PATIENCE
    while True:
        state = str(client.value(_STATE.format(query=literal(pending.query))) or "")
        if not state or state in _ENDED:
            return state
        if time.monotonic() > until:
            raise TransientError(
                f"flow {flow}: query {pending.query} of an earlier run still works ({state}): "
                "whether its rows are stored is known once it ends"
            )
        if state != "FINISHING":  # a commit under way is waited for
            with suppress(Failure):
                client.run(_KILL.format(query=literal(pending.query)))
        time.sleep(_PAUSE)


def _is_listed(client: Client, table: Table, pending: Pending, flow: str) -> bool:
    snapshots = table.place.hidden("snapshots")
    mine = f"element_at(summary, 'trino_query_id') = {literal(pending.query)}"
    base = literal(pending.base or "")
    found, known = client.rows(
        f"SELECT count_if({mine}), count_if(CAST(snapshot_id AS varchar) = {base}) FROM {snapshots}"  # noqa: S608 - quoted
    )[0]
    if not found and pending.base and not known:
        raise PermanentError(
            f"flow {flow}: whether query {pending.query} has stored its rows in {table.place} "
            "cannot be known any more: the snapshots of that time have expired. Look at the rows, "
            "then start the flow with table: truncate, or from a position with --from"
        )
    return bool(found)


def head(client: Client, table: Table) -> str | None:
    """The id of the table's last snapshot; None for a table without any. Raises Failure."""
    found = client.value(
        f"SELECT CAST(max_by(snapshot_id, committed_at) AS varchar) FROM {table.place.hidden('snapshots')}"  # noqa: S608,E501
    )
    return None if found is None else str(found)
