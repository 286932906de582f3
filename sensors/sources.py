"""Sessions of sources, kept open between ticks: connecting costs more than asking."""

import threading
import time

from dataflow_assets.contracts import Lag, Positions, SourceSession
from dataflow_assets.flow import Flow
from dataflow_assets.turns import Behind


class Sources:
    """One session per flow, used by one tick at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, threading.Lock, SourceSession]] = {}
        self._known: dict[str, tuple[float, Positions]] = {}

    def ends(self, flow: Flow) -> tuple[Positions, Behind]:
        """Where each partition ends right now, and what tells whether that was reached."""
        using, session = self._session(flow)
        with using:
            return self._ends(flow, session), session.behind

    def _ends(self, flow: Flow, session: SourceSession) -> Positions:
        """Not asked more often than the source's `pollInterval` says."""
        asked, found = self._known.get(flow.id, (0.0, None))
        if found is None or time.monotonic() - asked >= flow.source.poll_seconds:
            found = session.ends()
            self._known[flow.id] = (time.monotonic(), found)
        return found

    def lag(self, flow: Flow, after: Positions) -> Lag:
        """How far `after` is behind the ends."""
        using, session = self._session(flow)
        with using:
            return session.lag(after)

    def drop(self, flow: Flow) -> None:
        """Forgets the session, after an error or when the flow is gone."""
        with self._lock:
            found = self._open.pop(flow.id, None)
            self._known.pop(flow.id, None)
        if found is not None:
            found[2].close()

    def _session(self, flow: Flow) -> tuple[threading.Lock, SourceSession]:
        with self._lock:
            known = self._open.get(flow.id)
        if known is not None and known[0] == flow.hash:
            return known[1], known[2]
        self.drop(flow)
        session = flow.resolved().source.open(flow.id)
        using = threading.Lock()
        with self._lock:
            self._open[flow.id] = (flow.hash, using, session)
        return using, session


sources = Sources()
