"""The replication slot: what it is now, made, checked, moved, freed of a reader that is gone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dataflow_assets.connectors.postgresql.cdc import errors
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.cdc.reader import APPLICATION
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.errors import PermanentError

FREE_SECONDS = 10.0  # in which a slot that was read a moment ago becomes free
_STEP = 0.02
_LOADING = 2  # slots: the flow's, and a temporary one that names the place of the first rows
_FAILOVER = 170_000  # the version from which a slot can outlive a failover

_FIND = """
SELECT to_jsonb(s)->>'plugin', to_jsonb(s)->>'database', s.active_pid, a.application_name,
       s.confirmed_flush_lsn::text, to_jsonb(s)->>'wal_status',
       coalesce(to_jsonb(s)->>'invalidation_reason', ''),
       pg_wal_lsn_diff({end}, s.restart_lsn)::int8, current_database()
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = $1
"""
END = (
    "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() "
    "END"
)
_ROOM = """
SELECT current_setting('max_replication_slots')::int,
  (SELECT count(*)::int FROM pg_replication_slots)
"""
_VERSION = "SELECT current_setting('server_version_num')::int"
_MAKE = "SELECT pg_create_logical_replication_slot($1, 'pgoutput', false)"
_MAKE_FAILOVER = "SELECT pg_create_logical_replication_slot($1, 'pgoutput', false, false, true)"
_MOVE = "SELECT pg_replication_slot_advance($1, $2::pg_lsn)"
# Not beyond the first quote: what a statement quotes may be a password.
_WRITERS = """
SELECT pid, application_name, left(regexp_replace(query, '[''$].*', '...'), 80)
FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 3
"""


@dataclass(frozen=True)
class Slot:
    """A slot as the server describes it now."""

    confirmed: Lsn
    pid: int | None
    """Of the process that reads the slot; None: nobody does."""
    application: str
    retained: int
    """Bytes of log that the slot keeps."""


def end_of_log(link: TextLink) -> Lsn:
    """Returns how far the log is safe on the server's disk."""
    return Lsn.parse(link.execute(f"SELECT ({END})::text")[0][0])


def server(link: TextLink) -> str:
    """The identity of a run of a server: a standby that was promoted is another one."""
    return str(link.execute("SELECT pg_postmaster_start_time()::text")[0][0])


def find(link: TextLink, source: PostgresqlCdcOptions) -> Slot | None:
    """The slot; None where there is none.

    Raises:
        PermanentError: it is another one's, or the server has invalidated it.
        TransientError: another process is creating it.
    """
    rows = link.execute(_FIND.format(end=END), source.slot)
    if not rows:
        return None
    plugin, database, pid, application, confirmed, status, reason, retained, own = rows[0]
    if plugin != source.plugin or database != own:
        raise PermanentError(
            f"{source.title} cannot be read: its plugin is {plugin or 'none'} and its database "
            f"{database or 'none'}; expected {source.plugin} and {own}. Choose another slotName"
        )
    place = readable_from(source, confirmed, status, reason)
    return Slot(place, pid, application or "", int(retained or 0))


def readable_from(
    source: PostgresqlCdcOptions, confirmed: str | None, status: str | None, reason: str | None
) -> Lsn:
    """The slot's place in the log, where the server can read it.

    Called wherever a slot is looked at, by the driver and by a reader of the log.

    Args:
        source: with its secrets in place.
        confirmed: the place as the server says it; None: the slot has none yet.
        status: its `wal_status`.
        reason: its `invalidation_reason`; empty where the server does not say.

    Raises:
        PermanentError: the server has invalidated the slot.
        TransientError: another process is creating the slot.
    """
    if status == "lost":
        raise errors.slot_lost(source, reason or "")
    if confirmed is None:
        raise errors.unfinished_slot(source)
    return Lsn.parse(confirmed)


def check_room(link: TextLink, source: PostgresqlCdcOptions) -> None:
    """Raises PermanentError where the slot has no place beside the one that a load needs."""
    ((most, used),) = link.execute(_ROOM)
    if most - used < _LOADING:
        raise errors.no_room(source, most - used, most)


def make(link: TextLink, source: PostgresqlCdcOptions) -> None:
    """Creates the slot; on a server that can, one that outlives a failover.

    Raises:
        Failure, PermanentError.
    """
    ((version,),) = link.execute(_VERSION)
    try:
        link.execute(_MAKE_FAILOVER if version >= _FAILOVER else _MAKE, source.slot)
    except PostgresqlFailure as failure:
        raise with_writers(link, failure) from None


def with_writers(link: TextLink, failure: PostgresqlFailure) -> PostgresqlFailure:
    """The failure, and who writes: a slot begins when all who write now have ended."""
    if failure.sqlstate not in {"55P03", "57014"}:
        return failure
    writers = link.execute(_WRITERS)
    listed = "; ".join(f"process {pid} ({name}): {query}" for pid, name, query in writers)
    message = f"{failure.message}; it waits for open transactions that write: {listed or 'none'}"
    return PostgresqlFailure(message, failure.sqlstate)


def check(source: PostgresqlCdcOptions, slot: Slot | None, after: Lsn) -> Slot:
    """Raises PermanentError where the slot cannot give what lies behind `after`."""
    if slot is None:
        raise errors.no_slot(source, started=True)
    if slot.confirmed.value > after.value:
        raise errors.changes_are_gone(source, slot.confirmed, after)
    return slot


def check_end(link: TextLink, source: PostgresqlCdcOptions, after: Lsn, end: Lsn) -> None:
    """Raises where the log ends before `after`: it is not the log that was read up to there.

    Raises:
        PermanentError: what is written up to `after` from now on would be skipped.
        TransientError: a standby will come that far.
    """
    if end.value < after.value:
        ((standby,),) = link.execute("SELECT pg_is_in_recovery()")
        raise errors.ends_before(source, end, after, standby=standby)


def wait_for_readers(link: TextLink, source: PostgresqlCdcOptions) -> None:
    """Waits until nobody reads the slot; a reader of ours that is left over is ended.

    Called by the driver, which has taken the flow's epoch: whoever reads for an older driver can
    commit nothing any more.

    Raises:
        TransientError: somebody else reads it.
    """
    deadline = time.monotonic() + FREE_SECONDS
    warned = False
    while (slot := find(link, source)) is not None and slot.pid is not None:
        if time.monotonic() >= deadline:
            raise errors.in_use(source, slot.pid, slot.application or "without a name")
        if slot.application == APPLICATION and not warned and _late(deadline):
            warned = True
            link.execute("SELECT pg_terminate_backend($1)", slot.pid)
        time.sleep(_STEP)


def _late(deadline: float) -> bool:
    """One that was closed a moment ago may still be looking through the log."""
    return deadline - time.monotonic() < FREE_SECONDS * 0.8


def move(link: TextLink, source: PostgresqlCdcOptions, upto: Lsn) -> None:
    """Lets go of the log before `upto`, unless somebody reads the slot meanwhile."""
    slot = find(link, source)
    if slot is None or slot.confirmed.value >= upto.value:
        return
    deadline = time.monotonic() + 1.0
    while True:
        try:
            link.execute(_MOVE, source.slot, str(upto))
        except PostgresqlFailure as failure:
            if failure.sqlstate != errors.IN_USE:
                raise
            if time.monotonic() >= deadline:
                return  # the next release is as good
            time.sleep(_STEP)
        else:
            return
