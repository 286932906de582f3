"""kill -9 and SIGSTOP at random moments: `make chaos` does it 200 times, the suite a few times.

Changes run from a topic, or from files, into a sink while its driver, Spark's Python workers or
JVM, the broker and the database are killed, apart and together, or a driver and a task are paused
past a takeover by a second driver. Every few kills the whole target is compared with a model:
values and order. A seed makes the same changes, kinds and victims again; what they meet depends on
the machine.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path

from tests.e2e.flows import Command
from tests.own_servers import own_servers
from tests.stress.chaos_clock import kill_by_the_clock, kinds_by_the_clock
from tests.stress.chaos_driver import Driver
from tests.stress.chaos_kills import (
    PAUSES,
    STEPS,
    Places,
    Takeover,
    kill,
    kinds_of,
    pause_driver,
    pause_task,
    strike,
    victims_of,
)
from tests.stress.chaos_modes import FOLLOWED, MODES, target
from tests.stress.chaos_narrowed import AGAIN, NARROWED, Narrowed
from tests.stress.chaos_report import KINDS as ALL_KINDS
from tests.stress.chaos_report import RESULT, Done, Tally
from tests.stress.fuzz import commit
from tests.systems import Fixtures

CHECKED_EVERY = 5  # kills
TRIES = 10  # of one kill, until it meets running work: the last one lasts for seconds
STEP = 180.0  # seconds until a driver has come to a step
PATIENCE = 300.0  # seconds until all that was sent is stored
BACKLOG = 1_200.0  # likewise, of what came while kills went on by the clock


class Storm:
    """One flow into one sink, and what befalls it."""

    def __init__(self, mode: str, given: Fixtures, folder: Path, seed: object) -> None:
        self.chance = random.Random(f"{seed} {mode}")
        self.tally = Tally(mode)
        self.target = target(mode, given, self.chance, folder)
        spark = given.getfixturevalue("spark_server")
        servers = (given.getfixturevalue(name) for name in (self.target.broker, self.target.server))
        self.places = Places(spark, *servers)
        self._command = Command(spark.remote)
        self._steps = cycle(self.target.steps)
        self.target.send(200)
        self._driver = self._begin()

    def strike(self, kind: str) -> None:
        """One kill of this kind that meets running work: each try has twice as much of it."""
        for attempt in range(TRIES):
            began = time.monotonic()
            self.target.send(self.chance.randint(400, 1_000) << attempt)
            met = self._met(kind)
            self.tally.seconds[kind] += time.monotonic() - began  # type: ignore[assignment]
            self._expect_alive()
            if met:
                self.tally.met[kind] += 1
                return
            self.tally.missed[kind] += 1
        raise AssertionError(f"{self.tally.mode}: {TRIES} kills of {kind} met no running work")

    def strike_now(self, kind: str) -> bool:
        """One kill of this kind at once; whether it has met running work."""
        victims = victims_of(kind)
        met = strike(victims, self._driver, self.places, self.chance)
        if "driver" in victims:
            self._driver.ended()
            self._driver = self._begin()
        self._expect_alive()
        return met

    def commits_since(self, moment: float) -> list[float]:
        """When the driver of now has reported stored rows since then."""
        self._expect_alive()
        return [at for at in [*self._driver.committed_at] if at >= moment]

    def load(self) -> None:
        """Some more changes, and now and then a change of the table."""
        self.target.send(1)

    def account(self, patience: float = PATIENCE) -> None:
        """Waits until all that was sent is stored; raises when the target is not as it must be."""
        self.target.send(20)
        stored = self._driver.until(lambda: self.target.stored(self._driver), patience)
        if not stored:
            positions, ends = self._driver.positions, self.target.model.ends
            where = self._driver.stacks()
            verdict = self.target.verdict()
            raise AssertionError(
                f"{self.tally}: {verdict}: {positions} of {ends} is stored: {where}"
            )
        verdict = self.target.verdict()
        assert not verdict, f"{self.tally}: {verdict}"
        if not self.target.rejects:
            found = self._driver.rejected
            assert not found, f"{self.tally}: {found} rejected records: {self._driver.said}"

    def close(self) -> None:
        """Ends the driver."""
        self._driver.kill()
        self._driver.ended()

    def _begin(self) -> Driver:
        return Driver(self._command, self.target.manifest)

    def _met(self, kind: str) -> bool:
        if kind == NARROWED:
            return self._narrow()
        if kind in STEPS:
            return self._step(with_database="database" in kind)
        return self._pause(kind) if kind in PAUSES else self._kill(kind)

    def _step(self, *, with_database: bool) -> bool:
        """A driver that dies at the next of the sink's steps; whether it came there."""
        self.close()
        victim = Driver(self._command, self.target.manifest, next(self._steps))
        victim.until(lambda: False, STEP)
        met = victim.killed
        if with_database:
            self.places.database.kill()
            time.sleep(self.chance.uniform(0.0, 1.5))
            self.places.database.start()
        victim.kill()
        victim.ended()
        self._driver = self._begin()
        return met

    def _narrow(self) -> bool:
        """The publication of a followed database is narrowed while the driver runs, or is dead."""
        assert isinstance(self.target, Narrowed)
        self.account()  # what is left out before the tables are loaded is no loss
        if self.chance.random() < 0.5:
            self.close()
        self.target.narrow()
        stopped = self._driver if self._driver.alive else self._begin()
        self.target.expect_stopped(stopped)
        self._driver = Driver(self._command, self.target.manifest, "", *AGAIN)
        return True

    def _kill(self, kind: str) -> bool:
        met = kill(kind, self._driver, self.places, self.chance)
        if self._driver.killed:
            self._driver.ended()
            self._driver = self._begin()
        return met

    def _pause(self, kind: str) -> bool:
        takeover = Takeover(self._second, lambda: self.target.send(20))
        if kind == "paused driver":
            self._driver, met = pause_driver(self._driver, self.chance, takeover)
        else:
            spark = self.places.spark
            self._driver, met = pause_task(self._driver, spark, self.chance, takeover)
        return met

    def _second(self) -> Driver:
        self.target.send(self.chance.randint(100, 400))
        return self._begin()

    def _expect_alive(self) -> None:
        if not self._driver.alive:
            code = self._driver.process.returncode
            raise AssertionError(f"{self.tally}: a run ended ({code}): {self._driver.ended()}")


