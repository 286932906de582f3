"""`dataflow status` for many flows: what is wrong comes first, and one line counts."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.cli import main
from dataflow_assets.contracts import Run
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.statuses import statuses
from tests import ROOT
from tests.conftest import Topics

FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: {name}}}
spec:
  source: {{type: kafka, config: {{brokers: ["{bootstrap}"], topic: {topic}}}}}
  sink: {{type: postgresql, config: {{connectionString: "{dsn}", table: {table}}}}}
"""
FLOWS = 50


def write(folder: Path, name: str, **config: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(FLOW.format(name=name, **config))


def stand(flow: Flow, offset: int) -> None:
    """The flow has come so far."""
    resolved = flow.resolve()
    (branch,) = resolved.branches
    with (
        closing(resolved.source.open(flow.id)) as source,
        closing(branch.sink.open(resolved.target(branch), Run())) as sink,
    ):
        sink.restart({"0": offset}, source.identity)


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def folder(
    tmp_path: Path,
    kafka: devservers.Kafka,
    postgresql: devservers.PostgreSQL,
    topic: Topics,
    schema: str,
) -> Path:
    """Forty-eight flows: two of them are behind, two more cannot be asked."""
    folder, name = tmp_path / "fleet", topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for age in (7_200, 3_600, 60):
        producer.produce(name, b"{}", timestamp=1_000 * (int(time.time()) - age))
    producer.flush(30)
    known = {"bootstrap": kafka.bootstrap, "dsn": postgresql.dsn()}
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        for number in range(FLOWS - 2):
            table = f"{schema}.t{number}"
            connection.execute(f"CREATE TABLE {table} (id int)")
            write(folder, f"flow-{number}", topic=name, table=table, **known)
    for flow in load([folder]).flows:
        stand(flow, {"flow-7": 2, "flow-30": 1}.get(flow.name, 3))
    write(folder, "no-topic", topic="there-is-none", table=f"{schema}.t0", **known)
    away = known | {"dsn": "postgresql://me:hidden-word@127.0.0.1:1/x"}
    write(folder, "no-table", topic=name, table="t", **away)
    return folder


def test_what_is_wrong_comes_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(folder)]) == 1
    said = capsys.readouterr()
    no_table, no_topic = sorted(said.err.splitlines())
    assert no_table.startswith("default/no-table: ")
    assert "127.0.0.1:1" in no_table
    assert "hidden-word" not in no_table
    assert no_topic.startswith("default/no-topic: topic there-is-none does not exist")
    _, *unknown, first, second, third = said.out.splitlines()[:6]
    last = said.out.splitlines()[-1]
    assert sorted(line.split()[0] for line in unknown) == ["default/no-table", "default/no-topic"]
    assert all("not known" in line for line in unknown)
    assert first.split()[0] == "default/flow-30", "two hours would have been too much"
    assert 3_600 <= int(first.split()[5].replace(",", "")) < 3_700
    assert second.split()[0] == "default/flow-7"
    assert third.split()[4:6] == ["0", "0"]
    assert last == "50 flows: 46 in time, 2 late, 2 not known"


def test_json_has_every_flow_in_the_order_of_the_manifests(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", str(folder), "--json"]) == 1
    flows = json.loads(capsys.readouterr().out)["flows"]
    assert [flow["flow"] for flow in flows] == [flow.id for flow in load([folder]).flows]
    failed = {flow["flow"] for flow in flows if flow["error"]}
    assert failed == {"default/no-topic", "default/no-table"}
    (branch,) = next(flow["branches"] for flow in flows if flow["flow"] == "default/flow-30")
    assert (branch["lag_records"], branch["source_end"]) == (2, {"0": 3})
    assert branch["checkpoint"]["positions"] == {"0": 1}


def test_a_silent_server_is_an_error_of_its_own_flows(folder: Path, silent: str) -> None:
    (folder / "no-topic.yaml").unlink()
    known = {"topic": "t", "table": "t", "bootstrap": silent}
    write(folder, "no-table", dsn=f"postgresql://me@{silent}/x", **known)
    found = {answer.flow.name: answer for answer in statuses(load([folder]).flows, silence=6)}
    assert "127.0.0.1" in str(found.pop("no-table").error)
    assert [answer.error for answer in found.values()] == [None] * (FLOWS - 2)


def test_the_process_ends_although_a_server_is_silent(tmp_path: Path, silent: str) -> None:
    known = {"topic": "t", "table": "t", "bootstrap": silent}
    write(tmp_path / "flows", "alone", dsn=f"postgresql://me@{silent}/x", **known)
    command = [sys.executable, "-m", "dataflow_assets.cli", "status", "flows", "--json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1, done.stderr
    (flow,) = json.loads(done.stdout)["flows"]
    assert flow["branches"] == []
    assert silent.replace(".", "-").replace(":", "-") in flow["error"] or silent in flow["error"]


def test_a_silent_server_does_not_hold_up_the_answer(
    tmp_path: Path, kafka: devservers.Kafka, topic: Topics, silent: str
) -> None:
    """The client of ClickHouse would wait for minutes, and the question for half of one."""
    known = {"topic": topic(), "table": "t", "bootstrap": kafka.bootstrap}
    write(tmp_path / "flows", "alone", dsn=f"http://me@{silent}/x", **known)
    manifest = tmp_path / "flows" / "alone.yaml"
    manifest.write_text(manifest.read_text().replace("postgresql", "clickhouse"))
    (answer,) = statuses(load([tmp_path / "flows"]).flows)
    assert re.match(
        rf"clickhouse/\S+/t \({silent}/x\): no answer for 5 seconds; ", str(answer.error)
    )
