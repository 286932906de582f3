"""Killed at each step of the protocol and run again: groups in the topic are those of the log."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path

import pytest

import devservers
from dataflow_assets import failpoints
from dataflow_assets.errors import TakenOver
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report
from tests.conftest import Topics
from tests.contract.test_recreated import Draining, held
from tests.drained import drain_apart, drained
from tests.languages.sql.files import Sent, Sql, latest

STEPS = (
    "view.read",
    "view.merged",
    "view.file",
    "view.output",
    "view.manifest",
    "kafka.begin",
    "drain.begun",
    "kafka.before-commit",
    "kafka.after-commit",
    "drain.passed",
    "kafka.finish",
    "drain.finished",
    "view.deleted",
)
SOME = (
    "view.read",
    "view.output",
    "view.manifest",
    "drain.begun",
    "kafka.before-commit",
    "kafka.after-commit",
    "kafka.finish",
    "view.deleted",
)
"""Without those at which nothing more is kept than at one before; `make test-all` has all."""
KEYS = 12
SOURCE = "k BIGINT, g STRING, a BIGINT, PRIMARY KEY (k) NOT ENFORCED"
TARGET = (
    "g STRING, rows_ BIGINT, users BIGINT, total BIGINT, least BIGINT, PRIMARY KEY (g) NOT ENFORCED"
)
QUERY = "SELECT g, COUNT(*), COUNT(DISTINCT a), SUM(a), MIN(a) FROM s WHERE a <> 3 GROUP BY g"


def _changes(turn: int) -> list[Sent]:
    """Keys move between groups, are left out, deleted, and come again."""
    found: list[Sent] = []
    for n in range(KEYS * 2):
        number = turn * KEYS * 2 + n
        key = number * 7 % KEYS
        row = {"k": key, "g": f"g{number * 5 % 7 % 3}", "a": number % 5}
        gone = number % 11 == 0
        found.append((b'{"k":%d}' % key, None if gone else json.dumps(row).encode()))
    return found


def _groups(sent: Sequence[Sent]) -> dict[bytes | None, bytes]:
    """The query's result, folded anew."""
    rows = {key: json.loads(value) for key, value in dict(sent).items() if value is not None}
    groups: dict[str, list[int]] = {}
    for row in rows.values():
        if row["a"] != 3:
            groups.setdefault(row["g"], []).append(row["a"])
    return {
        b'{"g":"%s"}' % g.encode(): json.dumps(
            {"g": g, "rows_": len(a), "users": len(set(a)), "total": sum(a), "least": min(a)},
            separators=(",", ":"),
        ).encode()
        for g, a in groups.items()
    }


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))


TOP = (
    "SELECT k, g, a FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY a DESC, k) AS n "
    "FROM s) WHERE n <= 2"
)
"""Two tables of state: keys move between the first rows of two groups."""


def _first(sent: Sequence[Sent]) -> dict[bytes | None, bytes]:
    """The result of TOP, folded anew."""
    rows = [json.loads(value) for value in dict(sent).values() if value is not None]
    rows.sort(key=lambda row: (row["g"], -row["a"], row["k"]))
    found = [row for _, some in groupby(rows, lambda row: row["g"]) for row in list(some)[:2]]
    return {
        b'{"k":%d}' % row["k"]: json.dumps(row, separators=(",", ":")).encode() for row in found
    }


FULL = pytest.mark.full


@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("target", "query", "result", "steps", "times"),
    [
        pytest.param(TARGET, QUERY, _groups, SOME, (1,), id="groups"),
        pytest.param(TARGET, QUERY, _groups, STEPS, (1, 2), id="groups-twice", marks=FULL),
        pytest.param(SOURCE, TOP, _first, STEPS, (1, 2), id="first-rows-twice", marks=FULL),
    ],
)
def test_killed_at_every_step_in_turn(
    target: str,
    query: str,
    result: Callable[[Sequence[Sent]], dict[bytes | None, bytes]],
    steps: Sequence[str],
    times: Sequence[int],
    sql: Sql,
    kafka: devservers.Kafka,
    topic: Topics,
) -> None:
    """Each run is the recovery of the one before; the log is compacted between them."""
    wide = Sql(sql.path, kafka, topic(2), topic(2))
    wide.write(SOURCE, target, query)
    sent: list[Sent] = []
    killed: Counter[str] = Counter()
    for turn, step in enumerate(steps):
        wide.send(_changes(turn), partitions=2)
        sent += _changes(turn)
        for nth in times:
            code = drain_apart(str(wide.path), failpoint=f"{step}:kill:{nth}")
            assert code in (-signal.SIGKILL, 0), step
            killed[step] += code != 0
        assert drain_apart(str(wide.path)) == 0
        assert latest(wide.stored()) == result(sent), step
    assert [step for step in steps if not killed[step]] == []
    stored = wide.stored()
    for key in {key for _, key, _ in stored}:
        values = [value for _, one, value in stored if one == key]
        assert all(one != following for one, following in pairwise(values)), key


@pytest.mark.crash
@pytest.mark.parametrize(
    "step",
    [
        "view.manifest",
        "kafka.finish",
        *(pytest.param(step, marks=FULL) for step in ("view.read", "drain.begun")),
    ],
)
def test_a_driver_that_was_paused_goes_on_after_a_takeover(
    step: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has computed a state of its own, which nobody takes; nothing of the newer one is gone."""
    flow = sql.write(SOURCE, TARGET, QUERY)
    sql.send(_changes(0))
    drained(flow)
    sent = _changes(0) + _changes(1)
    sql.send(_changes(1))
    with held(monkeypatch, tmp_path, step) as wait:
        failpoints.arm(failpoints.from_environment())
        first = Draining(iter(_Draining(flow)))
        wait(first)
        monkeypatch.delenv("DATAFLOW_FAILPOINT")
        for turn in (2, 3, 4):
            sql.send(_changes(turn))
            sent += _changes(turn)
            drained(flow)
        assert first.is_alive()
    error = first.ended()
    assert isinstance(error, TakenOver), error
    assert latest(sql.stored()) == _groups(sent)
    sql.send(_changes(5))
    drained(flow)
    assert latest(sql.stored()) == _groups([*sent, *_changes(5)])


class _Draining:
    """A run of its own, begun by whoever iterates."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def __iter__(self) -> Iterator[Report]:
        yield from drained(self._flow)
