"""A short stretch of the log by a function of the server, which decodes all of it first.

The server needs a third of the processor that it needs to send each change by itself, but keeps
what it has decoded in memory and temporary files, and begins where the slot is. So this is for
stretches behind the slot's own place that are short, also with what was open before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar

from psycopg import pq
from typing_extensions import override

from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.cdc.reader import HEADER, CdcReader, Message, Silence
from dataflow_assets.connectors.postgresql.cdc.slot import END
from dataflow_assets.connectors.postgresql.client import TextLink, quote
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure

MOST_BYTES = 128 * 1024 * 1024  # of the log that the server reads for it
REFUSED = frozenset({"53400", "53100", "53200", "42501"})
"""What the server says where its `temp_file_limit`, its disk or its memory is too small for what it
decodes, and where the role may not."""
_BEGIN = ord("B")
_FILE_HEADER = 19  # bytes of a binary COPY before its first row
_VALUE = 6  # bytes of a row before its only value
_IS_SHORT = """
SELECT confirmed_flush_lsn = $2::pg_lsn AND pg_wal_lsn_diff($3::pg_lsn, restart_lsn) <= $4::int8
FROM pg_replication_slots WHERE slot_name = $1
"""
# Results of that size stay in memory. COPY has no parameters: settings take their place, so that
# the server counts all stretches as one statement. They are those of the transaction: behind a
# pooler in transaction mode the next statement of the session may be another flow's.
_READY = f"""
SELECT ({END}) >= $1::text::pg_lsn, set_config('work_mem', '64MB', true),
  set_config('dataflow.upto', $1, true), set_config('dataflow.slot', $2, true),
  set_config('dataflow.publication', $3, true)
"""
# A reader that is gone is noticed while the server decodes; not before 14, nor on every platform.
_NOTICES = "SET client_connection_check_interval = '5s'"
_PEEK = """
COPY (SELECT data FROM pg_logical_slot_peek_binary_changes(current_setting('dataflow.slot'),
  current_setting('dataflow.upto')::pg_lsn, NULL, 'proto_version', '1',
  'publication_names', current_setting('dataflow.publication')))
TO STDOUT (FORMAT binary)
"""


def is_short(link: TextLink, slot: str, after: Lsn, upto: Lsn) -> bool:
    """True where a stretch begins where the slot is, and the server has little to decode for it."""
    rows: list[tuple[bool | None]] = link.execute(
        _IS_SHORT, slot, str(after), str(upto), MOST_BYTES
    )
    return rows == [(True,)]


class Peeked(CdcReader):
    """One stretch by one transaction. The slot is free again when `start` returns."""

    holds_slot: ClassVar = False

    def __init__(self, connection: str, upto: Lsn) -> None:
        """Connects.

        Args:
            connection: the connection string.
            upto: the end of the stretch: nothing behind it is decoded.
        """
        super().__init__(connection)
        self._upto = upto
        self._first: bytes | memoryview = b""

    @override
    def start(self, slot: str, publication: str, after: Lsn) -> None:
        with suppress(PostgresqlFailure):
            self.execute(_NOTICES)
        self._slot = slot
        self.execute("BEGIN")
        try:
            self._peek(slot, publication)
        except PostgresqlFailure:
            with suppress(PostgresqlFailure):  # the connection may be gone
                self.execute("ROLLBACK")
            raise

    def _peek(self, slot: str, publication: str) -> None:
        ((has_all, *_),) = self.execute(_READY, str(self._upto), slot, quote(publication))
        if has_all != "t":  # the statement would end early, without a word
            raise PostgresqlFailure(f"the log of this server ends before {self._upto}")
        self._sending = True
        self._libpq.send_query(_PEEK.encode())
        while self._libpq.is_busy():
            self._wait(Silence())
        self._check(self._libpq.get_result(), pq.ExecStatus.COPY_OUT)
        # The answer comes before the work: its first row tells that all of it was done.
        self._first = self._row()

    @override
    def messages(self, upto: Lsn) -> Iterator[Message]:
        """Implements `Reader.messages`; the end is that of the statement."""
        head, row = bytes(HEADER), self._first[_FILE_HEADER:]
        while row:
            if len(row) > _VALUE:  # the end of a binary COPY is shorter
                kind = row[_VALUE]
                data = head + row[_VALUE:]
                if kind == _BEGIN and int.from_bytes(data[26:34], "big") >= upto.value:
                    return
                yield kind, data
            row = self._row()

    def _row(self) -> bytes | memoryview:
        """The next row; empty where the statement has ended well."""
        while True:
            size, row = self._libpq.get_copy_data(1)
            if size > 0:
                return row
            if size == 0:
                self._wait(Silence())
                continue
            self._sending = False
            self._check(self._libpq.get_result(), pq.ExecStatus.COMMAND_OK)
            while self._libpq.get_result() is not None:
                pass
            self.execute("COMMIT")
            return b""

    def _check(self, result: pq.abc.PGresult | None, expected: pq.ExecStatus) -> None:
        """Raises Failure where the server refuses; another statement may follow."""
        if result is not None and result.status == expected:
            return
        self._sending = False
        while self._libpq.get_result() is not None:
            pass
        if result is None:
            raise PostgresqlFailure("the server has answered nothing")
        raise self._failure(result)
