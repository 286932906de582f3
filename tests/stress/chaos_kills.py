"""Who is killed or paused, and whether that met running work.

A kill counts when the driver was between the begin of a micro-batch and its report; of Python
workers it must also have cost Spark a task, which its log tells. A pause counts when a second
driver has stored records while the first, or a task of the first, was still in its micro-batch.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from dataflow_assets.spark.process import Server
from tests.stress.chaos_driver import Driver

KILLS: dict[str, tuple[str, ...]] = {
    "driver": ("driver",),
    "worker": ("worker",),
    "spark": ("spark",),
    "broker": ("broker",),
    "database": ("database",),
    "driver + worker": ("worker", "driver"),
    "driver + database": ("driver", "database"),
    "worker + database": ("worker", "database"),
    "broker + database": ("broker", "database"),
    "driver + broker": ("driver", "broker"),
}
"""By the name of the kind: what is killed at once."""
HOSTED: dict[str, tuple[str, ...]] = {
    "connector": ("connector",),
    "driver + connector": ("driver", "connector"),
    "connector + database": ("connector", "database"),
}
"""The same of flows whose connector runs in a process of its own."""
PAUSES = ("paused driver", "paused task")
KINDS = (*KILLS, *PAUSES)
STEPS = ("step", "step + database")
"""A driver that is killed where it comes to a named step, for targets whose tasks are so short that
a kill at random never meets one; with its database, just then."""
GENTLE = ("driver", "worker", "driver + worker", *PAUSES)
"""Kinds that leave every server alone."""
HOST = "dataflow_assets.connectors.kafka_connect.host"
LOST_TASK = "Lost task"
TAKEN_OVER = "taken over by run"
IN_TASK = 30.0  # seconds of one try, until a worker is in a task: Spark's first one takes long
TAKEOVER = 120.0  # seconds for a second driver to begin and to store something


@dataclass(frozen=True)
class Places:
    """What there is to kill beside the driver."""

    spark: Server
    broker: Server
    database: Server

    def server(self, name: str) -> Server:
        server: Server = getattr(self, name)
        return server


@dataclass(frozen=True)
class Takeover:
    """How a second driver of the flow begins, and how both get more to do."""

    begin: Callable[[], Driver]
    feed: Callable[[], object]


def kinds_of(places: Places) -> tuple[str, ...]:
    """Without those that name one server twice: a topic's database is the broker."""
    if places.broker is not places.database:
        return KINDS
    return tuple(kind for kind in KINDS if "database" not in kind)


def victims_of(kind: str) -> tuple[str, ...]:
    """What is killed at once."""
    return KILLS.get(kind) or HOSTED[kind]


def kill(kind: str, driver: Driver, places: Places, chance: random.Random) -> bool:
    """Kills what the kind names, at once; servers come back after a while. Whether it counts."""
    victims = [*victims_of(kind)]
    chance.shuffle(victims)
    in_task = "worker" in victims
    if not (_tasks(driver, places.spark, chance) if in_task else driver.meet(chance)):
        return False
    before = _lost_tasks(places.spark)
    met = strike(victims, driver, places, chance)
    if in_task:
        met = met and _within(5.0, lambda: _lost_tasks(places.spark) > before)
    return met


def strike(victims: Sequence[str], driver: Driver, places: Places, chance: random.Random) -> bool:
    """Kills them now, in this order; servers come back. Whether the driver was at work."""
    met = driver.busy
    for victim in victims:
        _kill(victim, driver, places, chance)
    time.sleep(chance.uniform(0.0, 1.5))
    _start([places.server(victim) for victim in victims if victim not in _PROCESSES])
    return met


_PROCESSES = {"driver", "worker", "connector"}


def _kill(victim: str, driver: Driver, places: Places, chance: random.Random) -> None:
    if victim == "driver":
        driver.kill()
    elif victim == "connector":
        kill_connector(driver)
    elif victim == "worker":
        kill_workers(places.spark.pid, only_busy=chance.random() < 0.5)
    else:
        places.server(victim).kill()


def kill_connector(driver: Driver) -> None:
    """The process that runs the connector of the driver's flow, if it is there."""
    with suppress(psutil.Error):
        for process in psutil.Process(driver.process.pid).children():
            if HOST in process.cmdline():
                process.kill()


