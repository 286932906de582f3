"""The lag of a branch: changes in the log, rows that are still to be loaded."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from dataflow_assets.connectors.postgresql.cdc import slot
from dataflow_assets.connectors.postgresql.cdc.errors import explain_errors
from dataflow_assets.connectors.postgresql.cdc.idle_log import LOOK_BYTES, IdleLog
from dataflow_assets.connectors.postgresql.cdc.look import CdcSeen
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.planning import RECORD_BYTES
from dataflow_assets.connectors.postgresql.cdc.position import PARTITION, Lsn, Reached, dump_end
from dataflow_assets.connectors.postgresql.cdc.publication_watch import PublicationWatch
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import Lag

_COUNTED = 1_000  # changes up to which they are counted; beyond that they are estimated
_UNIX = 946_684_800  # 2000, in seconds since 1970


def lag(
    source: PostgresqlCdcOptions,
    idle: IdleLog,
    watch: PublicationWatch,
    reached: Reached | None,
    rows: int,
) -> Lag:
    """Changes are counted up to a thousand, beyond that estimated by the bytes of the log.

    Args:
        source: with its secrets in place.
        idle: what the session knows of log without changes.
        watch: what it has seen of the publication: log without changes may be changes that were
            not published.
        reached: where the branch is; None: it has not begun.
        rows: of the tables that it has still to load.
    """
    with explain_errors(source, "looking for changes"):
        with lent_to_source(source.dsn()) as link:
            watch.look(link)
            end, state = slot.end_of_log(link), slot.find(link, source)
            idle.of(slot.server(link))
        ends = {PARTITION: dump_end(end)}
        if reached is None:
            if state is None or source.loads:
                held = None if state is None else state.retained
                return Lag(max(1, rows), 0.0, ends, held=held)
            reached = Reached(state.confirmed)
        watch.check_seen(reached)
        at = reached.lsn
        state = slot.check(source, state, at)
        size = max(0, end.value - at.value)
        if state.pid is not None:
            return Lag(rows + size // RECORD_BYTES, 0.0, ends, size, state.retained)
        changes = _changes(idle, at, end)
    return Lag(rows + _estimate(changes, at, size), _age(changes), ends, size, state.retained)


def _changes(idle: IdleLog, at: Lsn, end: Lsn) -> CdcSeen:
    if end.value <= at.value:
        return CdcSeen(0)
    looked = Lsn(min(end.value, at.value + LOOK_BYTES))
    seen = idle.count_changes(at, looked, _COUNTED)
    return seen if looked.value == end.value else replace(seen, upto=seen.upto or looked)


def _estimate(found: CdcSeen, at: Lsn, size: int) -> int:
    if found.upto is None:
        return found.changes
    return max(found.changes, found.changes * size // max(1, found.upto.value - at.value))


def _age(found: CdcSeen) -> float:
    """Seconds since the first change was committed."""
    if found.first is None:
        return 0.0
    committed = found.committed / 1e6 + _UNIX
    return max(0.0, datetime.now(UTC).timestamp() - committed)
