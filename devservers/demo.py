"""`dataflow demo`: a shop's orders on real servers, as living tables in Dagster.

Everything it starts ends with it, also when it is killed: the servers, Spark, Dagster and its runs.
Data, logs and checkpoints stay in its folder, so that the next start continues where this one
stopped. The manifests of `examples/demo` are used as they stand; where their ports are taken,
DATAFLOW_DEMO_OFFSET moves all ports, and copies of the manifests with them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql
from typing_extensions import override

from dataflow_assets.spark import system
from dataflow_assets.spark.jars import ROOT
from dataflow_assets.spark.process import LOOPBACK, Server, ServerError
from dataflow_assets.spark.server import SparkConnect
from devservers.clickhouse import ClickHouse
from devservers.kafka import Kafka
from devservers.postgresql import PostgreSQL
from devservers.seaweedfs import SERVICES, SeaweedFS
from devservers.shop import Sender

EXAMPLES = ROOT / "examples" / "demo"
OFFSET = "DATAFLOW_DEMO_OFFSET"
TOPIC, PARTITIONS = "orders", 3
ORDERS_PER_SECOND = 100.0  # each is sent about four times
OWNER = "shop"  # PostgreSQL's role and database
PASSWORD = "shop-password"  # noqa: S105 (stands in examples/demo/secrets.yaml)
KAFKA = {"kafka": 19092, "controller": 19093}
POSTGRESQL = {"postgresql": 15432}
SEAWEEDFS = {
    "iceberg": 18181,
    "s3": 18333,
    **{name: 18334 + index for index, name in enumerate(name for name in SERVICES if name != "s3")},
    **{f"{name}.grpc": 18343 + index for index, name in enumerate(SERVICES)},
}
CLICKHOUSE = {"http": 18123}
SPARK = {"connect": 15002}
WEB = 3000
QUOTED_PORTS = re.compile(r"(?<=127\.0\.0\.1:)\d+")

Say = Callable[[str], None]


@dataclass(eq=False)
class Dagster(Server):
    """`dagster dev` on this project; its web server is a child, so the port is asked by HTTP."""

    name = "dagster"
    port_names = ()
    start_timeout = 120
    stop_timeout = 30
    stop_signal = signal.SIGINT

    port: int = WEB
    variables: Mapping[str, str] | None = None

    @property
    def url(self) -> str:
        """For the browser."""
        return f"http://{LOOPBACK}:{self.port}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"url": self.url}

    @override
    def prepare(self) -> None:
        settings = ROOT / "dagster.yaml"
        if settings.exists():
            shutil.copy(settings, self.folder / settings.name)

    @override
    def environment(self) -> dict[str, str]:
        return {"DAGSTER_HOME": str(self.folder), **(self.variables or {})}

    @override
    def command(self) -> list[str]:
        where = ["--host", LOOPBACK, "--port", str(self.port)]
        what = ["--workspace", str(ROOT / "workspace.yaml")]
        return [sys.executable, "-m", "dagster", "dev", *where, *what]

    @override
    def stop(self) -> None:
        """As Ctrl-C would on a terminal: runs finish their micro-batch while the rest ends."""
        system.send(self.stop_signal, self._family()[1:])
        super().stop()

    @override
    def ready(self) -> bool:
        info = f"{self.url}/server_info"
        with urllib.request.urlopen(info, timeout=2) as answer:  # noqa: S310 (ours)
            return bool(answer.status == 200)


def run(folder: Path, say: Say | None = None) -> int:
    """The demo in this folder until SIGINT or SIGTERM; 0 when it was ended that way."""
    began = time.monotonic()
    say = say or (lambda text: _print(f"[{time.monotonic() - began:5.1f} s] {text}"))
    ended = threading.Event()
    with _stopped_by_signals(ended), _alone(folder), ExitStack() as stack:
        demo = _Demo(folder.absolute(), int(os.environ.get(OFFSET, "0")), say)
        demo.check_ports()
        stack.callback(lambda: say("stopped; `make demo` goes on from here"))
        try:
            if demo.start(stack, ended):
                demo.show()
                return demo.watch(ended)
        finally:
            say("stopping")
    return 0


class _Demo:
    """The servers, the shop and Dagster of one folder."""

    def __init__(self, folder: Path, offset: int, say: Say) -> None:
        self._say = say
        self._folder = folder
        self._offset = offset
        self.kafka = Kafka(folder / "kafka", ports=self._moved(KAFKA))
        self.postgresql = PostgreSQL(folder / "postgresql", ports=self._moved(POSTGRESQL))
        self.seaweedfs = SeaweedFS(folder / "seaweedfs", ports=self._moved(SEAWEEDFS))
        self.clickhouse = ClickHouse(folder / "clickhouse", ports=self._moved(CLICKHOUSE))
        self.spark = SparkConnect(folder / "spark", ports=self._moved(SPARK))
        self.dagster = Dagster(folder / "dagster", port=WEB + offset)

    @property
    def servers(self) -> list[Server]:
        """What the flows read, write and run on."""
        return [self.kafka, self.postgresql, self.seaweedfs, self.clickhouse, self.spark]

    def _moved(self, ports: Mapping[str, int]) -> dict[str, int]:
        return {name: port + self._offset for name, port in ports.items()}

    def start(self, stack: ExitStack, ended: threading.Event) -> bool:
        """Starts all of it; what began is stopped by the stack. False: ended meanwhile."""
        self._say(f"starting; data and logs are kept in {self._folder}")
        stack.callback(_stop, self.servers, self._say)
        for server in _side_by_side(self.servers):
            self._say(f"{server.name} answers: {next(iter(server.endpoints().values()))}")
        self._make_topic()
        self._make_database()
        if ended.is_set():
            return False
        sender = Sender(self.kafka.bootstrap, TOPIC, self._folder / "next-order", ORDERS_PER_SECOND)
        sender.start()
        stack.callback(sender.stop)
        self._say(f"the shop is open: some {4 * ORDERS_PER_SECOND:.0f} messages a second")
        self.dagster.variables = self._variables()
        stack.callback(_stop, [self.dagster], self._say)
        self.dagster.start()
        return not ended.is_set()

    def check_ports(self) -> None:
        """Raises ServerError when one of the ports is taken."""
        wanted = {"dagster": self.dagster.port}
        for server in self.servers:
            wanted |= {f"{server.name} {name}": port for name, port in server.ports.items()}
        taken = [f"{port} ({name})" for name, port in wanted.items() if not system.is_free(port)]
        if taken:
            raise ServerError(
                f"the demo needs ports that somebody listens on: {', '.join(taken)}; end that "
                f"program, or move all of the demo's ports, for example by {OFFSET}=1000"
            )

    def _variables(self) -> dict[str, str]:
        flows = os.pathsep.join(map(str, (self._manifests(), ROOT / "flows")))
        return {
            "DATAFLOW_FLOWS": flows,
            "DATAFLOW_START": "1",
            "DATAFLOW_SPARK": self.spark.remote,
        }

    def _manifests(self) -> Path:
        """The examples themselves, or copies whose ports are moved."""
        if not self._offset:
            return EXAMPLES
        folder = self._folder / "flows"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(EXAMPLES, folder)
        for file in (*folder.glob("*.yaml"), *folder.glob("*.py")):
            moved = QUOTED_PORTS.sub(lambda m: str(int(m[0]) + self._offset), file.read_text())
            file.write_text(moved)
        return folder

    def _make_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        if TOPIC not in admin.list_topics(timeout=10).topics:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)

    def _make_database(self) -> None:
        with psycopg.connect(self.postgresql.dsn(), autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (OWNER,))
            if known.fetchone() is None:
                role = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                connection.execute(role.format(sql.Identifier(OWNER), sql.Literal(PASSWORD)))
                database = sql.SQL("CREATE DATABASE {0} OWNER {0}")
                connection.execute(database.format(sql.Identifier(OWNER)))

    @property
    def _dsn(self) -> str:
        return f"postgresql://{OWNER}:{PASSWORD}@{LOOPBACK}:{self.postgresql.port}/{OWNER}"

    def show(self) -> None:
        """Where to look."""
        manifests = EXAMPLES if not self._offset else self._folder / "flows"
        for line in (
            "",
            f"  Dagster         {self.dagster.url}",
            f"  the rows        psql {self._dsn}  (table orders)",
            f"  how far         dataflow status {_near(manifests)}",
            f"  manifests       {_near(manifests)}; drop your own into {_near(ROOT / 'flows')}",
            f"  Kafka           {self.kafka.bootstrap}, topic {TOPIC}",
            f"  ClickHouse      {self.clickhouse.dsn()}",
            f"  Iceberg         {self.seaweedfs.uri}, warehouse {self.seaweedfs.warehouse}",
            f"  logs            {_near(self._folder)}/*/*.log",
            "",
        ):
            self._say(line) if line.strip() else _print("")
        self._say("Ctrl-C stops all of it; the data stays")

    def watch(self, ended: threading.Event) -> int:
        """Waits for the end; says so when a server ends by itself."""
        while not ended.wait(1):
            for server in (*self.servers, self.dagster):
                if not server.running:
                    self._say(f"{server.name} has ended by itself; see {_near(server.log)}")
                    return 1
        return 0


def _side_by_side(servers: list[Server]) -> Iterator[Server]:
    """Starts them; each is handed over as it answers. The first failure is raised at the end."""
    with ThreadPoolExecutor(len(servers)) as pool:
        failures = []
        for future in as_completed([pool.submit(server.start) for server in servers]):
            if error := future.exception():
                failures.append(error)
            else:
                yield future.result()
    if failures:
        raise ServerError("\n".join(map(str, failures)))


def _stop(servers: list[Server], say: Say) -> None:
    with ThreadPoolExecutor(len(servers)) as pool:
        for server, _ in zip(servers, pool.map(lambda each: each.stop(), servers), strict=True):
            say(f"{server.name} stopped")


@contextmanager
def _stopped_by_signals(ended: threading.Event) -> Iterator[None]:
    """Both ask for the end; asking twice changes nothing, for half a stop leaves processes."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One demo at a time per folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerError(f"another demo runs in {folder}") from None
        yield


def _near(path: Path) -> str:
    """The path as one would type it here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
