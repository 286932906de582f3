"""Connectors of Kafka Connect into PostgreSQL: through the host, and through a worker.

The worker needs a broker, and a sink by JDBC behind it, and stores at least once. Both are measured
from their start to the last row, with the start of their JVM inside. Of flows two more figures have
a bound: the seconds until the first row is stored, and the memory of the process with the JVM.

`file`: lines of a file that is there. A flow decodes them into columns; a worker stores each as one
text, for it has no step that decodes. `debezium`: rows that PostgreSQL's log holds behind a slot.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import psycopg

from bench import flows, messages, report, tables
from bench.connect_worker import ConnectWorker, Properties, jdbc_sink
from bench.meters import Meter, Spent, pss
from bench.places import Places
from dataflow_assets import registry
from dataflow_assets.connectors.kafka_connect import KafkaConnectSource
from dataflow_assets.contracts import Source
from dataflow_assets.flow import Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.sdk.local_folders import ROOT
from dataflow_assets.spark import jars
from dataflow_assets.spark.process import LOOPBACK
from dataflow_assets.spark.session import Spark

LINES = 500_000
TABLE = "bench_connect"
NAME = "bench_connect_source"  # of the table that is followed, of its slot and its publication
_FILE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
_DEBEZIUM = "io.debezium.connector.postgresql.PostgresConnector"
_HOST = "dataflow_assets.connectors.kafka_connect.host"
FIRST_ROW = 8.0  # seconds
MOST_BYTES = 450_000_000
_TICK = 0.2
_LONGEST = 900.0  # seconds


def run(places: Places, spark: Spark, count: int, rounds: int) -> dict[str, Any]:
    """Each measure's medians, and the ratio of each flow to the worker of the same round."""
    os.environ[ROOT] = str(places.folder)  # below which manifests may name folders
    _Round(places, spark, places.folder / "connect-warm", max(1, count // 8)).warm()
    taken: dict[str, list[_Taken]] = {}
    for number in range(rounds):
        one = _Round(places, spark, places.folder / f"connect-{number}", count)
        for name, measure in one.measures.items():
            taken.setdefault(name, []).append(measure())
    spent = {name: [one.spent for one in each] for name, each in taken.items()}
    figures = report.figures(spent, dict.fromkeys(spent, count))
    for name, each in taken.items():
        figures[name]["first_row_seconds"] = median(one.first for one in each)
        figures[name]["process_bytes"] = max(one.bytes for one in each)
        figures[name]["limits"] = limits(figures[name]) if name.startswith("flow-") else {}
    return figures


def limits(figure: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a flow may take until its first row, and how large its connector's process may be.

    Every start of a connector is a cold one of its JVM; Spark has had a warm-up.
    """
    return {
        "s until the first row": report.limit(figure["first_row_seconds"], FIRST_ROW),
        "MB of the process (PSS)": report.limit(figure["process_bytes"] / 1e6, MOST_BYTES / 1e6),
    }


class _Taken(NamedTuple):
    """What one measure took."""

    spent: Spent
    first: float
    """Seconds until the first row."""
    bytes: int
    """The most that the process with the connector's JVM has held, shared pages by their share."""


class _Size:
    """The largest that processes have been together."""

    def __init__(self, processes: Callable[[], Iterable[psutil.Process]]) -> None:
        self._processes, self.most = processes, 0

    def look(self, _: Spent) -> None:
        self.most = max(self.most, sum(map(pss, self._processes())))


class _Round:
    """One file, one followed table."""

    def __init__(self, places: Places, spark: Spark, folder: Path, count: int) -> None:
        self._places, self._spark, self._folder, self._count = places, spark, folder, count
        folder.mkdir()
        self._file = folder / "lines.jsonl"
        with self._file.open("wb") as file:
            file.writelines(body + b"\n" for body in messages.bodies(0, count))

    def warm(self) -> None:
        """The file's flow, not counted: Spark and its workers start with the first one."""
        self._flow_file()

    @property
    def measures(self) -> Mapping[str, Callable[[], _Taken]]:
        return {
            "worker-connect-file": self._worker_file,
            "flow-connect-file": self._flow_file,
            "worker-connect-debezium": self._worker_debezium,
            "flow-connect-debezium": self._flow_debezium,
        }

    def _worker_file(self) -> _Taken:
        _fresh(self._places, "line text")
        hoist = {
            "transforms": "hoist",
            "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.hoist.field": "line",
        }
        worker = self._worker("file", "connect-plugins", {**_named(_FILE), **self._lines, **hoist})
        return self._worked(worker)

    def _flow_file(self) -> _Taken:
        tables.fresh(self._places, TABLE, "binary")
        return self._drained(self._flow(self._source("connect-plugins", _FILE, self._lines)))

    def _worker_debezium(self) -> _Taken:
        """Runs once before, for the snapshot of an empty table but for one row."""
        _followed(self._places)
        _fresh(self._places, "id bigint, customer text")
        topic = f"bench.public.{NAME}"
        source = {**_named(_DEBEZIUM), **_debezium(self._places)}
        worker = self._worker(topic, "connect-debezium", source)
        with worker:
            _wait(self._places, 1)
        _fill(self._places, self._count)
        return self._worked(worker)

    def _flow_debezium(self) -> _Taken:
        _followed(self._places)
        _fresh(self._places, "id bigint, customer text")
        unwrap = Transformation(registry.steps()["debeziumUnwrap"].model_validate({}))
        source = self._source("connect-debezium", _DEBEZIUM, _debezium(self._places))
        flow = self._flow(source, unwrap)
        flows.run(flow, self._spark)
        _fill(self._places, self._count)
        return self._drained(flow)

    @property
    def _lines(self) -> Properties:
        return {"file": self._file, "topic": "file", "batch.size": 5_000}

    def _flow(self, source: Source, *steps: Transformation) -> Flow:
        sink = flows.append(self._places, TABLE)
        return flows.read(source, f"{self._folder.name}-{len(steps)}", sink, steps)

    def _plugins(self, of: str) -> str:
        folder = self._folder / of
        plugin = folder / "plugin"
        if not plugin.exists():
            plugin.mkdir(parents=True)
            for jar in jars.fetch(of):
                (plugin / jar.name).symlink_to(jar)
        return str(folder)

    def _source(self, plugins: str, connector: str, config: Properties) -> Source:
        return KafkaConnectSource.model_validate(
            {
                "class": connector,
                "config": {key: str(value) for key, value in config.items()},
                "plugins": [self._plugins(plugins)],
                "spool": str(self._folder / f"spool-{plugins}"),
                "tasksMax": 1,
                "envelope": False,
            }
        )

    def _worker(self, topic: str, plugins: str, source: Properties) -> ConnectWorker:
        messages.create(self._places.bootstrap, topic, 1)
        info = psycopg.conninfo.conninfo_to_dict(self._places.dsn)
        url = f"jdbc:postgresql://{info['host']}:{info['port']}/{info['dbname']}?sslmode=disable"
        return ConnectWorker(
            self._folder / f"worker-{plugins}",
            bootstrap=self._places.bootstrap,
            plugins=self._plugins(plugins),
            connectors={"source": source, "sink": jdbc_sink(url, topic, TABLE)},
        )

    def _worked(self, worker: ConnectWorker) -> _Taken:
        before = _rows(self._places)
        started = list[psutil.Process]()
        size = _Size(lambda: started)
        with Meter(self._places, size.look) as meter:
            begun = time.monotonic()
            worker.start()
            started.append(psutil.Process(worker.pid))
            _wait(self._places, before + 1)
            first = time.monotonic() - begun
            _wait(self._places, before + self._count)
        times = started[0].cpu_times()
        meter.spent.cpu["connector"] = times.user + times.system
        worker.stop()
        return _Taken(meter.spent, first, size.most)

    def _drained(self, flow: Flow) -> _Taken:
        used, size = _children(), _Size(_hosts)
        with Meter(self._places, size.look) as meter:
            begun = time.monotonic()
            order = Request(patience=Patience(5))
            commits = [
                time.monotonic() - begun
                for report in drain(flow, self._spark.session, order)
                if report.delta.rows
            ]
        meter.spent.seconds = commits[-1]  # then the run waits whether more comes
        meter.spent.cpu["connector"] = _children() - used
        return _Taken(meter.spent, commits[0], size.most)


def _named(connector: str) -> Properties:
    return {"name": "source", "connector.class": connector, "tasks.max": 1}


def _debezium(places: Places) -> Properties:
    info = psycopg.conninfo.conninfo_to_dict(places.dsn)
    return {
        "database.hostname": LOOPBACK,
        "database.port": info["port"],
        "database.user": "postgres",
        "database.dbname": info["dbname"],
        "topic.prefix": "bench",
        "plugin.name": "pgoutput",
        "slot.name": NAME,
        "publication.name": NAME,
        "publication.autocreate.mode": "filtered",
        "table.include.list": f"public.{NAME}",
        "poll.interval.ms": 50,
    }


def _followed(places: Places) -> None:
    """A table with one row, no slot and no publication."""
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = %s",
            [NAME],
        )
        connection.execute(f"DROP PUBLICATION IF EXISTS {NAME}".encode())
        connection.execute(f"DROP TABLE IF EXISTS {NAME}".encode())
        connection.execute(f"CREATE TABLE {NAME} (id bigint PRIMARY KEY, customer text)".encode())
        connection.execute(f"INSERT INTO {NAME} VALUES (-1, 'first')".encode())


def _fill(places: Places, count: int) -> None:
    rows = f"SELECT n, 'c-' || n % 10000 FROM generate_series(0, {count - 1}) AS n"
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(f"INSERT INTO {NAME} {rows}".encode())
    tables.settle(places)


def _fresh(places: Places, columns: str) -> None:
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}".encode())
        connection.execute(f"CREATE TABLE {TABLE} ({columns})".encode())
    tables.settle(places)


def _rows(places: Places) -> int:
    with psycopg.connect(places.dsn) as connection:
        (found,) = connection.execute(f"SELECT count(*) FROM {TABLE}".encode()).fetchone() or (0,)
    return int(found)


def _wait(places: Places, rows: int) -> None:
    """Until the table has so many."""
    until = time.monotonic() + _LONGEST
    while _rows(places) < rows:
        assert time.monotonic() < until, f"fewer than {rows} rows within {_LONGEST:g} seconds"
        time.sleep(_TICK)


def _hosts() -> Iterator[psutil.Process]:
    """Processes of connectors that this one has started."""
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if _HOST in process.cmdline():
                yield process


def _children() -> float:
    """CPU seconds of processes that have ended: the host of a connector is one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
