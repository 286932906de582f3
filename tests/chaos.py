"""kill -9 at random moments: `make chaos` does it 200 times, the suite three times for each sink.

Records run from a topic into a sink while the driver, Spark's Python workers or the sink's server
are killed; every few kills one more run goes to the end, and then every record stands there once.
A seed makes the same moments and victims again; what they meet depends on the machine.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

import devservers
from dataflow_assets import catalogue
from devservers.process import Server
from tests.e2e.flows import Command
from tests.fuzz import commit
from tests.systems import SYSTEMS, Change, Fixtures, made_by, manifest

RESULT = Path(__file__).parent / "chaos-result.md"
SERVERS = {
    "kafka": "kafka",
    "postgresql": "postgresql",
    "iceberg": "seaweedfs",
    "clickhouse": "clickhouse",
}
"""The server of each sink, by the name of its fixture."""
VICTIMS = ("driver", "workers", "server")
CHECKED_EVERY = 5  # kills
PAGE = """# Chaos

{date}, commit {head}, by `make chaos`: {kills} kills with seed {seed}, in {minutes:.0f} minutes on
{cores} cores. After every {every} of them a run went to its end, and each sink held every record
exactly once; at the end all {records} of them.

| sink | killed: driver | workers | server | of these while it ran | records | lost | twice |
|---|---|---|---|---|---|---|---|
{lines}
"""


@dataclass
class Tally:
    """What was done to one sink."""

    sink: str
    kills: Counter[str] = field(default_factory=Counter)
    running: int = 0
    """Kills that met a run which had not ended yet."""
    records: int = 0

    def line(self) -> str:
        """For the page; nothing is lost or doubled, else there is no page."""
        counts = [self.kills[victim] for victim in VICTIMS]
        cells = [self.sink, *counts, self.running, self.records, 0, 0]
        return f"| {' | '.join(map(str, cells))} |"


class Storm:
    """One flow from a topic into one sink, and what befalls it."""

    def __init__(self, sink: str, given: Fixtures, command: Command, folder: Path) -> None:
        self.tally = Tally(sink)
        self._command, self._given = command, given
        self._source, self._sink = SYSTEMS["kafka"](given), SYSTEMS[sink](given)
        self._read = self._source.at("source", {})
        self._stored = self._sink.at("sink", made_by(self._sink))
        self.manifest = manifest(folder, ("kafka", self._read), (sink, self._stored))

    def strike(self, victim: str, chance: random.Random) -> None:
        """Sends records, starts a run, and kills the victim at some moment of it."""
        self._produce(chance.randint(300, 1_500))
        process = self._command.start("run", str(self.manifest))
        time.sleep(chance.uniform(0.5, 6.0))
        self.tally.running += process.poll() is None
        self.tally.kills[victim] += 1
        self._kill(victim, process, chance.uniform(0.0, 2.0))
        self._ended(process, killed=victim == "driver")

    def account(self) -> None:
        """A run to the end; then every record stands there, once."""
        self._ended(self._command.start("run", str(self.manifest)), killed=False)
        found = Counter(row["id"] for row in self._sink.rows(self._stored))
        lost = [number for number in range(self.tally.records) if number not in found]
        twice = [number for number, count in found.items() if count > 1]
        assert not lost, f"{self.tally}: {len(lost)} records lost, the first {lost[:5]}"
        assert not twice, f"{self.tally}: {len(twice)} records doubled, the first {twice[:5]}"
        assert len(found) == self.tally.records, f"{self.tally}: records that nobody has sent"

    def _produce(self, count: int) -> None:
        first, self.tally.records = self.tally.records, self.tally.records + count
        rows = [{"id": number, "name": f"n{number}"} for number in range(first, first + count)]
        self._source.change(self._read, [Change("insert", row) for row in rows])

    def _kill(self, victim: str, process: subprocess.Popen[str], pause: float) -> None:
        if victim == "driver":
            process.kill()
        elif victim == "workers":
            kill_workers(self._given.getfixturevalue("spark_server").pid)
        else:
            server: Server = self._given.getfixturevalue(SERVERS[self._sink.type])
            server.kill()
            time.sleep(pause)
            server.start()

    def _ended(self, process: subprocess.Popen[str], *, killed: bool) -> None:
        _, said = process.communicate(timeout=240)
        assert killed or process.returncode == 0, f"{self.tally}: a run ended with: {said}"


def kill_workers(spark: int | None) -> None:
    """Every Python worker below this Spark server."""
    for child in psutil.Process(spark).children(recursive=True):
        with suppress(psutil.Error):  # workers of earlier runs end at any moment
            if "pyspark.worker" in " ".join(child.cmdline()):
                child.kill()


def storm(given: Storm, chance: random.Random, kills: int, victims: Sequence[str]) -> Tally:
    """So many kills, accounted for every few of them and at the end."""
    for number in range(1, kills + 1):
        given.strike(chance.choice(victims), chance)
        if number % CHECKED_EVERY == 0 or number == kills:
            given.account()
            sys.stderr.write(f"{given.tally.sink}: {number} of {kills} kills, all accounted for\n")
    return given.tally


class Own(ExitStack):
    """Servers of this process's own, under the names of the suite's fixtures."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._made: dict[str, Any] = {}

    def getfixturevalue(self, argname: str) -> Any:
        """The same each time, but for what a test has of its own."""
        if argname in _FRESH:
            return _FRESH[argname](self)
        if argname not in self._made:
            self._made[argname] = _SHARED[argname](self)
        return self._made[argname]

    def addfinalizer(self, finalizer: Callable[[], object]) -> None:
        """Called at the end."""
        self.callback(finalizer)

    def server(self, kind: type[Server]) -> Server:
        """One that runs until the end."""
        return self.enter_context(kind(self._folder / kind.name))

    @cached_property
    def _names(self) -> Iterator[str]:
        return (f"chaos_{uuid.uuid4().hex[:8]}" for _ in iter(int, 1))

    def name(self) -> str:
        """A fresh one."""
        return next(self._names)


