"""Killed at each step and run again: windows are appended once, and the same rows are late."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import devservers
from tests.conftest import Topics
from tests.drained import drain_apart
from tests.languages.sql.files import Sent, Sql
from tests.languages.sql.state.test_groups_crash import STEPS

SOURCE = "n BIGINT, g STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '3' SECOND"
TARGET = "b TIMESTAMP(3), g STRING, rows_ BIGINT, total BIGINT, some BIGINT"
QUERY = (
    "SELECT window_start, g, COUNT(*), SUM(n), COUNT(DISTINCT n) FROM TABLE(HOP(TABLE s, "
    "DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start, "
    "window_end, g"
)
SOME = ("view.merged", "view.manifest", "drain.begun", "kafka.after-commit")
ROWS = 30
Event = tuple[int, str, int]
"""Number, group, second."""


def _events(turn: int) -> list[Event]:
    """Eight seconds of each turn, out of order; each ninth row is late by half a minute."""
    found = []
    for at in range(ROWS):
        n = turn * ROWS + at
        second = 60 + turn * 8 + n * 5 % 8 - (30 if n % 9 == 0 else 0)
        found.append((n % 11, f"g{n % 3}", second))
    return found


def _sent(events: Sequence[Event]) -> list[Sent]:
    rows = [
        {"n": n, "g": g, "ts": f"2026-01-01 00:{second // 60:02}:{second % 60:02}"}
        for n, g, second in events
    ]
    return [(b"%d" % at, json.dumps(one).encode()) for at, one in enumerate(rows)]


class Model:
    """Windows that are filled turn by turn: what is read at once is one turn."""

    def __init__(self) -> None:
        self.open: dict[tuple[int, str], list[int]] = {}
        self.written: list[tuple[int, str, int, int, int]] = []
        self.reached = -1000
        self._latest = {0: -1000, 1: -1000}

    def take(self, events: Sequence[Event], partitions: Sequence[int]) -> None:
        """The rows of a turn, and the partition of each."""
        for (n, g, second), partition in zip(events, partitions, strict=True):
            for begin in (second // 5 * 5, second // 5 * 5 - 5):
                if begin + 10 > self.reached:
                    self.open.setdefault((begin, g), []).append(n)
            self._latest[partition] = max(self._latest[partition], second - 3)
        self.reached = max(self.reached, min(self._latest.values()))
        for begin, g in [key for key in self.open if key[0] + 10 <= self.reached]:
            values = self.open.pop((begin, g))
            row = (begin, g, len(values), sum(values), len(set(values)))
            self.written.append(row)


def _partitions(sql: Sql) -> list[int]:
    """The partition of each row of a turn, by its key."""
    found = {int(key or b""): partition for partition, key, _ in sql.stored(sql.source)}
    return [found[at] for at in range(ROWS)]


def _written(sql: Sql) -> list[tuple[int, str, int, int, int]]:
    found = []
    for _, _, value in sql.stored():
        one = json.loads(value or b"")
        minutes, seconds = one["b"].split(":")[1:]
        begin = int(minutes) * 60 + int(seconds[:2])
        found.append((begin, one["g"], one["rows_"], one["total"], one["some"]))
    return found


@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("steps", "times"),
    [(SOME, (1,)), pytest.param(STEPS, (1, 2), marks=pytest.mark.full)],
    ids=["some", "all"],
)
def test_killed_at_each_step_in_turn(
    steps: Sequence[str],
    times: Sequence[int],
    sql: Sql,
    kafka: devservers.Kafka,
    topic: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each run is the recovery of the one before."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    wide = Sql(sql.path, kafka, topic(2), topic(2))
    wide.write(SOURCE, TARGET, QUERY)
    model, killed = Model(), Counter[str]()
    for turn, step in enumerate(steps):
        events = _events(turn)
        wide.send(_sent(events), partitions=2)
        model.take(events, _partitions(wide))
        for nth in times:
            code = drain_apart(str(wide.path), failpoint=f"{step}:kill:{nth}")
            assert code in (-signal.SIGKILL, 0), step
            killed[step] += code != 0
        assert drain_apart(str(wide.path)) == 0
        assert sorted(_written(wide)) == sorted(model.written), step
    assert model.written
    assert [step for step in steps if not killed[step]] == []
