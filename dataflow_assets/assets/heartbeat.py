"""Signs of life of the runs that drive something, for whoever cannot look at their processes.

They are kept in Dagster's own storage under the name of the flow or lane: one value for each,
whatever becomes of its runs. It has several of them while a second run finds out that it is not
the first.
"""

import logging
import time
from contextlib import AbstractContextManager

import dagster as dg

from dataflow_assets.sdk.repeating import repeat

BEAT_SECONDS = 60.0  # between two signs of life
SILENT_SECONDS = 600.0  # after which a run counts as dead whose process cannot be seen

log = logging.getLogger(__name__)


class Heartbeat:
    """The signs of life of the runs that drive one flow or lane."""

    def __init__(self, instance: dg.DagsterInstance, name: str) -> None:
        self._storage = instance.daemon_cursor_storage
        self._key = f"dataflow/alive/{name}"

    def beat(self, run_id: str) -> None:
        """The run is alive now; raises what Dagster's storage raises."""
        now = time.time()
        others = {run: at for run, at in self._beats().items() if now - at < SILENT_SECONDS}
        signs = (f"{run} {at:.0f}" for run, at in {**others, run_id: now}.items())
        self._storage.set_cursor_values({self._key: " ".join(signs)})

    def last(self, run_id: str) -> float:
        """When the run was alive, in seconds since 1970; 0.0 when it never said so."""
        return self._beats().get(run_id, 0.0)

    def _beats(self) -> dict[str, float]:
        words = self._storage.get_cursor_values({self._key}).get(self._key, "").split()
        return dict(zip(words[::2], map(float, words[1::2]), strict=True))

    def beating(self, run_id: str) -> AbstractContextManager[None]:
        """Shows that the run is alive until the block ends, whatever else its process does.

        A thread of its own does so every minute. Where the storage cannot be written, that is
        logged, and tried again a minute later.
        """
        return repeat(lambda: self._try(run_id), BEAT_SECONDS, "heartbeat")

    def _try(self, run_id: str) -> None:
        try:
            self.beat(run_id)
        except Exception as error:  # noqa: BLE001 - storages raise many kinds; the next may do
            log.warning("no sign of life could be stored: %s", type(error).__name__)
