"""Whether statements whose end nobody has seen have stored their rows.

Called when a session opens, under its new stamp: what has not begun by then fails. What has begun
is in Trino's list of queries, and is waited for; then its commit is looked for. A catalog without
snapshots tells of it only by how the query has ended: FINISHED is a commit, as a statement without
its stamp never ends so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dataflow_assets.connectors.trino.client import TrinoClient, literal
from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.table import snapshots
from dataflow_assets.connectors.trino.table.capabilities import Capabilities
from dataflow_assets.connectors.trino.table.document import Doubt
from dataflow_assets.connectors.trino.table.table import TrinoPlace, TrinoTable
from dataflow_assets.contracts import Checkpoint
from dataflow_assets.errors import PermanentError, TransientError

log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds that a query of an earlier driver is waited for."""
MOST_OFFSETS = 50
"""Partitions whose offsets are printed."""
_PAUSE = 0.2
_ENDED = frozenset({"FINISHED", "FAILED"})
_STATES = "SELECT query_id, state FROM system.runtime.queries WHERE query_id IN ({queries})"
_KILL = "CALL system.runtime.kill_query(query_id => {query}, message => 'another run took over')"
_FROM = "with --from (all sinks of the flow begin there), or with table: truncate"


class UnknownEnd(PermanentError):
    """Nobody can tell whether a statement has stored its rows; a person can look at them."""


def have_committed(  # noqa: PLR0913 - what is asked, where, and for whom
    client: TrinoClient,
    table: TrinoTable | None,
    found: Capabilities,
    asked: Sequence[Doubt],
    flow: str,
    *,
    prove: bool,
) -> list[bool | None]:
    """Returns whether the rows of each statement are in the table; None: nothing tells any more.

    `prove`: also by the files of others that a statement has failed, as flows that append need.
    Raises Failure, and TransientError where one of the queries still runs.
    """
    if not asked:
        return []
    states = _end_states(client, [one.query for one in asked], flow)
    if table is None:
        return [False] * len(asked)
    listed = {one.query: one.base for one in asked if found.snapshots or one.base is not None}
    stored = snapshots.have_stored(client, table, listed, prove=prove) if listed else {}
    return [
        stored[query] if query in stored else _by_state(states.get(query, ""), table, query, flow)
        for query in (one.query for one in asked)
    ]


@dataclass(frozen=True)
class Ends:
    """How the statements in doubt have ended, the last one first in each."""

    stored: Doubt | None
    """Of the present reading, with its rows in the table."""
    unknown: tuple[Doubt, ...]
    """Of the present reading, of which nothing tells any more."""
    failed: tuple[str, ...]
    """The ids of those whose rows are not there; they may come yet."""


def ends_of(asked: Sequence[Doubt], committed: Sequence[bool | None], known: Checkpoint) -> Ends:
    """Sorts the answers. A restart begins another reading, `reset` none.

    Of one reading at most one statement has stored rows: each asks for those before it.

    Args:
        asked: the statements in doubt.
        committed: what `have_committed` has found of each.
        known: the checkpoint of the branch.
    """
    pairs = list(zip(asked, committed, strict=True))
    follows = [(one, end) for one, end in pairs if known.positions and one.reading == known.reading]
    return Ends(
        next((one for one, end in follows if end), None),
        tuple(one for one, end in follows if end is None),
        tuple(one.query for one, end in pairs if end is False),
    )


def unknown_end(
    place: TrinoPlace, query: str, known: Checkpoint, after: Checkpoint | None, flow: str
) -> UnknownEnd:
    """The error of a statement of which nothing tells any more.

    Args:
        place: the target.
        query: the statement's id.
        known: the checkpoint of the branch.
        after: what is true if the statement has stored its rows; None where nobody has kept it.
        flow: namespace/name.
    """
    before, behind = _offsets(known), _offsets(after) if after else ""
    records = f" (the records from {before} up to {behind})" if before and behind else ""
    return UnknownEnd(
        f"flow {flow}: whether query {query} has stored its rows{records} in {place} cannot be "
        "known any more: its snapshot is not listed (it has expired, or the catalog shows the last "
        "one only, as Nessie does), and the files of the table do not tell either. Look which of "
        "them are in the table, then start the flow behind those, or at the first of them if none "
        f"is, {_FROM}"
    )


def unknown_position(place: TrinoPlace, query: str, flow: str) -> UnknownEnd:
    """The error of a statement whose rows are there, while nobody has kept what they are."""
    return UnknownEnd(
        f"flow {flow}: query {query} has stored its rows in {place} after it was taken for failed, "
        "and up to which position is not kept any more. Look which are the last of them, then "
        f"start the flow behind those, {_FROM}"
    )


def _offsets(checkpoint: Checkpoint) -> str:
    found = [f"{name}={at}" for name, at in checkpoint.positions.items() if isinstance(at, int)]
    return ",".join(found) if len(found) == len(checkpoint.positions) <= MOST_OFFSETS else ""


def _by_state(state: str, table: TrinoTable, query: str, flow: str) -> bool:
    if not state:
        log.warning(
            "flow %s: catalog %s does not say whether query %s has stored its rows: they are read "
            "again, and may be in the table twice",
            flow,
            table.place.catalog,
            query,
        )
    return state == "FINISHED"


def _end_states(client: TrinoClient, queries: Sequence[str], flow: str) -> dict[str, str]:
    """The states in which the queries ended, of those that Trino still knows."""
    until, killed = time.monotonic() + PATIENCE, set[str]()
    sql = _STATES.format(queries=", ".join(map(literal, queries)))
    while True:
        states = {str(query): str(state) for query, state in client.rows(sql)}
        running = {query: state for query, state in states.items() if state not in _ENDED}
        if not running:
            return states
        if time.monotonic() > until:
            query, state = next(iter(running.items()))
            raise TransientError(
                f"flow {flow}: query {query} of an earlier run still works ({state}): "
                "whether its rows are stored is known once it ends"
            )
        # A commit under way is waited for.
        for query in {q for q, state in running.items() if state != "FINISHING"} - killed:
            killed.add(query)
            with suppress(TrinoFailure):
                client.run(_KILL.format(query=literal(query)))
        time.sleep(_PAUSE)
