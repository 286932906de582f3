"""Whether a statement whose end nobody has seen has stored its rows.

Called when a session opens, under its new stamp: what has not begun by then fails. What has begun
is in Trino's list of queries, and is waited for; then its commit is looked for. A catalog without
snapshots tells of it only by how the query has ended: FINISHED is a commit, as a statement without
its stamp never ends so.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from dataflow_assets.connectors.trino.client import Client, literal
from dataflow_assets.connectors.trino.errors import Failure
from dataflow_assets.connectors.trino.table import snapshots
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


class UnknownEnd(PermanentError):
    """Nobody can tell whether a statement has stored its rows; a person can look at them."""


def has_committed(
    client: Client, table: Table | None, found: Capabilities, pending: Pending, flow: str
) -> bool:
    """Whether the rows of the statement are in the table. Raises Failure.

    Raises:
        TransientError: the query still runs.
        UnknownEnd: nothing tells any more.
    """
    state = _ended(client, pending, flow)
    if table is None:
        return False
    if found.snapshots or pending.base is not None:
        return _by_snapshots(client, table, pending, flow)
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
    until, asked = time.monotonic() + PATIENCE, False
    while True:
        state = str(client.value(_STATE.format(query=literal(pending.query))) or "")
        if not state or state in _ENDED:
            return state
        if time.monotonic() > until:
            raise TransientError(
                f"flow {flow}: query {pending.query} of an earlier run still works ({state}): "
                "whether its rows are stored is known once it ends"
            )
        if state != "FINISHING" and not asked:  # a commit under way is waited for
            asked = True
            with suppress(Failure):
                client.run(_KILL.format(query=literal(pending.query)))
        time.sleep(_PAUSE)


def _by_snapshots(client: Client, table: Table, pending: Pending, flow: str) -> bool:
    found = snapshots.has_stored(client, table, pending.query, pending.base)
    if found is None:
        raise UnknownEnd(
            f"flow {flow}: whether query {pending.query} has stored its rows in {table.place} "
            "cannot be known any more: not all snapshots since then are listed (they have expired, "
            "or the catalog shows the last one only, as Nessie does, and others have committed), "
            "and no file of the table has the name of the query. Look at the rows, then start the "
            "flow with table: truncate, or from a position with --from"
        )
    return found
