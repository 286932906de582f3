"""Killed at each step of a commit, and run again: each change is in the topic once, in order."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence

import pytest

import devservers
from tests.conftest import Topics
from tests.drained import drain_apart
from tests.languages.sql.files import Sent, Sql

STEPS = (
    "kafka.begin",
    "drain.begun",
    "kafka.before-commit",
    "kafka.after-commit",
    "drain.passed",
    "kafka.finish",
    "drain.finished",
)
KEYS = 8


def _changes(turn: int) -> list[Sent]:
    """Of each key a value, a value that WHERE leaves out, a tombstone or another value."""
    found: list[Sent] = []
    for n in range(KEYS * 3):
        key, number = n % KEYS, turn * KEYS * 3 + n
        value = {"k": key, "a": "gone" if number % 5 == 0 else f"v{number}"}
        text = None if number % 7 == 0 else json.dumps(value).encode()
        found.append((b'{"k":%d}' % key, text))
    return found


def _passed_on(change: Sent) -> Sent:
    key, value = change
    row = json.loads(value) if value else {"a": "gone"}
    if row["a"] == "gone":
        return key, None
    return key, json.dumps({"k": row["k"], "a": row["a"].upper()}, separators=(",", ":")).encode()


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [(1,), pytest.param((1, 2), marks=pytest.mark.full)])
def test_killed_at_every_step_in_turn(
    times: Sequence[int], sql: Sql, kafka: devservers.Kafka, topic: Topics
) -> None:
    """Each run is the recovery of the one before."""
    wide = Sql(sql.path, kafka, topic(2), topic(2))
    columns = "k BIGINT, a STRING, PRIMARY KEY (k) NOT ENFORCED"
    wide.write(columns, columns, "SELECT k, UPPER(a) FROM s WHERE a <> 'gone'")
    sent: list[Sent] = []
    for turn, step in enumerate(STEPS):
        wide.send(_changes(turn), partitions=2)
        sent += _changes(turn)
        for nth in times:
            killed = drain_apart(str(wide.path), failpoint=f"{step}:kill:{nth}")
            assert killed == -signal.SIGKILL or (nth, killed) == (2, 0), step
    assert drain_apart(str(wide.path)) == 0
    stored = [(key, value) for _, key, value in wide.stored()]
    for number in range(KEYS):
        key = b'{"k":%d}' % number
        wanted = [_passed_on(change) for change in sent if change[0] == key]
        assert [one for one in stored if one[0] == key] == wanted
