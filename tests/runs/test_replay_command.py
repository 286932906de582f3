"""`dataflow replay`: what it puts back, what it says, how it ends."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.cli import main
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.memory.rejected.error_sink import MemoryErrors
from dataflow_assets.contracts import Entry
from dataflow_assets.runs import replay as engine
from dataflow_assets.spark.session import Spark
from tests.conftest import Topics

FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: people}}
spec:
  source: {{type: memory-offsets, config: {{store: {store}, topic: people}}}}
  sink: {{type: memory-slice, config: {{store: {store}, table: people, allowed: {allowed}}}}}
  maxRejectedPercent: 100
  {rejects}
"""
ERRORS = "errors: {{type: memory-slice, config: {{store: {store}-errors, table: bad}}{more}}}"


class Case:
    """A flow with five records waiting, of which two are refused for now."""

    def __init__(self, folder: Path) -> None:
        self.name = uuid.uuid4().hex
        self.file = folder / "people.yaml"
        self.store, self.errors = Store(self.name), Store(f"{self.name}-errors")
        self.store.create()
        bodies = [json.dumps({"id": number, "name": "a"}).encode() for number in (1, -2, 3, -4, 5)]
        self.store.produce("people", 0, bodies)

    def write(self, allowed: list[int], rejects: str = "", more: str = "") -> None:
        rejects = rejects or ERRORS.format(store=self.name, more=more)
        self.file.write_text(FLOW.format(store=self.name, allowed=allowed, rejects=rejects))

    def replay(self, *more: str) -> int:
        return main(["replay", str(self.file), "--flow", "people", *more])

    def ids(self) -> list[int]:
        return sorted(json.loads(row)["id"] for (row,) in self.store.query("select row from rows"))


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    case = Case(tmp_path)
    yield case
    case.store.remove()
    case.errors.remove()


@pytest.fixture
def rejected(case: Case, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The case after a run that refused two records; `test_on_real_servers` is on Spark."""
    session = request.getfixturevalue("engine")
    monkeypatch.setattr(Spark, "session", lambda _: session)
    case.write([])
    assert main(["run", str(case.file)]) == 0
    assert case.ids() == [1, 3, 5]
    return case


def test_it_puts_back_what_was_rejected(rejected: Case, capsys: pytest.CaptureFixture[str]) -> None:
    rejected.write([-2])
    capsys.readouterr()
    assert rejected.replay() == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == "default/people: 2 rejected records replayed: 1 stored, 1 rejected again"
    assert rejected.ids() == [-2, 1, 3, 5]
    rejected.write([-2, -4])
    assert rejected.replay() == 0
    assert "1 rejected record replayed: 1 stored, 0 rejected again" in capsys.readouterr().out
    assert rejected.replay() == 0
    assert "nothing to replay: no rejected record waits" in capsys.readouterr().out
    assert rejected.ids() == [-4, -2, 1, 3, 5]


def test_as_json(rejected: Case, capsys: pytest.CaptureFixture[str]) -> None:
    rejected.write([-2])
    capsys.readouterr()
    assert rejected.replay("--json") == 0
    part, end = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    counts = {"flow": "default/people", "entries": 2, "rows": 1, "rejected": 1}
    assert part == counts
    assert end == {"outcome": "done", "error": None, **counts}


def test_since(rejected: Case, capsys: pytest.CaptureFixture[str]) -> None:
    rejected.write([-2, -4])
    assert rejected.replay("--since", "2999-01-01T00:00:00Z") == 0
    assert "nothing to replay" in capsys.readouterr().out
    assert rejected.replay("--since", "2001-01-01T00:00:00+02:00") == 0
    assert "2 rejected records replayed: 2 stored" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31", "2026-01-31T00:00:00"])
def test_since_wants_a_zone(case: Case, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    case.write([])
    with pytest.raises(SystemExit) as ended:
        case.replay("--since", text)
    assert ended.value.code == 2
    assert f"{text!r} is not a time with its zone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rejects", "said"),
    [
        ("onRejected: skip", "keeps no rejected records (onRejected: skip)"),
        ("onRejected: fail", "keeps no rejected records (onRejected: fail)"),
        ("", "reads it again itself once it can: there is nothing to replay"),
    ],
    ids=["skip", "fail", "never"],
)
def test_a_flow_that_keeps_nothing_says_so(
    case: Case, rejects: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case.write([], rejects, more=", ackPolicy: never")
    assert case.replay() == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("failed: flow default/people ")
    assert said in line


def test_a_failure_tells_what_was_put_back_before(
    rejected: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "AT_ONCE", 1)
    noted: list[Any] = []
    note = MemoryErrors.mark_replayed

    def broken(self: MemoryErrors, entries: list[Entry]) -> None:
        if noted:
            raise RuntimeError("password=hunter22 is wrong")
        noted.append(entries)
        note(self, entries)

    monkeypatch.setattr(MemoryErrors, "mark_replayed", broken)
    rejected.write([-2, -4])
    capsys.readouterr()
    assert rejected.replay() == 1
    said = capsys.readouterr().out
    assert "default/people: failed: unexpected RuntimeError: password=***" in said
    assert "before that, 1 rejected record replayed: 1 stored, 0 rejected again" in said
    assert rejected.ids() == [-4, -2, 1, 3, 5]
    monkeypatch.setattr(MemoryErrors, "mark_replayed", note)
    assert rejected.replay() == 0
    assert "0 stored, 0 rejected again, 1 without a row" in capsys.readouterr().out
    assert rejected.ids() == [-4, -2, 1, 3, 5]


def test_a_signal_ends_it_after_the_part(
    rejected: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "AT_ONCE", 1)
    note = MemoryErrors.mark_replayed

    def signalled(self: MemoryErrors, entries: list[Entry]) -> None:
        note(self, entries)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)  # the main thread hears of it

    monkeypatch.setattr(MemoryErrors, "mark_replayed", signalled)
    rejected.write([-2, -4])
    assert rejected.replay() == 130
    assert "stopped on request, the next replay goes on" in capsys.readouterr().out
    assert len(rejected.ids()) == 4
    monkeypatch.setattr(MemoryErrors, "mark_replayed", note)
    assert rejected.replay() == 0
    assert rejected.ids() == [-4, -2, 1, 3, 5]


def test_suspended_flows_are_left_alone(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.write([])
    case.file.write_text(case.file.read_text() + "  maintenance: {suspended: true}\n")
    assert case.replay() == 1
    assert "is suspended in its manifest" in capsys.readouterr().err


ORDERS = """\
apiVersion: v1
kind: Secret
metadata: {{name: shop-database}}
stringData: {{connectionString: {dsn}}}
---
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: orders}}
spec:
  source:
    type: kafka
    config: {{brokers: ["{brokers}"], topic: {topic}, consumerGroup: {topic}}}
  sink:
    type: postgresql
    config:
      connectionStringSecretRef: {{name: shop-database, key: connectionString}}
      table: {schema}.orders
  maxRejectedPercent: 100
  {errors}
