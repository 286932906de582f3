"""Twenty flows in one lane whose process, server and workers are killed: every table is exact.

A producer goes on all the time. Each kill is followed by a successor; a process that was paused
past a takeover meets the one that has taken over, and yields flow by flow.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.manifests.load import load
from tests.conftest import Topics
from tests.connectors.kafka.topics import committed
from tests.e2e.flows import Command
from tests.stress.chaos_kills import TAKEN_OVER, kill_workers

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

MANIFEST = """
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: {name}
spec:
  freshness: 3
  source:
    type: kafka
    config:
      brokers: ["{bootstrap}"]
      topic: {topic}
      consumerGroup: {name}
  sink:
"""
TABLE = """\
    type: postgresql
    config:
      connectionString: {dsn}
      table: {schema}.t{number}
"""
UPSERT = (
    TABLE
    + """\
      upsertMode: true
      conflictKey: id
"""
)
TOPIC = """\
    type: kafka
    config:
      brokers: ["{bootstrap}"]
      topic: {target}
      keyField: id
"""
KEYS = 50  # of a flow that upserts
Row = tuple[int, int]


@dataclass
class Fleet:
    """Many flows in a folder, and a producer that feeds all of them."""

    folder: Path
    bootstrap: str
    dsn: str
    schema: str
    sources: list[str]
    targets: dict[int, str]
    made: list[int] = field(default_factory=list)
    going: bool = True

    def __post_init__(self) -> None:
        self.made = [0] * len(self.sources)
        for number in range(len(self.sources)):
            self._declare(number)
        self._flows = [flow.resolved() for flow in load(self.folder).flows]
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Nothing more is produced."""
        self.going = False
        self._thread.join(30)

    def wrong(self) -> dict[int, str]:
        """By the number of the flow what is missing or too much, values included."""
        found = {number: self.rows(number) for number in range(len(self.sources))}
        return {n: why for n, rows in found.items() if (why := self._wrong(n, rows))}

    def rows(self, number: int) -> list[Row]:
        if number in self.targets:
            bodies = [m.value() or b"" for m in committed(self.bootstrap, self.targets[number])]
            return sorted((body["id"], body["number"]) for body in map(json.loads, bodies))
        with psycopg.connect(self.dsn) as connection:
            sql = f"select id, number from {self.schema}.t{number} order by 1, 2".encode()
            return [(int(one), int(other)) for one, other in connection.execute(sql)]

    def holders(self) -> set[str]:
        """The runs that have the flows' epochs; empty of a flow that nobody has driven."""
        targets = [(f.branches[0].sink, f.target(f.branches[0])) for f in self._flows]
        found = [sink.peek(target) for sink, target in targets]
        return {"" if checkpoint is None else checkpoint.run_id for checkpoint in found}

    @property
    def stored(self) -> int:
        """Records that have arrived in tables that are appended to."""
        plain = [n for n in range(len(self.sources)) if n not in self.targets and n % 2 == 0]
        return sum(len(self.rows(n)) for n in plain)

    def _wrong(self, number: int, rows: list[Row]) -> str:
        made = [(self._key(number, n), n) for n in range(self.made[number])]
        wanted = sorted(dict(made).items()) if self._upserts(number) else made
        if rows == wanted:
            return ""
        more, less = set(rows) - set(wanted), set(wanted) - set(rows)
        return f"{len(rows)} rows for {len(wanted)}, too much: {more}, missing: {less}"[:300]

    def _upserts(self, number: int) -> bool:
        return number not in self.targets and number % 2 == 1

    def _key(self, number: int, record: int) -> int:
        return record % KEYS if self._upserts(number) else record

    def _declare(self, number: int) -> None:
        sink = TOPIC if number in self.targets else UPSERT if self._upserts(number) else TABLE
        topic = self.sources[number]
        text = (MANIFEST + sink).format(
            name=topic.replace("_", "-"),
            bootstrap=self.bootstrap,
            topic=topic,
            dsn=self.dsn,
            schema=self.schema,
            number=number,
            target=self.targets.get(number),
        )
        (self.folder / f"{number}.yaml").write_text(text)
        if number not in self.targets:
            key = "primary key" if self._upserts(number) else "not null"
            sql = f"create table {self.schema}.t{number} (id bigint {key}, number bigint)"
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(sql.encode())

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 20})
        while self.going:
            for number, topic in enumerate(self.sources):
                for _ in range(3):
                    record = self.made[number]
                    body = {"id": self._key(number, record), "number": record}
                    producer.produce(topic, json.dumps(body).encode(), partition=0)
                    self.made[number] += 1
            producer.flush(30)
            time.sleep(0.5)


@pytest.fixture
def fleet(
    tmp_path: Path,
    kafka: devservers.Kafka,
    topic: Topics,
    postgresql: devservers.PostgreSQL,
    schema: str,
    flows: int,
) -> Iterator[Fleet]:
    targets = {number: topic(1) for number in (flows - 2, flows - 1)}
    sources = [topic(1) for _ in range(flows)]
    fleet = Fleet(tmp_path, kafka.bootstrap, postgresql.dsn(), schema, sources, targets)
    yield fleet
    fleet.rest()


