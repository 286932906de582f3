"""Servers down, drivers racing, secrets planted: what a pager goes off for."""

from __future__ import annotations

import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import devservers
from dataflow_assets.connectors.clickhouse import client as clients
from tests.conftest import Topics
from tests.e2e.conftest import RealFlow
from tests.e2e.flows import KAFKA_TO_CLICKHOUSE, KAFKA_TO_POSTGRESQL, Command, write
from tests.stress.chaos_driver import Driver
from tests.stress.chaos_kills import Takeover, kill_workers, pause_driver

pytestmark = pytest.mark.e2e


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[devservers.Kafka]:
    with devservers.Kafka(tmp_path / "kafka") as server:
        yield server


@pytest.fixture
def own_postgresql(tmp_path: Path) -> Iterator[devservers.PostgreSQL]:
    with devservers.PostgreSQL(tmp_path / "postgresql") as server:
        yield server


@pytest.fixture
def fragile(
    tmp_path: Path, own_kafka: devservers.Kafka, own_postgresql: devservers.PostgreSQL
) -> RealFlow:
    """A flow on servers of its own, which the test may kill."""
    return _between(tmp_path, own_kafka, own_postgresql)


def _between(folder: Path, kafka: devservers.Kafka, postgresql: devservers.PostgreSQL) -> RealFlow:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    dsn = postgresql.dsn()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table target (id bigint not null, name text, nested jsonb)")

    def ids() -> list[int]:
        with psycopg.connect(dsn) as connection:
            return [int(row[0]) for row in connection.execute("select id from target order by 1")]

    values = {"name": name, "bootstrap": kafka.bootstrap, "topic": name, "dsn": dsn}
    manifest = write(folder, KAFKA_TO_POSTGRESQL, limit=500, table="public.target", **values)
    return RealFlow(manifest, name, kafka, ids)


def test_both_servers_die_in_the_middle_and_come_back(
    fragile: RealFlow,
    own_kafka: devservers.Kafka,
    own_postgresql: devservers.PostgreSQL,
    command: Command,
) -> None:
    fragile.produce(20_000)
    process = command.start("run", str(fragile.manifest))
    _wait_for_rows(fragile, 500)
    own_postgresql.kill()
    time.sleep(2)
    own_postgresql.start()
    own_kafka.kill()
    time.sleep(2)
    own_kafka.start()
    _, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    fragile.expect_everything_once()


@pytest.mark.full
def test_clickhouse_dies_in_the_middle_and_comes_back(
    tmp_path: Path, kafka: devservers.Kafka, topic: Topics, command: Command
) -> None:
    with devservers.ClickHouse(tmp_path / "clickhouse") as server:
        dsn, name = server.dsn(), topic(2)

        def ids() -> list[int]:
            with clients.connect(dsn, "tests") as client:
                if not client.command("exists target"):
                    return []
                return [
                    id_
                    for (id_,) in clients.query_rows(client, "select id from target order by id")
                ]

        values = {"name": name, "bootstrap": kafka.bootstrap, "topic": name, "dsn": dsn}
        manifest = write(tmp_path, KAFKA_TO_CLICKHOUSE, limit=200, table="target", **values)
        flow = RealFlow(manifest, name, kafka, ids)
        flow.produce(12_000)
        process = command.start("run", str(manifest))
        for rows in (1_000, 4_000):
            _wait_for_rows(flow, rows)
            server.kill()
            time.sleep(2)
            server.start()
        _, err = process.communicate(timeout=150)
        assert process.returncode == 0, err
        flow.expect_everything_once()


def test_a_database_that_stays_down_ends_the_run_with_one_sentence(
    tmp_path: Path,
    kafka: devservers.Kafka,
    own_postgresql: devservers.PostgreSQL,
    command: Command,
) -> None:
    flow = _between(tmp_path, kafka, own_postgresql)
    flow.produce(1_000)
    own_postgresql.stop()
    ended = command.run("run", str(flow.manifest), DATAFLOW_PATIENCE="4")
    assert ended.returncode == 1
    assert "gave up after" in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr + ended.stdout
    own_postgresql.start()
    assert command.run("run", str(flow.manifest)).returncode == 0
    flow.expect_everything_once()


OTHERS = ("to_iceberg", "to_kafka", "to_postgresql")
RACES = [
    "to_clickhouse",  # which has no transactions
    *(pytest.param(target, marks=pytest.mark.full) for target in OTHERS),
]


@pytest.mark.parametrize("target", RACES)
def test_two_drivers_race_and_one_is_fenced(
    target: str, request: pytest.FixtureRequest, command: Command
) -> None:
    """The first stops in the middle of a micro-batch, and goes on when the second has stored."""
    flow: RealFlow = request.getfixturevalue(target)
    flow.produce(10_000)
    takeover = Takeover(lambda: Driver(command, flow.manifest), lambda: flow.produce(2))
    left, met = pause_driver(takeover.begin(), random.Random(1), takeover)
    assert met, "nothing was in flight"
    flow.produce(2)
    ends = dict.fromkeys(("0", "1"), flow.produced // 2)
    assert left.until(lambda: left.stored(ends), 120), left.said
    left.process.kill()
    left.ended()
    flow.expect_everything_once()


def test_an_interrupt_finishes_the_micro_batch(to_postgresql: RealFlow, command: Command) -> None:
    to_postgresql.produce(5_000)
    process = command.start("run", str(to_postgresql.manifest), "--for", "60")
    _wait_for_rows(to_postgresql, 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert command.run("run", str(to_postgresql.manifest)).returncode == 0
    to_postgresql.expect_everything_once()


@pytest.mark.crash
def test_the_connect_server_dies_and_the_run_goes_on(
    mortal_spark: devservers.SparkConnect, to_postgresql: RealFlow
) -> None:
    to_postgresql.produce(6_000)
    process = Command(mortal_spark.remote).start("run", str(to_postgresql.manifest))
    _wait_for_rows(to_postgresql, 500)
    mortal_spark.kill()
    assert len(to_postgresql.ids()) < 6_000
    mortal_spark.start()
    _, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    to_postgresql.expect_everything_once()


@pytest.mark.crash
def test_python_workers_die_and_the_run_goes_on(
    to_postgresql: RealFlow, command: Command, spark_server: devservers.SparkConnect
) -> None:
    to_postgresql.produce(15_000)
    process = command.start("run", str(to_postgresql.manifest))
    _wait_for_rows(to_postgresql, 500)
    killed = threading.Thread(target=kill_workers, args=(spark_server.pid,))
    killed.start()
    killed.join()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    to_postgresql.expect_everything_once()


def _wait_for_rows(flow: RealFlow, least: int) -> None:
    deadline = time.monotonic() + 60
    while len(flow.ids()) < least:
        assert time.monotonic() < deadline, f"no {least} rows within a minute"
        time.sleep(0.1)
