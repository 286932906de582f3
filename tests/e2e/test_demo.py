"""The demos as a user starts them: tables fill and feed others, Ctrl-C ends it all."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import psutil
import psycopg
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from bench.fleet.graphql import ask
from dataflow_assets.contracts import Checkpoint
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.statuses import statuses
from dataflow_assets.spark import system
from devservers.demo.cdc import COPY
from devservers.demo.dagster_dev import WEB
from devservers.demo.demo import OFFSET, OWNER, POSTGRESQL, SPARK
from devservers.demo.lake import APICURIO, NESSIE, TRINO
from devservers.demo.lake import KAFKA as SECURE_KAFKA
from devservers.demo.orders import KAFKA
from devservers.demo.shop import COUNTRIES, CUSTOMERS
from devservers.demo.topics import CLICKHOUSE, SEAWEEDFS
from tests import ROOT
from tests.languages.sql.files import messages

OF_LAKE = (SECURE_KAFKA, APICURIO, NESSIE, TRINO)
SERVERS = (KAFKA, POSTGRESQL, SEAWEEDFS, CLICKHOUSE, SPARK, *OF_LAKE)
PORTS = {WEB, *(port for ports in SERVERS for port in ports.values())}
OFFSETS = range(system.PORTS.stop - min(PORTS - {WEB}), 9_000)
"""All servers of the demo are above the ports that servers of other tests choose from."""
FLOWS = {
    f"default/{name}"
    for name in (
        *("orders", "order-history", "order-changes", "orders-now", "lake-orders"),
        "revenue_per_region.orders",
    )
}
TYPED = {"default/orders-now", "default/lake-orders"}  # tables hold nothing that others refuse
LAKE_FLOWS = {f"default/{name}" for name in ("orders", "customers", "order-events", "revenue")}
DATAFLOW = [sys.executable, "-m", "dataflow_assets.cli"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


class Demo:
    """A running demo in a folder of its own, on ports of its own."""

    def __init__(self, folder: Path, which: str) -> None:
        self.folder = folder
        self.offset = next(filter(_is_free, (random.choice(OFFSETS) for _ in range(100))))
        self.log = folder.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*DATAFLOW, "demo", which, "--folder", str(folder)],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, OFFSET: str(self.offset)},
            )

    def says(self, text: str) -> bool:
        """Whether it has printed this."""
        assert self.process.poll() is None, self.log.read_text()
        return text in self.log.read_text()

    def checkpoints(self) -> dict[str, Checkpoint | None]:
        """By flow, asked here: a process that asks takes seconds of what the demo runs on."""
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("DATAFLOW_SECRETS", str(self.folder / "secrets"))
            environment.setenv("DATAFLOW_FILES", str(self.folder))
            answers = statuses(load(self.folder / "flows").flows)
        return {one.flow: one.checkpoint for answer in answers for one in answer.found}

    def flowing(self, flows: set[str], rejecting: set[str]) -> bool:
        """Whether all tables have rows, and flows on a topic have set records aside."""
        totals = {flow: one.totals for flow, one in self.checkpoints().items() if one}
        if not totals.keys() >= flows or not all(one.rows for one in totals.values()):
            return False
        return all(totals[name].rejected for name in rejecting)

    def lineage(self) -> dict[str, set[str]]:
        """By asset what it is made from, as Dagster shows it."""
        url = f"http://127.0.0.1:{WEB + self.offset}"
        nodes = ask(url, "{ assetNodes { assetKey { path } dependencyKeys { path } } }")
        return {
            "/".join(node["assetKey"]["path"]): {
                "/".join(key["path"]) for key in node["dependencyKeys"]
            }
            for node in nodes["assetNodes"]
        }

    def query(self, sql: str, database: str = OWNER) -> list[Any]:
        """The first column of PostgreSQL's answer; nothing while a table or column is missing."""
        try:
            with psycopg.connect(self.dsn(database)) as link:
                found = link.execute(sql.encode())
                return [row[0] for row in found] if found.description else []
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            return []

    def topic(self, name: str) -> list[dict[str, Any]]:
        """The last value of each key of a topic."""
        stored = messages(f"127.0.0.1:{KAFKA['kafka'] + self.offset}", name)
        found = {one.key(): one.value() for one in stored}
        return [json.loads(value) for value in found.values() if value is not None]

    def rows(self, database: str) -> list[str]:
        """All customers and orders of a database, by their number, with all values of the shop."""
        values = "to_jsonb(t) - 'created_at' - 'updated_at'"  # the sink's own columns
        tables = ("customers", "orders")
        each = [f"SELECT ({values})::text FROM {table} t ORDER BY id" for table in tables]
        return [row for sql in each for row in self.query(sql, database)]

    def dsn(self, database: str = OWNER) -> str:
        """Of one of PostgreSQL's databases, as its owner."""
        port = POSTGRESQL["postgresql"] + self.offset
        return f"postgresql://{database}@127.0.0.1:{port}/{database}"

    def processes(self) -> list[psutil.Process]:
        """Everything that belongs to it, whoever its parent is by now."""
        return [each for each in psutil.process_iter() if self._owns(each)]

    def _owns(self, process: psutil.Process) -> bool:
        try:
            words = [*process.cmdline(), process.environ().get("DAGSTER_HOME", "")]
        except psutil.Error:
            return False
        return any(str(self.folder) in word for word in words)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    yield from _started(tmp_path / "demo", "orders")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Demo]:
    yield from _started(tmp_path / "demo", "lake")


