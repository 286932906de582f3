"""A look into the log without taking anything: whether something new is in it, and how much."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from dataflow_assets.connectors.postgresql.cdc.layout import Announcement
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.cdc.reader import HEADER
from dataflow_assets.connectors.postgresql.cdc.started_reader import begin
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender

PATIENCE = 2.0  # seconds for which it waits for the slot: whoever asks asks for other flows too
_BEGIN, _RELATION, _TRUNCATE = map(ord, "BRT")
_NEVER = None, 0
_ROWS = frozenset(map(ord, "IUD"))


@dataclass(frozen=True)
class CdcSeen:
    """The first changes of the tables that are read."""

    changes: int
    first: Lsn | None = None
    """Where the first transaction with a change commits; None where there is none."""
    committed: int = 0
    """When it committed: microseconds since 2000."""
    upto: Lsn | None = None
    """Where the look ended early; None: it went to its end."""


def look(source: PostgresqlCdcOptions, after: Lsn, upto: Lsn, most: int = 1) -> CdcSeen:
    """Changes of the transactions that commit between two places.

    Called by whoever plans, or asks for the ends or the lag. Nothing moves; the server looks
    through its log from the oldest transaction that was open where the slot is.

    Args:
        source: with its secrets in place.
        after: not before where the slot is.
        upto: the end of the look.
        most: after so many changes the look ends.

    Raises:
        Failure, PermanentError as `begin`.
    """
    followed: set[bytes] = set()
    first: tuple[Lsn | None, int] | None = None
    changes, lsn, committed = 0, after, 0
    with closing(Walsender(source.dsn())) as sender:
        begin(source, sender, after, PATIENCE)
        for kind, data in sender.messages(upto):
            if kind in _ROWS:
                changes += bytes(data[HEADER + 1 : HEADER + 5]) in followed
            elif kind == _BEGIN:
                lsn = Lsn(int.from_bytes(data[26:34], "big"))
                committed = int.from_bytes(data[34:42], "big", signed=True)
            elif kind == _RELATION:
                announcement = Announcement.parse(data)
                key = announcement.oid.to_bytes(4, "big")
                (followed.add if announcement.place in source.places else followed.discard)(key)
            elif kind == _TRUNCATE:
                changes += _is_ours(bytes(data[HEADER + 6 :]), followed)
            if changes and first is None:
                first = lsn, committed
            if changes >= most:
                return CdcSeen(changes, *(first or _NEVER), lsn)
    return CdcSeen(changes, *(first or _NEVER))


def _is_ours(tables: bytes, followed: set[bytes]) -> bool:
    return any(tables[at : at + 4] in followed for at in range(0, len(tables), 4))
