"""Meanings of the server's errors, each with the statement to run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.server_failure import translate_errors

_REPLICATION = re.compile("replication slots|replication role|wal ?sender", re.IGNORECASE)
AGAIN = "dataflow run --from earliest --table truncate"
IN_USE = "55006"
_NO_RIGHT, _NO_ROOM, _NO_SENDER, _FULL = "42501", "53400", "53300", "53100"
_MISSING = "42704"
_DROP_ONE = (
    "drop one (SELECT slot_name, active FROM pg_replication_slots; SELECT pg_drop_replication_slot"
    "('...')), or run ALTER SYSTEM SET max_replication_slots = 20 and restart the server"
)
_INVALIDATED = {
    "wal_removed": (
        "the server has removed log that the flow has not read",
        ". To keep the log in future, raise max_slot_wal_keep_size",
    ),
    "idle_timeout": (
        "nobody has read the slot for longer than idle_replication_slot_timeout",
        (
            ". To keep the slot in future, raise idle_replication_slot_timeout (0: no limit), or "
            "leave the flow switched on"
        ),
    ),
    "rows_removed": (
        "the server, which was a standby, has removed rows of the catalog that reading needs",
        (
            ". To keep the slot in future, set hot_standby_feedback = on at each standby, with a "
            "slot of its own at the primary"
        ),
    ),
    "wal_level_insufficient": (
        "the primary of this server had another wal_level than logical for a time",
        ". To keep the slot in future, keep wal_level = logical at the primary",
    ),
}
"""By `invalidation_reason`: what has happened, and what prevents it."""
_SENDERS = (
    "all WAL senders are in use, of which a flow needs one: if that stays so, run ALTER SYSTEM SET "
    "max_wal_senders = 20 and restart the server"
)
_DISK = (
    "the disk of the server is full: make room there, and the flow goes on by itself. The server "
    "puts a large transaction aside (pg_replslot in its data folder) until it has read its end; "
    "with a higher logical_decoding_work_mem less of it"
)
_LEVEL = (
    "ALTER SYSTEM SET wal_level = 'logical', restart the server, and start the flow again; the "
    "log of an earlier time cannot be read"
)


@contextmanager
def explain_errors(source: PostgresqlCdcOptions, what: str) -> Iterator[None]:
    """Server errors inside become ours; those about replication say what to run.

    Args:
        source: with its secrets in place.
        what: was being done, such as `creating the slot`.

    Raises:
        TransientError, PermanentError.
    """
    doing = f"{what}: {source.title}"
    with translate_errors(doing):
        try:
            yield
        except PostgresqlFailure as failure:
            if advice := _advice(source, failure):
                raise PermanentError(f"{doing}: {failure.reason}; {advice}") from None
            if waits := _waits(failure):
                raise TransientError(f"{doing}: {failure.reason}; {waits}") from None
            raise


def _advice(source: PostgresqlCdcOptions, failure: PostgresqlFailure) -> str:
    code, message = failure.sqlstate, failure.message
    user = dsn.parse(source.dsn()).get("user", "the role")
    if code == _NO_RIGHT and _REPLICATION.search(message):
        return f'run: ALTER ROLE "{user}" REPLICATION'
    if code == _NO_ROOM and "replication slots" in message:
        return f"all replication slots are in use: {_DROP_ONE}"
    if code == _MISSING and "publication" in message:
        return (
            f"a part of the log that {source.title} keeps was written while there was no such "
            f"publication: correct publicationName, or drop the slot ({_drop(source)}) and load "
            f"the tables again with {AGAIN}"
        )
    return _LEVEL if "wal_level" in message else ""


def _waits(failure: PostgresqlFailure) -> str:
    if failure.sqlstate == _NO_SENDER and "max_wal_senders" in failure.message:
        return _SENDERS
    return _DISK if failure.sqlstate == _FULL else ""


def not_logged(table: str, columns: Sequence[str]) -> str:
    """Why values of a row are not known, and what to run.

    Args:
        table: as statements name it.
        columns: whose values they are.
    """
    return (
        f"table {table}: the value of {', '.join(columns)} is not in the log, because it is large "
        f"and the change has left it as it was. Run ALTER TABLE {table} REPLICA IDENTITY FULL (and "
        "the same for each partition, where it has any), so that the log has such values in future"
    )


def wrong_level(source: PostgresqlCdcOptions, level: str) -> PermanentError:
    """The server's log does not say what changed."""
    return PermanentError(f"{source.title}: the server's wal_level is {level}: run {_LEVEL}")


def changes_are_gone(
    source: PostgresqlCdcOptions, confirmed: object, after: object
) -> PermanentError:
    """The server would begin later, without a word."""
    return PermanentError(
        f"{source.title} has let go what lies before {confirmed}, and the flow has read up to "
        f"{after} only: changes in between are gone. The slot was re-created, was moved by hand, "
        "has another reader, or the target was left out of the flow for a while. Load the tables "
        f"again: {AGAIN}"
    )


