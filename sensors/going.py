"""The runs of all flows, read once for all sensors of the process.

Each sensor looks for a live run of its flow every few seconds. With a read of its own, the work
would grow with the square of the number of flows.
"""

import threading
import time
from collections.abc import Sequence

import dagster as dg

from dataflow_assets.assets import runs

SECONDS = 2.0


class Going:
    """What was read, as long as it counts as new. Called as `runs.going` is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: tuple[float, str, Sequence[dg.RunRecord]] | None = None

    def __call__(self, instance: dg.DagsterInstance) -> Sequence[dg.RunRecord]:
        """The runs, as of some seconds ago at most; those of an instance in memory as of now."""
        if not instance.is_persistent:
            return runs.going(instance)
        whose = str(instance.get_ref())
        with self._lock:
            now = time.monotonic()
            known = self._read
            if known is None or known[1] != whose or now - known[0] >= SECONDS:
                known = self._read = now, whose, runs.going(instance)
            return known[2]


going = Going()
