"""Flows that run for an hour, and what grows meanwhile: `make soak`, `SOAK="--minutes 5"`.

Flows over all connectors run in two drivers on one Spark server: one runs all the time, the other
is stopped or killed every few minutes. What processes hold and what flows leave behind must be
flat at the end, within a tolerance that is stated, and every target exactly as a model has it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tests import ROOT
from tests.e2e.flows import Command
from tests.own_servers import Own, own_servers
from tests.stress.fuzz import commit
from tests.stress.soak_flows import AHEAD, Changed, Flow, Sent, restarted, steady
from tests.stress.soak_meters import Meter, Trend, meters, trend

RESULT = ROOT / "docs/evidence/soak.md"
TICK = 1.0  # seconds between two bursts of changes
COLUMNS = 6  # points in time on the page
PAGE = """# Soak

{date}, commit {head}, by `make soak`: {flows} flows for {minutes:.0f} minutes on {cores} cores,
{changes} changes with seed {seed}; one driver ran all the time, the other was started {starts}
times, after every second end by a kill. At the end each target was exactly as the model has it.

After the first fifth of the time, the median of the last third may lie above that of the first
third by the tolerance. Columns in between: the value after so many minutes.

| measured | {times} | first third | last third | tolerance | flat |
|---|{rules}---|---|---|---|
{lines}
"""


class Runner:
    """`dataflow run --for` over some flows, started again and again."""

    def __init__(self, command: Command, flows: Sequence[Flow], log: Path) -> None:
        self._command, self._log = command, log
        self.manifests = [str(flow.manifest) for flow in flows]
        self.starts = 0
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def restart(self, number: signal.Signals) -> None:
        """Ends it by this signal, and starts it again."""
        self.end(number)
        self._start()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it by this signal; raises when it had ended by itself."""
        if self._process.poll() is not None:
            raise AssertionError(f"a driver ended: {self._log.read_text()[-3_000:]}")
        self._process.send_signal(number)
        self._process.wait(120)

    def _start(self) -> None:
        self.starts += 1
        with self._log.open("a") as log:
            arguments = ("run", *self.manifests, "--for", "36000")
            self._process = self._command.spawn(*arguments, log=log)


@dataclass
class Soak:
    """Flows, what runs them, and what was measured."""

    own: Own
    folder: Path
    seed: int
    minutes: float
    restart_every: float
    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    times: list[float] = field(default_factory=list)
    changes: int = 0

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self._command = Command(self.own.getfixturevalue("spark_server").remote)
        self._steady = steady(self.own, chance, self.folder)
        self._restarted = restarted(self.own, chance, self.folder)
        self.flows = [*self._steady, *self._restarted]
        self._tick()
        self._one = Runner(self._command, self._steady, self.folder / "steady.log")
        self._other = Runner(self._command, self._restarted, self.folder / "restarted.log")
        self.meters = meters(self.own, lambda: self._one.pid, self._tables())

    @property
    def starts(self) -> int:
        """Of the driver that is restarted."""
        return self._other.starts

    def run(self) -> list[Trend]:
        """Until the time is over; then everything is read to its end."""
        began = time.monotonic()
        every = max(2.0, self.minutes * 60 / 200)
        looks = Every(every, lambda: self._measure(time.monotonic() - began))
        restarts = Every(self.restart_every, self._restart)
        while time.monotonic() - began < self.minutes * 60:
            self._tick()
            looks()
            restarts()
            time.sleep(TICK)
        for runner in (self._one, self._other):
            runner.end()
        return [trend(meter, self.samples[meter.name]) for meter in self.meters]

    def reconcile(self) -> None:
        """Reads all flows to their ends; raises when a target is not as the model has it."""
        time.sleep(AHEAD.total_seconds() + 2)
        process = self._command.spawn("run", *self._one.manifests, *self._other.manifests)
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, out + err
        wrong = [said for flow in self.flows for said in flow.wrong()]
        assert not wrong, f"{len(wrong)} things are wrong: {wrong[:5]}"

    def _tick(self) -> None:
        self.changes += sum(flow.tick() for flow in self.flows)

    def _measure(self, seconds: float) -> None:
        self.times.append(seconds)
        for meter in self.meters:
            self.samples[meter.name].append(meter.read())

    def _restart(self) -> None:
        self._other.restart(signal.SIGKILL if self.starts % 2 else signal.SIGTERM)

    def _tables(self) -> list[tuple[str, str]]:
        """Of Iceberg, at either end."""
        ends = [flow.read for flow in self._restarted if isinstance(flow, Changed)]
        ends += [flow.target.written for flow in self._steady if isinstance(flow, Sent)]
        return [(end["namespace"], end["table"]) for end in ends if "catalogURI" in end]


class Every:
    """Calls something when so many seconds have passed since the last time."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._seconds, self._call, self._last = seconds, call, time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._last >= self._seconds:
            self._last = time.monotonic()
            self._call()


def page(soak: Soak, trends: Sequence[Trend], head: str) -> str:
    """For docs/evidence/soak.md."""
    count = len(soak.times)
    points = sorted({round(at * (count - 1) / (COLUMNS - 1)) for at in range(COLUMNS)})
    return PAGE.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        head=head,
        flows=len(soak.flows),
        minutes=soak.minutes,
        cores=psutil.cpu_count(),
        changes=soak.changes,
        seed=soak.seed,
        starts=soak.starts,
        times=" | ".join(f"{soak.times[point] / 60:.0f} min" for point in points),
        rules="---|" * (len(points) + 1),
        lines="\n".join(_line(one, soak.samples[one.meter.name], points) for one in trends),
    )


def _line(one: Trend, values: Sequence[float], points: Sequence[int]) -> str:
    meter: Meter = one.meter
    numbers = [*(values[point] for point in points), one.first, one.last]
    shown = [f"{number:g}" for number in numbers]
    cells = [meter.name, *shown, meter.tolerance, "yes" if one.flat else "NO"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Runs, and writes the result down when all is flat and every target is right."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--restart-every", type=float, default=90, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", type=Path, default=RESULT, help="the page that is written")
    parser.add_argument("--no-result", dest="write", action="store_false", help="do not write it")
    given = parser.parse_args()
    head = commit()
    with own_servers("dataflow-soak-") as (own, folder):
        _temporary(folder / "tmp")
        soak = Soak(own, folder, given.seed, given.minutes, given.restart_every)
        trends = soak.run()
        found = page(soak, trends, head)
        sys.stdout.write(found)
        soak.reconcile()
    grown = [one.meter.name for one in trends if not one.flat]
    assert not grown, f"not flat: {', '.join(grown)}"
    if given.write:
        given.result.write_text(found, encoding="utf-8")


def _temporary(folder: Path) -> None:
    """Temporary files of this process and all that it starts: nobody else's are counted."""
    folder.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


if __name__ == "__main__":
    main()
