"""Reads the log ahead: the server decodes what comes next while a sink stores what came before.

A server waits as soon as nobody takes what it sends, and a task that waits for its sink takes
nothing: decoding and storing would take turns, on one core.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.cdc.reader import Message, Reader

MOST_BYTES = 16 * 1024 * 1024
"""Of messages that wait, to which the last ones are added whole."""
_TOGETHER = 256 * 1024  # bytes of messages that are handed over at once


class ReadAhead:
    """The messages of a reader, which a thread of its own takes before they are asked for."""

    def __init__(self, reader: Reader, upto: Lsn) -> None:
        """Begins to read.

        Args:
            reader: started; nobody else uses it from now on.
            upto: where the transactions end, as for `Reader.messages`.
        """
        self._reader, self._upto = reader, upto
        self._changed = threading.Condition()
        self._waiting = deque[list[Message]]()
        self._bytes = 0
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="dataflow-read-ahead", daemon=True)
        self._thread.start()

    def messages(self) -> Iterator[Message]:
        """As `Reader.messages`; an error comes behind everything that was read before it."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    break
                found = self._waiting.popleft()
                self._bytes -= sum(len(data) for _, data in found)
                self._changed.notify_all()
            yield from found
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Ends thread and connection; safe twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._reader.interrupt()
        self._thread.join()
        self._reader.close()

    def _read(self) -> None:
        try:
            found, size = list[Message](), 0
            for message in self._reader.messages(self._upto):
                found.append(message)
                size += len(message[1])
                if size >= _TOGETHER:
                    if not self._put(found, size):
                        return
                    found, size = [], 0
            self._put(found, size)
        except BaseException as error:  # noqa: BLE001 - who asks for messages raises it
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, found: list[Message], size: int) -> bool:
        """Waits for room; False where nobody will ask for messages any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._bytes < MOST_BYTES)
            self._waiting.append(found)
            self._bytes += size
            self._changed.notify_all()
            return not self._closed
