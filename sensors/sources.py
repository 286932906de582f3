"""Sessions of sources, kept open between ticks: connecting costs more than asking.

A session is no thread's friend: its questions are several statements on one connection. Whoever
asks holds the flow's lock from the first question to the last, and nobody closes it meanwhile.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dataflow_assets.contracts import Lag, Position, Positions
from dataflow_assets.flow import Flow


class Source:
    """The open source of one flow, as long as the manifest stays what it is."""

    def __init__(self, flow: Flow) -> None:
        self.hash = flow.hash
        self._poll_seconds = flow.source.poll_seconds
        self._session = flow.resolved().source.open(flow.id)
        self._known: tuple[float, Positions] | None = None

    @property
    def identity(self) -> str:
        """The id of the topic or table itself."""
        return self._session.identity

    def start(self) -> Positions:
        """Where a flow without a checkpoint begins."""
        return self._session.start()

    def ends(self) -> Positions:
        """Where each partition ends; not asked more often than the source's `pollInterval` says."""
        now = time.monotonic()
        if self._known is None or now - self._known[0] >= self._poll_seconds:
            self._known = now, self._session.ends()
        return self._known[1]

    def behind(self, partition: str, position: Position | None, end: Position) -> bool:
        """Whether a position has not reached this end."""
        return self._session.behind(partition, position, end)

    def lag(self, after: Positions) -> Lag:
        """How far `after` is behind the ends."""
        return self._session.lag(after)

    def close(self) -> None:
        """Frees the connection."""
        self._session.close()


class _Seat:
    """What one flow has open, and the lock of whoever asks."""

    def __init__(self) -> None:
        self.using = threading.Lock()
        self._source: Source | None = None

    def source(self, flow: Flow) -> Source:
        """The open source; a new one after an edited manifest. Only under the lock."""
        if self._source is None or self._source.hash != flow.hash:
            self.close()
            self._source = Source(flow)
        return self._source

    def close(self) -> None:
        """Closes what is open. Only under the lock."""
        source, self._source = self._source, None
        if source is not None:
            source.close()


class Sources:
    """One open source per flow, asked by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seats: dict[str, _Seat] = {}

    @contextmanager
    def asking(self, flow: Flow) -> Iterator[Source]:
        """The flow's source for a whole question; after an error the next one opens another."""
        seat = self._seat(flow)
        with seat.using:
            try:
                yield seat.source(flow)
            except BaseException:
                seat.close()
                raise

    def drop(self, flow: Flow) -> None:
        """Closes the flow's session, once nobody asks."""
        seat = self._seat(flow)
        with seat.using:
            seat.close()

    def _seat(self, flow: Flow) -> _Seat:
        with self._lock:
            return self._seats.setdefault(flow.id, _Seat())


sources = Sources()