def storm(given: Storm, kinds: Sequence[str], kills: int) -> None:
    """So many kills of all kinds in turn, accounted for every few of them and at the end."""
    deck: list[str] = []
    for number in range(1, kills + 1):
        deck = deck or given.chance.sample(kinds, len(kinds))
        given.strike(deck.pop())
        if number % CHECKED_EVERY == 0 or number == kills:
            given.account()
            sys.stderr.write(f"{given.tally.mode}: {number} of {kills} kills, all as it must be\n")


def under_load(given: Storm, kinds: Sequence[str], every: float, seconds: float) -> None:
    """Kills by the clock under a load that never stops; then what is stored is accounted for."""
    chosen = kinds_by_the_clock(kinds)
    given.tally.by_the_clock = found = kill_by_the_clock(given, chosen, every, seconds)
    given.account(BACKLOG)
    found.expect_progress()


def main() -> None:
    """Runs, and writes the result down when every target is as the model says."""
    given = _arguments()
    head, began = commit(), time.monotonic()
    share, rest = divmod(given.kills, len(given.modes))
    done = []
    with own_servers("dataflow-chaos-") as (own, folder):
        os.environ["DATAFLOW_FILES"] = str(folder)  # states of queries are below it
        for number, mode in enumerate(given.modes):
            with closing(Storm(mode, own, folder, given.seed)) as tempest:
                kinds = given.kinds or tempest.target.kinds or kinds_of(tempest.places)
                storm(tempest, kinds, share + (number < rest))
                if mode == FOLLOWED and given.minutes:
                    under_load(tempest, kinds, given.every, 60 * given.minutes)
            done.append((tempest.tally, tempest.target.model))
    result = Done(done, given.seed, head, time.monotonic() - began, CHECKED_EVERY)
    sys.stdout.write(result.page())
    sys.stderr.write(f"{result.slow()}\n")
    if given.write:
        given.result.write_text(result.page(), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="over all sinks")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="sink and way")
    parser.add_argument("--kinds", nargs="+", choices=ALL_KINDS, default=[])
    parser.add_argument(
        "--minutes", type=float, default=10, help="of kills by the clock of a database's follower"
    )
    parser.add_argument("--every", type=float, default=20, help="seconds between two of these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", type=Path, default=RESULT, help="the page that is written")
    parser.add_argument("--no-result", dest="write", action="store_false", help="do not write it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
