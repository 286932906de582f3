"""The stream of a slot by the replication protocol, message by message."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import ClassVar

import psycopg
from psycopg import pq
from typing_extensions import override

from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.cdc.reader import HEADER, CdcReader, Message, Silence
from dataflow_assets.connectors.postgresql.client import quote

_DATA, _KEEPALIVE = ord("w"), ord("k")
# A status that confirms nothing, and asks for a keepalive. The server reads it while it passes over
# the changes of a transaction that is not published: it sends nothing then, and shows no progress.
_ALIVE = struct.Struct(">cQQQq?").pack(b"r", 0, 0, 0, 0, True)
_BEGIN, _COMMIT = ord("B"), ord("C")


class Walsender(CdcReader):
    """One replication connection: what the server decodes is sent at once."""

    replication: ClassVar[Mapping[str, str]] = {"replication": "database"}
    _asked = False

    @override
    def start(self, slot: str, publication: str, after: Lsn) -> None:
        name = quote(publication).replace("'", "''")
        result = self._result(
            f"START_REPLICATION SLOT {quote(slot)} LOGICAL {after} "
            f"(proto_version '1', publication_names '{name}')"
        )
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._failure(result)
        self._slot, self._sending = slot, True

    @override
    def messages(self, upto: Lsn) -> Iterator[Message]:
        """Implements `Reader.messages`; the end is a later transaction, or the server's end."""
        end, inside, heard, silence = upto.value, False, False, Silence()
        libpq = self._libpq
        while True:
            size, data = libpq.get_copy_data(1)
            if size > 0 and data[0] == _DATA:
                kind = data[HEADER]
                if kind == _BEGIN:
                    if int.from_bytes(data[26:34], "big") >= end:
                        return
                    inside = True
                elif kind == _COMMIT:
                    inside = False
                heard = True
                yield kind, data
            elif size > 0 and data[0] == _KEEPALIVE:
                if not inside and int.from_bytes(data[1:9], "big") >= end:
                    self._sending = self._asked  # unasked it waits for more log
                    return
                silence.answered = True
            elif size == 0:
                if heard:
                    heard, silence = False, Silence()
                self._wait(silence)
            else:
                self._sending = False
                raise self._end_of_stream()

    @override
    def _ask(self) -> None:
        self._asked = True
        with suppress(psycopg.Error):  # who reads finds out that the connection has ended
            self._libpq.put_copy_data(_ALIVE)
            self._libpq.flush()