def _start(servers: Sequence[Server]) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda server: server.start(), servers))


def pause_driver(first: Driver, chance: random.Random, takeover: Takeover) -> tuple[Driver, bool]:
    """Stops the driver until a second one has stored something; who goes on, and if it counts."""
    if not first.meet(chance):
        return first, False
    with _stopped(psutil.Process(first.process.pid)):
        met = first.busy
        second = takeover.begin()
        met = second.until(lambda: second.reports > 0, TAKEOVER) and met
    return _left(first, second, takeover), met


def pause_task(
    first: Driver, spark: Server, chance: random.Random, takeover: Takeover
) -> tuple[Driver, bool]:
    """Stops a worker in a task until a second driver has stored something; the same."""
    if not (found := _tasks(first, spark, chance)):
        return first, False
    with _stopped(chance.choice(found)):
        reports = first.reports
        second = takeover.begin()
        met = second.until(lambda: second.reports > 0, TAKEOVER)
        met = met and first.alive and first.reports == reports
    return _left(first, second, takeover), met


def _left(first: Driver, second: Driver, takeover: Takeover) -> Driver:
    """Of two drivers one ends, because the other has taken over: the other."""
    deadline = time.monotonic() + TAKEOVER
    while first.alive and second.alive:
        assert time.monotonic() < deadline, f"two drivers go on: {first.said}\n{second.said}"
        takeover.feed()  # a driver that has nothing to do does not ask
        _within(2.0, lambda: not (first.alive and second.alive))
    gone, left = (second, first) if first.alive else (first, second)
    said = gone.ended()
    assert TAKEN_OVER in said, f"of two drivers one ended with: {said}"
    assert left.alive, f"both drivers ended, the second with: {left.said}"
    return left


def _tasks(driver: Driver, spark: Server, chance: random.Random) -> list[psutil.Process]:
    """Waits for some moment at which workers are in a task of the driver: those workers."""
    deadline = time.monotonic() + IN_TASK
    while time.monotonic() < deadline and driver.alive:
        time.sleep(chance.uniform(0.0, 0.15))
        found = _busy_workers(spark.pid) if driver.busy else []
        if found and driver.busy:
            return found
    return []


@contextmanager
def _stopped(process: psutil.Process) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def kill_workers(spark: int | None, *, only_busy: bool = False) -> None:
    """The Python workers below this Spark server: all with their daemon, or those in a task."""
    for process in _busy_workers(spark) if only_busy else [*_daemons(spark), *workers(spark)]:
        with suppress(psutil.Error):  # workers of earlier runs end at any moment
            process.kill()


def _daemons(spark: int | None) -> list[psutil.Process]:
    return [one for one in psutil.Process(spark).children() if _is_python(one)]


def workers(spark: int | None) -> list[psutil.Process]:
    """What the daemon has forked: one for each task that runs or has run."""
    found: list[psutil.Process] = []
    for daemon in _daemons(spark):
        with suppress(psutil.Error):
            found += daemon.children()
    return found


def _is_python(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "pyspark.worker" in " ".join(process.cmdline())
    return False


def _busy_workers(spark: int | None) -> list[psutil.Process]:
    """Those that did anything within a blink: one that waits for a task does nothing at all."""
    before = {process.pid: _switches(process.pid) for process in workers(spark)}
    time.sleep(0.01)
    return [
        psutil.Process(pid)
        for pid, switches in before.items()
        if switches and _switches(pid) not in {"", switches} and psutil.pid_exists(pid)
    ]


def _switches(pid: int) -> str:
    """What counts when the process's first thread runs; empty once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return " ".join([line for line in lines if "ctxt_switches" in line]) + _cpu(pid)
    except OSError:
        return ""


def _cpu(pid: int) -> str:
    """Its time on a processor, to the nanosecond."""
    return Path(f"/proc/{pid}/schedstat").read_text().split()[0]


def _lost_tasks(spark: Server) -> int:
    return spark.log.read_text(errors="replace").count(LOST_TASK) if spark.log.exists() else 0


def _within(seconds: float, there: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