@pytest.fixture
def flows() -> int:
    return 20


class Lanes:
    """Processes that drive the folder, one after the other or two at once."""

    def __init__(self, fleet: Fleet, command: Command) -> None:
        self.fleet, self.command = fleet, command
        self.processes: list[subprocess.Popen[str]] = []
        self.logs: list[Path] = []
        self._before: set[str] = set()

    def begin(self) -> subprocess.Popen[str]:
        self._before = self.fleet.holders()
        log = self.fleet.folder / f"log-{uuid.uuid4().hex[:6]}.txt"
        with log.open("w") as stream:
            given = ("run", str(self.fleet.folder), "--for", "600")
            self.processes.append(self.command.spawn(*given, log=stream))
        self.logs.append(log)
        return self.processes[-1]

    @property
    def has_taken_over(self) -> bool:
        """Whether the newest process drives all flows."""
        holders = self.fleet.holders()
        return len(holders) == 1 and not holders & self._before

    @property
    def alive(self) -> bool:
        """Somebody drives the flows."""
        return any(process.poll() is None for process in self.processes)

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(30)

    def said(self) -> str:
        return "\n".join(log.read_text()[-3_000:] for log in self.logs)


@pytest.fixture
def lanes(fleet: Fleet, command: Command) -> Iterator[Lanes]:
    lanes = Lanes(fleet, command)
    yield lanes
    lanes.end()


def until(done: Callable[[], object], lanes: Lanes, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        late = time.monotonic() >= deadline or not lanes.alive
        assert not late, f"{lanes.fleet.wrong()}\n{lanes.said()}"
        time.sleep(0.3)


def grown(fleet: Fleet, by: int = 30) -> Callable[[], bool]:
    """Whether something was stored since now."""
    before = fleet.stored
    return lambda: fleet.stored >= before + by


def settle(lanes: Lanes) -> None:
    """Whoever still drives stores what is left; nothing may be lost or doubled."""
    lanes.fleet.rest()
    until(lambda: not lanes.fleet.wrong(), lanes)


def killed(lanes: Lanes) -> None:
    """kill -9 at some moment; a successor goes on."""
    time.sleep(random.uniform(0.0, 2.0))
    lanes.processes[-1].kill()
    lanes.begin()


def paused(lanes: Lanes) -> None:
    """Stopped past a takeover; when it goes on it has lost every flow in which something comes."""
    first = lanes.processes[-1]
    until(lambda: lanes.has_taken_over, lanes)
    time.sleep(random.uniform(0.0, 2.0))
    first.send_signal(signal.SIGSTOP)
    lanes.begin()
    until(grown(lanes.fleet), lanes)
    first.send_signal(signal.SIGCONT)
    until(lambda: first.poll() is not None, lanes)
    assert first.returncode == 1
    assert lanes.logs[-2].read_text().count(TAKEN_OVER) == len(lanes.fleet.sources)


def test_a_lane_of_twenty_flows_is_killed_and_paused(
    lanes: Lanes, spark_server: devservers.SparkConnect
) -> None:
    def workers_die(lanes: Lanes) -> None:
        time.sleep(random.uniform(0.0, 2.0))
        kill_workers(spark_server.pid, only_busy=True)
        assert lanes.processes[-1].poll() is None

    lanes.begin()
    until(grown(lanes.fleet), lanes)
    for strike in random.sample([killed, paused, workers_die], 3):
        strike(lanes)
        until(grown(lanes.fleet), lanes)
    settle(lanes)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_same_for_long(lanes: Lanes, mortal_spark: devservers.SparkConnect) -> None:
    """With a server of its own, which is killed as well."""
    lanes.command = Command(mortal_spark.remote)

    def server_dies(lanes: Lanes) -> None:
        time.sleep(random.uniform(0.0, 2.0))
        mortal_spark.kill()
        mortal_spark.start()
        assert lanes.processes[-1].poll() is None

    lanes.begin()
    until(grown(lanes.fleet), lanes)
    for _ in range(4):
        for strike in random.sample([killed, paused, server_dies], 3):
            strike(lanes)
            until(grown(lanes.fleet), lanes)
    settle(lanes)


@pytest.mark.parametrize("flows", [6])
def test_two_lanes_at_once_share_the_flows_between_them(lanes: Lanes) -> None:
    """Each flow is driven by one of them in the end; the other says by whom it was taken over."""
    lanes.begin()
    until(grown(lanes.fleet), lanes)
    lanes.begin()
    names = [source.replace("_", "-") for source in lanes.fleet.sources]

    def yielded() -> bool:
        lines = [line for line in lanes.said().splitlines() if TAKEN_OVER in line]
        return all(any(name in line for line in lines) for name in names)

    until(yielded, lanes)
    settle(lanes)