def slot_moved(source: PostgresqlCdcOptions, confirmed: object, after: object) -> TransientError:
    """Changes may be missing, and nothing says which: the next attempt looks where the flow is."""
    return TransientError(
        f"{source.title} was moved to {confirmed} while changes behind {after} were read: another "
        "run of the flow has taken over, or the slot has another reader"
    )


def ends_before(
    source: PostgresqlCdcOptions, end: object, after: object, *, standby: bool
) -> PermanentError | TransientError:
    """The server is not where it was when it was read last."""
    text = f"{source.title}: the log ends at {end}, and the flow has read up to {after}"
    if standby:
        return TransientError(f"{text}: this standby is behind the server that was read before")
    return PermanentError(
        f"{text}: the server was restored to an earlier moment, or is a standby that was promoted "
        f"while it was behind. The target has changes that the tables have not, and changes up to "
        f"{after} would be skipped. Load the tables again: {AGAIN}"
    )


def on_standby(source: PostgresqlCdcOptions) -> TransientError:
    """A standby is read only once it was promoted: publications are made at its primary."""
    return TransientError(
        f"{source.title}: the server is a standby. Tables are followed at the primary: put its "
        "address into the connection string, or several of which the primary is chosen "
        "(target_session_attrs=primary); after a failover the flow goes on by itself"
    )


def slot_lost(source: PostgresqlCdcOptions, reason: str) -> PermanentError:
    """The server has invalidated the slot, for a reason of `invalidation_reason`; before 17 none.

    An unknown reason is named, and nothing is made up about it.
    """
    why = f" ({reason})" if reason else ""
    cause, future = _INVALIDATED.get(reason or "wal_removed", ("the server does not read it", ""))
    return PermanentError(
        f"{source.title} is lost{why}: {cause}, so changes are gone. Two ways out: drop the slot "
        f"({_drop(source)}) and load the tables again with {AGAIN}; or restore source and target "
        f"to one moment{future}"
    )


def unfinished_slot(source: PostgresqlCdcOptions) -> TransientError:
    """The slot has no place in the log yet."""
    return TransientError(
        f"{source.title} is being created by another process, which waits for open transactions "
        "that write: it can be read once they have ended"
    )


def _drop(source: PostgresqlCdcOptions) -> str:
    return f"SELECT pg_drop_replication_slot('{source.slot}')"


def no_publication(source: PostgresqlCdcOptions) -> PermanentError:
    """A flow that loads nothing would begin at a slot that is older than its publication."""
    return PermanentError(
        f"{source.title} exists, and publication {source.publication} does not: what the tables "
        "have changed since the place of the slot was not published, and would be missing without "
        "a word. Correct publicationName; or drop the slot "
        f"({_drop(source)}), and the flow creates both and begins at that moment"
    )


def no_room(source: PostgresqlCdcOptions, free: int, most: int) -> PermanentError:
    """The slot would be created, and the load that needs another one would fail."""
    return PermanentError(
        f"{source.title}: loading the tables needs two replication slots, one of them for a "
        f"moment, and {max(0, free)} of the server's {most} are free: {_DROP_ONE}"
    )


def passed_over(source: PostgresqlCdcOptions, confirmed: object, after: object) -> str:
    """Returns what a person must know where the operator's slot is ahead of its checkpoint."""
    return (
        f"{source.title} is at {confirmed}, and the checkpoint at {after}: the flow goes on from "
        f"{confirmed}, as the operator itself would. Its heartbeats confirm the end of the log, so "
        "where the tables were idle since the checkpoint nothing is missing. Changes in between "
        "cannot be read any more: whether there were any, and whether the operator had stored "
        "them, is not known; and if the slot was re-created or moved by hand, they are missing. "
        f"Compare the newest rows, or load the tables again: {AGAIN}"
    )


def no_slot(source: PostgresqlCdcOptions, *, started: bool) -> PermanentError:
    """The slot is missing, before the first read or after it."""
    make = f"SELECT pg_create_logical_replication_slot('{source.slot}', 'pgoutput')"
    if not started:
        return PermanentError(
            f"{source.title} does not exist: run {make}, or set createSlotIfNotExists: true"
        )
    return PermanentError(
        f"{source.title} is gone: it was dropped, or the server is a copy that has no slots. What "
        f"changed since the last commit cannot be read. Run {make}, then load the tables again: "
        f"{AGAIN}"
    )


def in_use(source: PostgresqlCdcOptions, pid: object, application: object) -> TransientError:
    return TransientError(
        f"{source.title} is being read by process {pid} of the server ({application}): a slot has "
        f"one reader. End that one (SELECT pg_terminate_backend({pid})), or give this flow a slot "
        "of its own"
    )
