"""Reads the log ahead: the server decodes what comes next while a sink stores what came before.

A server waits as soon as nobody takes what it sends, and a task that waits for its sink takes
nothing: decoding and storing would take turns, on one core.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.cdc.reader import CdcReader, Message
from dataflow_assets.errors import TransientError

MOST_BYTES = 16 * 1024 * 1024
"""Of messages that wait, to which the last ones are added whole."""
_TOGETHER = 256 * 1024  # bytes of messages that are handed over at once
_EACH = (
    128  # bytes that a message takes beside its own: small ones are more of these than of theirs
)


class ReadAhead:
    """The messages of a reader, which a thread of its own takes before they are asked for."""

    def __init__(self, reader: CdcReader, upto: Lsn) -> None:
        """Begins to read.

        Args:
            reader: started; nobody else uses it from now on.
            upto: where the transactions end, as for `Reader.messages`.
        """
        self._reader, self._upto = reader, upto
        self._changed = threading.Condition()
        self._waiting = deque[tuple[list[Message], int]]()
        """Messages that are handed over together, and their bytes."""
        self._bytes = 0
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._ending = threading.Lock()
        """Held where the connection is ended: two threads may do that."""
        self._thread = threading.Thread(target=self._read, name="dataflow-read-ahead", daemon=True)
        self._thread.start()

    def messages(self) -> Iterator[Message]:
        """Implements `Reader.messages`; an error comes after everything that was read before it.

        Raises:
            TransientError: `close` was called before all messages were taken.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended or self._closed)
                if self._closed:
                    raise TransientError(
                        f"the reader of the log was closed before it came to {self._upto}"
                    )
                if not self._waiting:
                    break
                taken, size = self._waiting.popleft()
                self._bytes -= size
                self._changed.notify_all()
            yield from taken
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with self._ending:
            self._reader.interrupt()
        self._thread.join()

    def _read(self) -> None:
        try:
            self._take()
        except BaseException as error:  # noqa: BLE001 - who asks for messages raises it
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            with self._ending:  # a server that is not told goes on through the log of others
                self._reader.close()

    def _take(self) -> None:
        messages, size = list[Message](), 0
        for kind, data in self._reader.messages(self._upto):
            # A copy: libpq's own buffer of a small message takes three times as much.
            messages.append((kind, bytes(data)))
            size += len(data) + _EACH
            if size >= _TOGETHER:
                self._add(messages, size)
                if not self._has_room():
                    return
                messages, size = [], 0
        self._add(messages, size)

    def _add(self, found: list[Message], size: int) -> None:
        with self._changed:
            self._waiting.append((found, size))
            self._bytes += size
            self._changed.notify_all()

    def _has_room(self) -> bool:
        """Waits for room; False where nobody will ask for messages any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._bytes < MOST_BYTES)
            return not self._closed
