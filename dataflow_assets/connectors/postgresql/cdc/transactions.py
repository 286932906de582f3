"""The log of a task's parts: which transaction is of which part."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.cdc.read_ahead import ReadAhead
from dataflow_assets.connectors.postgresql.cdc.reader import CdcReader, Message
from dataflow_assets.connectors.postgresql.cdc.started_reader import begin_reader
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender

_BEGIN = ord("B")


class Transactions:
    """The transactions of stretches that follow one another, read by one reader."""

    def __init__(self, source: PostgresqlCdcOptions, after: Lsn, upto: Lsn, *, ahead: bool) -> None:
        """Connects, and begins to read.

        Args:
            source: with its secrets in place.
            after: where the transactions begin to be read.
            upto: where the last stretch ends.
            ahead: another stretch may be read while one is stored.

        Raises:
            PermanentError, TransientError, Failure as `begin_reader`.
        """
        reader = begin_reader(source, after, upto)
        self._reader: CdcReader | ReadAhead = reader
        if ahead and isinstance(reader, Walsender):
            self._reader = read = _ahead(reader, upto)
            self._messages = read.messages()
        else:
            self._messages = reader.messages(upto)
        self._next: Message | None = None

    def before(self, upto: Lsn) -> Iterator[Message]:
        """The messages of those that commit before a place, behind all that were asked for."""
        if self._next is not None:
            if _commits(self._next) >= upto.value:
                return
            first, self._next = self._next, None
            yield first
        for message in self._messages:
            if message[0] == _BEGIN and _commits(message) >= upto.value:
                self._next = message
                return
            yield message

    def close(self) -> None:
        self._reader.close()


def _ahead(reader: CdcReader, upto: Lsn) -> ReadAhead:
    try:
        return ReadAhead(reader, upto)
    except BaseException:  # as where no thread can be started
        reader.close()
        raise


def _commits(begin: Message) -> int:
    return int.from_bytes(begin[1][26:34], "big")