"""
TO_TABLE = """errors:
    type: postgresql
    config:
      connectionStringSecretRef: {{name: shop-database, key: connectionString}}
      table: {schema}.order_errors
      autoCreateTable: true
"""


@pytest.mark.parametrize("errors", [TO_TABLE, "onRejected: table"], ids=["errors", "table"])
def test_on_real_servers(
    errors: str,
    tmp_path: Path,
    kafka: devservers.Kafka,
    postgresql: devservers.PostgreSQL,
    spark_server: devservers.SparkConnect,
    topic: Topics,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DATAFLOW_SPARK", spark_server.remote)
    name, file, dsn = topic(), tmp_path / "orders.yaml", postgresql.dsn()
    errors = errors.format(schema=schema)
    text = ORDERS.format(dsn=dsn, brokers=kafka.bootstrap, topic=name, schema=schema, errors=errors)
    file.write_text(text)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for body in ('{"id": 1, "total": 9.5}', '{"id": 2}', '{"id": 3, "total": -1}'):
        producer.produce(name, body)
    producer.flush(30)
    with psycopg.connect(dsn, autocommit=True) as connection:
        orders = f"{schema}.orders"
        connection.execute(
            f"create table {orders} (id int, total numeric not null check (total > 0))".encode()
        )
        assert main(["run", str(file)]) == 0
        capsys.readouterr()
        connection.execute(f"alter table {orders} alter total drop not null".encode())
        assert main(["replay", str(file), "--flow", "orders"]) == 0
        said = capsys.readouterr().out
        assert "2 rejected records replayed: 1 stored, 1 rejected again" in said
        connection.execute(f"alter table {orders} drop constraint orders_total_check".encode())
        assert main(["replay", str(file), "--flow", "orders"]) == 0
        assert "1 rejected record replayed: 1 stored" in capsys.readouterr().out
        assert main(["replay", str(file), "--flow", "orders"]) == 0
        assert "nothing to replay" in capsys.readouterr().out
        found = connection.execute(f"select id from {orders} order by id".encode()).fetchall()
        assert found == [(1,), (2,), (3,)]
