"""The start of a reader of the slot: by the way that takes less, as soon as nobody else reads."""

from __future__ import annotations

import time

from dataflow_assets.connectors.postgresql.cdc import errors, slot
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.peeked import REFUSED, Peeked, is_short
from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.cdc.reader import CdcReader
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.pool import lent_to_source

PATIENCE = 60.0  # seconds for which a reader waits until another one lets go of the slot
_STEP = 0.02
_CONFIRMED = (
    "SELECT confirmed_flush_lsn::text, to_jsonb(s)->>'wal_status', "
    "to_jsonb(s)->>'invalidation_reason' FROM pg_replication_slots s WHERE slot_name = '{}'"
)


def begin_reader(source: PostgresqlCdcOptions, after: Lsn, upto: Lsn) -> CdcReader:
    """A reader of the changes between two places, by the way that takes less, already started.

    Args:
        source: with its secrets in place.
        after: where the transactions begin to be read.
        upto: where they end.

    Raises:
        PermanentError, TransientError, Failure as `begin`.
    """
    with lent_to_source(source.dsn()) as link:
        short = is_short(link, source.slot, after, upto)
    if short:
        try:
            return _start(source, Peeked(source.dsn(), upto), after)
        except PostgresqlFailure as failure:
            if failure.sqlstate not in REFUSED:
                raise
    return _start(source, Walsender(source.dsn()), after)


def _start(source: PostgresqlCdcOptions, sender: CdcReader, after: Lsn) -> CdcReader:
    try:
        begin(source, sender, after)
    except BaseException:
        sender.close()
        raise
    return sender


def begin(
    source: PostgresqlCdcOptions, sender: CdcReader, after: Lsn, patience: float = PATIENCE
) -> None:
    """Starts the stream behind `after`, as soon as nobody else reads the slot.

    Args:
        source: with its secrets in place.
        sender: not started yet.
        after: where the transactions begin to be read.
        patience: seconds for which it waits until the slot is free.

    Raises:
        PermanentError: the slot has let go of what lies behind `after`: the server would begin
        later without a word; or the server has invalidated the slot.
        TransientError: somebody else goes on reading it, or creates it.
    """
    deadline = time.monotonic() + patience
    while True:
        rows = sender.execute(_CONFIRMED.format(source.slot))
        if not rows:
            raise errors.no_slot(source, started=True)
        confirmed = slot.readable_from(source, *rows[0])
        if not sender.holds_slot and confirmed != after:
            raise errors.slot_moved(source, confirmed, after)
        try:
            sender.start(source.slot, source.publication, after)
        except PostgresqlFailure as failure:
            if failure.sqlstate != errors.IN_USE or time.monotonic() >= deadline:
                raise
            time.sleep(_STEP)
        else:
            break
    with lent_to_source(source.dsn()) as link:
        state = slot.find(link, source)
    if state is not None and state.confirmed.value > after.value and not sender.holds_slot:
        raise errors.slot_moved(source, state.confirmed, after)
    slot.check(source, state, after)