@pytest.fixture
def cdc(tmp_path: Path) -> Iterator[Demo]:
    yield from _started(tmp_path / "demo", "cdc")


def _started(folder: Path, which: str) -> Iterator[Demo]:
    demo = Demo(folder, which)
    yield demo
    demo.process.kill()
    demo.process.wait(10)
    system.send(signal.SIGKILL, demo.processes())


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_the_demo(demo: Demo) -> None:
    """With other tests beside it: each wait is several times what an idle machine takes."""
    _until(lambda: demo.says("Ctrl-C stops all of it"), 240)
    _until(lambda: demo.flowing(FLOWS, FLOWS - TYPED), 300, every=6)
    statuses = demo.query("SELECT DISTINCT status FROM public.orders")
    assert {"placed", "paid", "shipped"} <= set(statuses)
    counted = demo.query("SELECT count(*) - count(DISTINCT id) FROM public.orders")
    assert counted == [0]
    doubled = "SELECT count(*) - count(DISTINCT (id, status)) FROM public.order_log"
    assert demo.query(doubled) == [0], "an order has each status once"
    _until(lambda: bool(demo.query("SELECT revenue FROM shop.daily_revenue")), 240)
    paid = {one["region"]: one for one in demo.topic("revenue_per_region")}
    assert set(paid) == set(COUNTRIES)
    assert all(one["orders"] > 0 and one["revenue"] > 0 for one in paid.values())
    place = f"file://{demo.folder}/lake/warpstream/_tableflow/shop+orders"
    changes = StaticTable.from_metadata(place).scan().to_arrow()
    assert changes.num_rows > 100
    assert changes.group_by(["id", "status"]).aggregate([([], "count_all")])["count_all"] == (
        pa.chunked_array([[1] * changes.num_rows])
    )
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(120) == 0, demo.log.read_text()
    assert [process.cmdline() for process in demo.processes()] == []


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.timeout(1200)
def test_the_demo_with_a_lake(lake: Demo) -> None:
    _until(lambda: lake.says("Ctrl-C stops all of it"), 300)
    _until(lambda: lake.flowing(LAKE_FLOWS, {"default/orders"}), 400, every=10)
    wanted = {
        "nessie/lake/shop/orders_live": {"kafka/shop/orders"},
        "clickhouse/olap/order_events": {"nessie/lake/shop/orders_live"},
        "trino/lake/shop/paid_orders": {
            "nessie/lake/shop/orders_live",
            "postgresql/shop/public/customers",
        },
        "postgresql/shop/public/revenue": {"trino/lake/shop/paid_orders"},
    }
    found = lake.lineage()
    assert {name: found.get(name) for name in wanted} == wanted, found
    assert lake.query("SELECT count(*) - count(DISTINCT id) FROM public.customers") == [0]
    assert lake.query("SELECT count(*) FROM public.customers") == [CUSTOMERS]
    assert lake.query("SELECT sum(orders) > 0 AND sum(revenue) > 0 FROM public.revenue") == [True]
    dsn = f"http://dataflow:dataflow-secret@127.0.0.1:{CLICKHOUSE['http'] + lake.offset}/dataflow"
    with clickhouse_connect.get_client(dsn=dsn) as client:
        doubled = client.query("SELECT count() - uniqExact(id, status) FROM order_events")
    assert doubled.result_rows == [(0,)], "an order has each status once"
    lake.process.send_signal(signal.SIGINT)
    assert lake.process.wait(120) == 0, lake.log.read_text()
    assert [process.cmdline() for process in lake.processes()] == []


@pytest.mark.full
@pytest.mark.alone
def test_the_demo_of_a_database_that_is_followed(cdc: Demo) -> None:
    """Rows, deletions and a new column of the shop are in the office's database soon."""
    _until(lambda: cdc.says("Ctrl-C stops all of it"), 120)
    _until(lambda: len(cdc.query("SELECT id FROM orders", COPY)) > 100, 200, every=2)
    loaded = cdc.query("SELECT id FROM orders", COPY)
    newest = "SELECT max(id) FROM orders"
    _until(lambda: cdc.query(newest, COPY)[0] > max(loaded), 60, every=2)
    cdc.query(f"DELETE FROM orders WHERE id = {min(loaded)}")
    cdc.query("ALTER TABLE customers ADD COLUMN note text")
    cdc.query("UPDATE customers SET note = 'seen' WHERE id = (SELECT min(id) FROM customers)")
    noted = "SELECT note FROM customers WHERE note IS NOT NULL"
    _until(lambda: cdc.query(noted, COPY) == ["seen"], 60, every=2)
    with psycopg.connect(cdc.dsn()) as link:
        link.execute("LOCK TABLE customers, orders IN EXCLUSIVE MODE")  # the shop waits
        _until(lambda: cdc.rows(COPY) == cdc.rows(OWNER), 60, every=2)
    assert min(loaded) not in cdc.query("SELECT id FROM orders", COPY)
    cdc.process.send_signal(signal.SIGINT)
    assert cdc.process.wait(60) == 0, cdc.log.read_text()
    assert [process.cmdline() for process in cdc.processes()] == []


def _is_free(offset: int) -> bool:
    return all(system.is_free(port + offset) for port in PORTS)


def _until(there: Callable[[], bool], seconds: float, every: float = 0.5) -> None:
    """Asking may cost the demo seconds of a processor, which it needs itself."""
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(every)
