"""The pause after a failure, of a flow and of a lane: 5 s, doubling to 5 minutes."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dagster as dg

from dataflow_assets.assets.graph import AssetNode
from dataflow_assets.assets.lane_evictions import Eviction
from dataflow_assets.assets.leases import ERROR
from dataflow_assets.assets.runs import MANIFEST, PERMANENT, SUSPENDED

FIRST_WAIT, LONGEST_WAIT = 5.0, 300.0
ASK_SECONDS = 30.0  # how often the runs of one that waits are read again

Failures = Callable[[], Sequence[dg.RunRecord]]


@dataclass(frozen=True)
class Wait:
    """Until when something waits that has failed, and why."""

    until: float = 0.0
    times: int = 0
    error: str = ""
    suspended: tuple[str, ...] = ()
    """The branches that failed, where others went on."""

    @property
    def over(self) -> bool:
        return time.time() >= self.until

    def __str__(self) -> str:
        times = f"{self.times} times in a row" if self.times > 1 else "once"
        left = max(0.0, self.until - time.time())
        return f"failed {times}; next try in {left:.0f} s. Last error: {self.error}"

    def without_harm(self, nodes: Sequence[AssetNode]) -> list[AssetNode]:
        """Branches that went on in a run that failed for others: they need not wait for those."""
        some = self.suspended
        return [node for node in nodes if node.branch.id not in some] if some else []


def wait(failures: Sequence[dg.RunRecord], manifest: str, left: Eviction | None = None) -> Wait:
    """After failures in a row; an edited manifest is tried at once.

    `left`: the flow has left its lane, which counts as its first failure.
    """
    times = len(failures) + (left.times if left else 0)
    seconds = min(FIRST_WAIT * 2 ** min(times - 1, 10), LONGEST_WAIT)
    if not failures:
        return Wait(left.at + seconds, times, left.error) if left else Wait()
    run = failures[0].dagster_run
    if run.tags.get(MANIFEST, manifest) != manifest:
        return Wait()
    seconds = LONGEST_WAIT if PERMANENT in run.tags else seconds
    suspended = tuple(json.loads(run.tags.get(SUSPENDED, "[]")))
    until = (failures[0].end_time or 0.0) + seconds
    return Wait(until, times, run.tags.get(ERROR, "see its run"), suspended)


class Waits:
    """The waits of many; their runs are read only now and then, for each read costs a query."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[float, Wait]] = {}

    def of(
        self, name: str, manifest: str, failures: Failures, left: Eviction | None = None
    ) -> Wait:
        key, now = (name, f"{manifest} {left.at if left else ''}"), time.time()
        again, wait_known = self._known.get(key, (0.0, Wait()))
        if now >= again:
            wait_known = wait(failures(), manifest, left)
            self._known = {k: v for k, v in self._known.items() if k[0] != name}
            self._known[key] = (min(wait_known.until, now + ASK_SECONDS), wait_known)
        return wait_known
