"""A connection that reads a slot: statements, then what the server sends, as it comes.

psycopg connects, libpq does the rest: psycopg itself has no COPY in both directions.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import ClassVar, Self

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.client import TextLink, unreachable
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure, from_psycopg
from dataflow_assets.errors import TransientError

log = logging.getLogger(__name__)

APPLICATION = "dataflow-cdc"
_SETTINGS = {
    "wal_sender_timeout": "0",  # a reader that waits for its sink is not dead; TCP tells who is
    "statement_timeout": "0",
    "lock_timeout": "30s",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "extra_float_digits": "1",
}
# A stretch is one transaction, which lasts as long as its sink; older servers refuse the name.
_PATIENT = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'"
ASK_SECONDS = 1.0  # of silence, after which the server is asked for a sign of life, each time
LOOK_SECONDS = 30.0  # of silence, after which another connection looks how far the server is
SILENT_SECONDS = 600.0  # in which a server shows that it goes on
_PROGRESS = """
SELECT r.sent_lsn::text, a.wait_event_type || ' ' || a.wait_event
FROM pg_stat_activity a LEFT JOIN pg_stat_replication r USING (pid) WHERE a.pid = $1
"""
# A large transaction is put aside on the server's disk until its end is read: nothing is sent.
_SPILLED = "SELECT spill_bytes FROM pg_stat_replication_slots WHERE slot_name = $1"
_SPILLS = 140_000  # the version from which a server counts that
CANCEL_SECONDS = 2.0  # for the connection by which the server is told to stop
HEADER = 25  # bytes before pgoutput's own message

Row = tuple[str | None, ...]
Message = tuple[int, memoryview | bytes]
"""The kind of pgoutput's message, and the message behind a header of HEADER bytes."""


@dataclass(frozen=True)
class CdcProgress:
    """The server's view of the process that reads the slot for us."""

    place: str
    """In the log; empty where the server does not tell."""
    spilled: int
    """Bytes that it has put aside."""
    waits: str
    """For what: the type and the name of PostgreSQL's wait event; empty while it works."""

    @property
    def works(self) -> bool:
        """True where the process works by itself: `Client` is whatever others let it wait for."""
        return not self.waits.startswith("Client ")


@dataclass
class Silence:
    """A time in which nothing of the log comes; answers to what is asked do not end it."""

    since: float = field(default_factory=time.monotonic)
    """Since when the server shows no progress."""
    looked: float = field(default_factory=time.monotonic)
    last: CdcProgress = CdcProgress("", 0, "")
    answered: bool = False
    """Whether an answer has come since the last look."""