def _topic(own: Own) -> Callable[[int], str]:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    def create(partitions: int) -> str:
        name = own.name()
        admin = AdminClient({"bootstrap.servers": own.getfixturevalue("kafka").bootstrap})
        admin.create_topics([NewTopic(name, partitions)])[name].result(30)
        return name

    return create


def _schema(own: Own) -> str:
    import psycopg

    name = own.name()
    with psycopg.connect(own.getfixturevalue("postgresql").dsn(), autocommit=True) as connection:
        connection.execute(f"create schema {name}".encode())
    return name


def _database(own: Own) -> str:
    import clickhouse_connect

    name = own.name()
    dsn = own.getfixturevalue("clickhouse").dsn()
    with clickhouse_connect.get_client(dsn=dsn) as client:
        client.command(f"CREATE DATABASE {name}")
    return name


def _catalog(own: Own) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("lake", **own.getfixturevalue("seaweedfs").catalog_properties())


def _namespace(own: Own) -> str:
    name = own.name()
    own.getfixturevalue("catalog").create_namespace(name)
    return name


_SHARED: dict[str, Callable[[Own], Any]] = {
    "kafka": lambda own: own.server(devservers.Kafka),
    "postgresql": lambda own: own.server(devservers.PostgreSQL),
    "seaweedfs": lambda own: own.server(devservers.SeaweedFS),
    "clickhouse": lambda own: own.server(devservers.ClickHouse),
    "spark_server": lambda own: own.server(devservers.SparkConnect),
    "topic": _topic,
    "catalog": _catalog,
}
_FRESH: dict[str, Callable[[Own], Any]] = {
    "schema": _schema,
    "database": _database,
    "namespace": _namespace,
}


@contextmanager
def own_servers() -> Iterator[tuple[Own, Path]]:
    """Servers that may be killed, and a folder for manifests; all gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="dataflow-chaos-"))
    try:
        with Own(folder) as own:
            yield own, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sinks() -> list[str]:
    """Every sink of the catalogue that has a server."""
    return [name for name in catalogue.sinks() if not name.startswith("memory-")]


def main() -> None:
    """Runs, and writes the result down when every record is accounted for."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="over all sinks")
    parser.add_argument("--sinks", nargs="+", choices=sinks(), default=sinks())
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    head, begun = commit(), time.monotonic()
    shares = [given.kills // len(given.sinks)] * len(given.sinks)
    shares[0] += given.kills - sum(shares)
    tallies = []
    for sink, kills in zip(given.sinks, shares, strict=True):
        with own_servers() as (own, folder):
            command = Command(own.getfixturevalue("spark_server").remote)
            chance = random.Random(f"{given.seed} {sink}")
            tallies.append(storm(Storm(sink, own, command, folder), chance, kills, VICTIMS))
    page = PAGE.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        head=head,
        kills=given.kills,
        seed=given.seed,
        minutes=(time.monotonic() - begun) / 60,
        cores=psutil.cpu_count(),
        every=CHECKED_EVERY,
        records=sum(tally.records for tally in tallies),
        lines="\n".join(tally.line() for tally in tallies),
    )
    sys.stdout.write(page)
    RESULT.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
