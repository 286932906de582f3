"""Twenty flows in one lane whose process, server and workers are killed: every target is exact.

Every kind of source that a lane drives, into every kind of sink; all are fed all the time. A strike
comes while flows are held at a step between the begin of a micro-batch and its commit: it has met
running work, or the test fails. Each kill is followed by a successor; a process that was paused
past a takeover meets the one that has taken over, and yields flow by flow.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import devservers
from tests.e2e.fleet import CASES, Feed, Fleet
from tests.e2e.flows import Command
from tests.e2e.gate import Gate
from tests.stress.chaos_kills import LOST_TASK, TAKEN_OVER, kill_workers

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

IN_FLOWS = ("drain.begun", "drain.passed")
"""A micro-batch was begun; its tasks have read and written, and it is not committed."""
IN_TASKS = ("postgresql.before-commit", "kafka.before-commit")
"""A task has written: one of the first flows of each task is held, and the others behind it."""
SOME = [*CASES[::5], CASES[-2]]
"""Each kind of source and of sink, and rows that change."""


@pytest.fixture
def cases() -> Sequence[tuple[type[Feed], str]]:
    return CASES


@pytest.fixture
def fleet(
    tmp_path: Path, request: pytest.FixtureRequest, cases: Sequence[tuple[type[Feed], str]]
) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, request, cases)
    yield fleet
    fleet.rest()


@dataclass
class Driving:
    """One process that drives the folder."""

    process: subprocess.Popen[str]
    gate: Gate
    log: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        return self.log.read_text()

    def aborted(self) -> str:
        """What the process said in the end, and what each of its threads did; it is gone then."""
        state = f"held {self.gate.held} at {self.gate.step}, exit {self.process.poll()}"
        self.process.send_signal(signal.SIGABRT)
        self.process.send_signal(signal.SIGCONT)
        self.process.wait(30)
        return f"{self.process.pid}: {state}\n{self.said()[-20_000:]}"


class Lanes:
    """Processes that drive the folder, one after the other or two at once."""

    def __init__(self, fleet: Fleet, command: Command) -> None:
        self.fleet, self.command = fleet, command
        self.driven: list[Driving] = []

    @property
    def newest(self) -> Driving:
        return self.driven[-1]

    def begin(self, step: str) -> Driving:
        """Another process; its flows, or their tasks, can be held at this step."""
        log, gate = self.fleet.folder / f"log-{uuid.uuid4().hex[:6]}.txt", Gate(step)
        given = ("run", str(self.fleet.folder), "--for", "900")
        with log.open("w") as stream:
            process = self.command.spawn(*given, log=stream, env=gate.environment)
        self.driven.append(Driving(process, gate, log))
        return self.newest

    def hand_over(self, step: str) -> None:
        """The newest process ends as it is asked to, where the next one is held elsewhere."""
        if step != self.newest.gate.step:
            self.newest.process.send_signal(signal.SIGTERM)
            self.newest.process.wait(60)
            self.begin(step)

    def hold(self, least: int) -> None:
        """Shuts the gate of the newest process; so many flows are in a micro-batch on return."""
        gate = self.newest.gate
        gate.shut()
        until(lambda: gate.held >= (least if gate.step in IN_FLOWS else 1), self)
        time.sleep(random.uniform(0.0, 0.5))
        assert self.newest.alive

    @property
    def alive(self) -> bool:
        """Somebody drives the flows."""
        return any(one.alive for one in self.driven)

    def end(self) -> None:
        for one in self.driven:
            one.process.kill()
            one.process.wait(30)
            one.gate.remove()

    def said(self) -> str:
        return "\n".join(one.said() for one in self.driven)

    def behind(self) -> dict[str, str]:
        """By flow the beginning of what is wrong in its target."""
        return {name: why[:40] for name, why in self.fleet.wrong().items()}

    def aborted(self) -> str:
        return "\n".join(one.aborted() for one in self.driven)


@pytest.fixture
def lanes(fleet: Fleet, command: Command) -> Iterator[Lanes]:
    lanes = Lanes(fleet, command)
    yield lanes
    lanes.end()


def until(done: Callable[[], object], lanes: Lanes, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        late = time.monotonic() >= deadline or not lanes.alive
        assert not late, f"{lanes.aborted()}\n{lanes.behind()}"
        time.sleep(0.3)


def settle(lanes: Lanes) -> None:
    """Whoever still drives stores what is left; nothing may be lost, doubled or out of order."""
    lanes.fleet.rest()
    until(lambda: not lanes.fleet.wrong(), lanes)
    lanes.end()
    assert not lanes.fleet.wrong()


@dataclass(frozen=True)
class Strike:
    """Something that befalls a lane; it comes while flows are held at one of these steps."""

    strikes: Callable[[Lanes, str], None]
    """Called with the lanes and the step at which the process that is left can be held."""
    steps: Sequence[str]


def strike(lanes: Lanes, strikes: Sequence[Strike], least: Callable[[], int]) -> None:
    """One after the other; between two of them every flow stores something."""
    steps = [random.choice(one.steps) for one in strikes]
    lanes.begin(steps[0])
    for one, after in zip(strikes, [*steps[1:], steps[-1]], strict=True):
        until(lanes.fleet.grown(), lanes)
        lanes.hold(least())
        one.strikes(lanes, after)
    until(lanes.fleet.grown(), lanes)


def killed(lanes: Lanes, after: str) -> None:
    """kill -9; a successor goes on. Tasks that were held go on while it takes over."""
    gone = lanes.newest
    gone.process.kill()
    assert gone.process.wait(30) == -signal.SIGKILL
    lanes.begin(after)
    time.sleep(random.uniform(0.0, 5.0))
    gone.gate.open()


def paused(lanes: Lanes, after: str) -> None:
    """Stopped past a takeover; when it goes on, every micro-batch that it was in is refused."""
    first = lanes.newest
    first.process.send_signal(signal.SIGSTOP)
    second = lanes.begin(after)
    until(lanes.fleet.grown(), lanes)  # each flow, by the second
    first.gate.open()
    first.process.send_signal(signal.SIGCONT)
    until(lambda: not first.alive, lanes)
    assert first.process.returncode == 1
    lines = [line for line in first.said().splitlines() if TAKEN_OVER in line]
    yielded = {c.name for c in lanes.fleet.cases if any(c.name in line for line in lines)}
    assert yielded == {case.name for case in lanes.fleet.cases}, first.said()
    assert second.alive


def workers_die(spark: devservers.SparkConnect) -> Callable[[Lanes, str], None]:
    def strikes(lanes: Lanes, after: str) -> None:
        """All workers, with their tasks; the process stays, and drives every flow to its end."""
        driving, before = lanes.newest, lost_tasks(spark)
        kill_workers(spark.pid)
        until(lambda: lost_tasks(spark) > before, lanes, 30)
        driving.gate.open()
        until(lanes.fleet.grown(), lanes)
        assert driving.alive
        lanes.hand_over(after)

    return strikes


def lost_tasks(spark: devservers.SparkConnect) -> int:
    return spark.log.read_text(errors="replace").count(LOST_TASK)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("cases", "count"),
    [(SOME, 1), pytest.param(CASES, 3, marks=pytest.mark.full)],
    ids=["some", "twenty"],
)
def test_a_lane_of_many_flows_is_killed_and_paused(
    lanes: Lanes, count: int, spark_server: devservers.SparkConnect
) -> None:
    """Each of three strikes; in `make test` one of them, by chance."""
    strikes = [
        Strike(killed, IN_FLOWS),
        Strike(paused, IN_FLOWS),
        Strike(workers_die(spark_server), IN_TASKS),
    ]
    strike(lanes, random.sample(strikes, count), lambda: len(lanes.fleet.cases))
    settle(lanes)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_same_for_long(lanes: Lanes, mortal_spark: devservers.SparkConnect) -> None:
    """At random moments of the others, with a server of its own, which is killed as well."""
    lanes.command = Command(mortal_spark.remote)

    def server_dies(lanes: Lanes, after: str) -> None:
        mortal_spark.kill()
        lanes.newest.gate.open()
        mortal_spark.start()
        until(lanes.fleet.grown(), lanes)
        assert lanes.newest.alive
        lanes.hand_over(after)

    strikes = [
        Strike(killed, (*IN_FLOWS, *IN_TASKS)),
        Strike(paused, IN_FLOWS),
        Strike(server_dies, (*IN_FLOWS, *IN_TASKS)),
        Strike(workers_die(mortal_spark), IN_TASKS),
    ]
    for _ in range(3):
        chosen = random.sample(strikes, len(strikes))
        strike(lanes, chosen, lambda: random.randint(1, len(lanes.fleet.cases)))
        lanes.newest.process.kill()
    lanes.begin(IN_FLOWS[0])
    settle(lanes)


@pytest.mark.parametrize("cases", [SOME], ids=["some"])
def test_two_lanes_at_once_share_the_flows_between_them(lanes: Lanes) -> None:
    """Each flow is driven by one of them in the end; the other says by whom it was taken over."""
    lanes.begin(IN_FLOWS[0])
    until(lanes.fleet.grown(), lanes)
    lanes.begin(IN_FLOWS[0])
    names = [case.name for case in lanes.fleet.cases]

    def yielded() -> bool:
        lines = [line for line in lanes.said().splitlines() if TAKEN_OVER in line]
        return all(any(name in line for line in lines) for name in names)

    until(yielded, lanes)
    settle(lanes)