class CdcReader(ABC):
    """Reads one slot. Used by one thread; never confirms anything."""

    replication: ClassVar[Mapping[str, str]] = {}
    """What makes the connection one of the replication protocol."""
    holds_slot: ClassVar = True
    """From `start` on nobody else can read or move the slot."""

    def __init__(self, connection: str) -> None:
        self._given = connection
        declared = dsn.parse(connection).get("options", "")
        options = " ".join([declared, *(f"-c {name}={value}" for name, value in _SETTINGS.items())])
        conninfo = dsn.conninfo(connection, APPLICATION)
        info = make_conninfo(conninfo, options=options, **self.replication)
        try:
            self._connection = psycopg.connect(info, autocommit=True)
        except psycopg.Error as error:
            raise unreachable(str(error), info, connection) from None
        self._libpq = self._connection.pgconn
        self._slot = ""
        self._sending = False
        """The server may still be looking for what to send."""
        try:
            self.execute(_PATIENT)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; the slot is free when the server notices. Safe twice.

        A server that looks through log which is not for us would notice when it sends something,
        seconds later.
        """
        if self._sending:
            self._sending = False
            with suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=CANCEL_SECONDS)
        self._connection.close()

    def interrupt(self) -> None:
        """Ends the stream under a thread that waits for it; all other methods are that thread's.

        Does nothing behind `close`, and must not be called beside it: the number of a socket that
        is closed may be another one's.
        """
        if self._sending:
            with suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=CANCEL_SECONDS)
        with (
            suppress(psycopg.Error, OSError),
            socket.socket(fileno=os.dup(self._libpq.socket)) as same,
        ):
            same.shutdown(socket.SHUT_RDWR)

    @abstractmethod
    def start(self, slot: str, publication: str, after: Lsn) -> None:
        """Begins with the first transaction that commits at `after` or behind it.

        Raises:
            Failure: somebody else reads the slot, or the server refuses.
        """

    @abstractmethod
    def messages(self, upto: Lsn) -> Iterator[Message]:
        """The messages of the transactions whose commit record begins before `upto`.

        Ends only when the server says that there are no others. Called once, after `start`.
        """

    def execute(self, query: str, *parameters: str) -> list[Row]:
        """Runs one statement, of SQL or of the replication protocol, which has no parameters.

        Raises:
            Failure: the server refuses, or the connection has ended.
        """
        result = self._result(query, *parameters)
        if result.status not in {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}:
            raise self._failure(result)
        columns = range(result.nfields)
        return [
            tuple(_text(result.get_value(row, column)) for column in columns)
            for row in range(result.ntuples)
        ]

    def _result(self, query: str, *parameters: str) -> pq.abc.PGresult:
        values = [one.encode() for one in parameters]
        libpq, text = self._libpq, query.encode()
        try:
            return libpq.exec_params(text, values) if values else libpq.exec_(text)
        except psycopg.Error as error:
            raise from_psycopg(error) from None

    def _wait(self, silence: Silence) -> None:
        """Until the server sends: it is silent while it looks through log that is not for us.

        It is asked where it is all the while: behind the end of a stretch it would go on through
        log that others write, and say nothing before it has come to the end of that.

        Args:
            silence: that has begun with this wait, or goes on.

        Raises:
            TransientError: it does not even look any more.
        """
        ready = select.poll()  # `select` takes no descriptor above 1023
        ready.register(self._libpq.socket, select.POLLIN)
        while not ready.poll(ASK_SECONDS * 1_000):
            if time.monotonic() - silence.looked >= LOOK_SECONDS:
                self._look(silence)
            if silence.last.works:  # who waits for a standby would log a warning for each question
                self._ask()
        try:
            self._libpq.consume_input()
        except psycopg.Error as error:
            raise from_psycopg(error) from None

    def _look(self, silence: Silence) -> None:
        now, last = self._progress(), silence.last
        if (now.place, now.spilled) != (last.place, last.spilled) or (
            now.works and silence.answered
        ):
            silence.since = time.monotonic()
        silence.last, silence.looked, silence.answered = now, time.monotonic(), False
        seconds = silence.looked - silence.since
        why = now.waits or "nothing that it would tell"
        log.warning("process %s of the server sends nothing: %s", self._libpq.backend_pid, why)
        if seconds >= SILENT_SECONDS:
            raise TransientError(
                f"process {self._libpq.backend_pid} of the server has sent nothing for "
                f"{seconds:.0f} seconds and stays at {now.place or 'its beginning'} of the log "
                f"({why}): it is paused, its disk hangs, or it waits for a standby that is "
                "down (synchronized_standby_slots)"
            )

    def _ask(self) -> None:  # noqa: B027 - a statement cannot be asked
        """Asks how far the process is, which it answers before anything else if it can."""

    def _progress(self) -> CdcProgress:
        counts = self._connection.info.server_version >= _SPILLS
        with closing(TextLink(self._given, APPLICATION)) as link:
            rows = link.execute(_PROGRESS, self._libpq.backend_pid)
            spilled = link.execute(_SPILLED, self._slot) if counts else []
        if not rows:
            raise PostgresqlFailure("the server's process is gone")
        place, waits = rows[0]
        return CdcProgress(place or "", int(spilled[0][0]) if spilled else 0, waits or "")

    def _end_of_stream(self) -> PostgresqlFailure:
        result = self._libpq.get_result()
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            return PostgresqlFailure("the server has ended the stream")
        return self._failure(result)

    def _failure(self, result: pq.abc.PGresult) -> PostgresqlFailure:
        return from_psycopg(psycopg.errors.error_from_result(result, encoding="utf-8"))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
