"""Snapshots that outlive the attempts of a run, so that parts that are stored need no second read.

An attempt that ends with an error closes its session; the next one, in the same process, reads the
parts that are left of the same snapshot. While a snapshot is held its tables are locked against
rewriting, and VACUUM keeps old rows: nobody holds one longer than it is used, plus two minutes.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from dataflow_assets.connectors.postgresql.cdc.snapshot import Snapshot

UNUSED_SECONDS = 120.0  # a branch that was suspended comes back within one minute

Key = tuple[str, ...]
"""Flow, servers, slot and tables."""


@dataclass
class _Held:
    snapshot: Snapshot
    expiry: threading.Timer | None = None

    def stop_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


@dataclass
class HeldSnapshots:
    """Snapshots by flow and slot; sessions are used by different threads of a process."""

    _held: dict[tuple[int, Key], _Held] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Key) -> Snapshot | None:
        """The snapshot, which is in use from now on; None where none is held that is alive."""
        with self._lock:
            held = self._held.get(_own(key))
            if held is not None:
                held.stop_expiry()
        if held is None:
            return None
        if held.snapshot.alive:
            return held.snapshot
        self.let_go(key)
        return None

    def put(self, key: Key, snapshot: Snapshot) -> None:
        """Holds it from now on; another one of the key is let go."""
        self.let_go(key)
        with self._lock:
            self._held[_own(key)] = _Held(snapshot)

    def start_expiry(self, key: Key) -> None:
        """Nobody uses it right now: if that stays so, it is let go."""
        with self._lock:
            held = self._held.get(_own(key))
            if held is None or held.expiry is not None:
                return
            held.expiry = threading.Timer(UNUSED_SECONDS, self._expire, (key, held))
            held.expiry.daemon = True
            held.expiry.start()

    def let_go(self, key: Key) -> None:
        with self._lock:
            held = self._held.pop(_own(key), None)
        if held is not None:
            held.stop_expiry()
            held.snapshot.close()

    def _expire(self, key: Key, held: _Held) -> None:
        with self._lock:
            if self._held.get(_own(key)) is not held or held.expiry is None:
                return  # somebody uses it again
            del self._held[_own(key)]
        held.snapshot.close()


def _own(key: Key) -> tuple[int, Key]:
    """A process that was forked must not use the connections of its parent."""
    return os.getpid(), key


HELD = HeldSnapshots()
"""Those of this process."""
