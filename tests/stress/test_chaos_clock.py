"""The clock of kills says whether a flow has got on between them."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import pytest

from tests.stress.chaos_clock import kill_by_the_clock


@dataclass
class _Flow:
    """Commits so many seconds after a kill; None: never."""

    seconds: float | None
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    killed: list[str] = field(default_factory=list)
    at: float = 0.0

    def strike_now(self, kind: str) -> bool:
        self.at = time.monotonic()
        self.killed.append(kind)
        return True

    def commits_since(self, moment: float) -> list[float]:
        commits = [] if self.seconds is None else [self.at + self.seconds]
        return [at for at in commits if moment <= at <= time.monotonic()]

    def load(self) -> None:
        """There is always something new."""


def test_each_kind_is_killed_as_often_as_the_others() -> None:
    flow = _Flow(0.01)
    found = kill_by_the_clock(flow, ["driver", "worker"], 1.0, 4.1)
    assert sorted(flow.killed) == ["driver", "driver", "worker", "worker"]
    assert (found.met, found.barren, len(found.recovered)) == (4, 0, 4)
    assert "| 1 s | 4 | 2 driver, 2 worker | 4 | 0 |" in found.line()


def test_a_flow_that_gets_nowhere_between_kills_is_an_error() -> None:
    found = kill_by_the_clock(_Flow(None), ["driver"], 1.0, 2.1)
    with pytest.raises(AssertionError, match="no progress between kills"):
        found.expect_progress()
    kill_by_the_clock(_Flow(0.01), ["driver"], 1.0, 2.1).expect_progress()
