"""The `dataflow` command: what it prints, what it returns, and how it ends when it is told to."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.cli import main
from dataflow_assets.connectors.memory import Store
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.redaction import mask
from devservers.demo.dagster_dev import WEB
from devservers.demo.demo import OFFSET
from tests import ROOT
from tests.conftest import Topics
from tests.connectors.kafka.impatient import impatient
from tests.forked import Forked
from tests.windows import CLOSED, OPEN, REASON, WallClock
from tests.windows import MANIFEST as WINDOW

FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: {name}}}
spec:
  source: {{type: memory-offsets, config: {{store: {store}, topic: {name}}}}}
  sink: {{type: memory-slice, config: {{store: {store}, table: {name}}}}}
  onRejected: table
"""
BROKEN = FLOW.replace("topic: {name}", "topik: {name}")
KAFKA_FLOW = """\
apiVersion: v1
kind: Secret
metadata: {{name: database}}
stringData:
  dsn: {dsn}
---
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: people}}
spec:
  source:
    type: kafka
    config: {{brokers: ["{bootstrap}"], topic: {topic}, consumerGroup: {topic}}}
  sink:
    type: postgresql
    config:
      connectionStringSecretRef: {{name: database, key: dsn}}
      table: {table}
      autoCreateTable: true
      upsertMode: true
      conflictKey: id
  onRejected: table
"""


@pytest.fixture
def store(store: Store) -> Store:
    """With three people waiting."""
    store.produce("people", 0, [b'{"id": 1, "name": "a"}', b"{bad", b'{"id": 2, "name": "b"}'])
    store.produce("people", 1, [b'{"id": 3, "name": "c"}'])
    return store


@pytest.fixture
def flows(tmp_path: Path, store: Store) -> Path:
    """A folder with the flow `people`."""
    folder = tmp_path / "flows"
    folder.mkdir()
    (folder / "people.yaml").write_text(FLOW.format(name="people", store=store.name))
    return folder


@pytest.fixture
def on_spark(spark_server: devservers.SparkConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_SPARK", spark_server.remote)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_check_of_the_examples(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    assert main(["check", str(ROOT / "examples" / "demo")]) == 0
    out = capsys.readouterr().out
    assert out.endswith("6 flows, 0 findings, 2 notes\n")
    assert out.count("the credentials go over the network as they are") == 2  # to this machine


def test_check_of_the_examples_with_a_lake(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo makes the certificates, where DATAFLOW_SECRETS says."""
    mounted = tmp_path / "default" / "kafka-client"
    mounted.mkdir(parents=True)
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (mounted / name).write_text("a certificate")
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))
    assert main(["check", str(ROOT / "examples" / "demo-lake")]) == 0
    assert capsys.readouterr().out.endswith("4 flows, 0 findings, 0 notes\n")


def test_check_of_the_examples_of_a_followed_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(ROOT / "examples" / "demo-cdc")]) == 0
    assert capsys.readouterr().out.endswith("1 flow, 0 findings, 0 notes\n")


def test_check_says_where(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (flows / "broken.yaml").write_text(BROKEN.format(name="broken", store="s"))
    assert main(["check", str(flows)]) == 1
    said = capsys.readouterr().out
    assert f"{flows / 'broken.yaml'}:5:" in said
    assert "did you mean topic?" in said
    assert said.endswith("1 flow, 2 findings, 0 notes\n")


def test_check_as_json(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (flows / "broken.yaml").write_text(BROKEN.format(name="broken", store="s"))
    assert main(["check", str(flows), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [flow["id"] for flow in said["flows"]] == ["default/people"]
    assert {"file", "line", "column", "path", "message"} <= said["findings"][0].keys()


def test_check_loads_no_client(flows: Path) -> None:
    heavy = "pyspark", "pyiceberg", "dagster", "devservers", "rich"
    code = (
        "import sys; from dataflow_assets.cli import main; "
        f"main(['check', {str(flows)!r}]); print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_check_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "missing")]) == 1
    assert "no such file or folder" in capsys.readouterr().out


@pytest.mark.usefixtures("on_spark")
def test_run_drains_and_says_so(
    flows: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(flows)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    name = store.name
    assert first == f"default/people: memory/{name}/people -> memory/{name}/people"
    assert "default/people: done: 3 rows, 1 rejected in " in last
    assert last.endswith("read up to the newest record at start")
    assert len(store.query("select * from rows")) == 3


@pytest.mark.usefixtures("on_spark")
def test_run_as_json(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(flows), "--json"]) == 0
    *reports, end = lines(capsys.readouterr().out)
    assert [report["last"] for report in reports] == [False, True]
    assert reports[0]["flow"] == "default/people"
    assert reports[0]["positions"] == {"0": 3, "1": 1}
    assert (reports[0]["rows"], reports[0]["rejected"], reports[0]["lag_records"]) == (3, 1, 0)
    assert (end["outcome"], end["error"]) == ("done", None)
    assert end["flows"][0]["rows"] == 3


@pytest.mark.usefixtures("on_spark")
def test_run_for_a_while_takes_flows_side_by_side(
    flows: Path,
    store: Store,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.produce("places", 0, [b'{"id": 1, "name": "x"}'])
    (flows / "places.yaml").write_text(FLOW.format(name="places", store=store.name))
    with caplog.at_level(logging.INFO, "dataflow_assets"):
        assert main(["run", str(flows), "--for", "6", "--json"]) == 0
    begun_or_ended = [text for text in caplog.messages if re.search(r" (begins$|ends: )", text)]
    assert all(text.endswith("begins") for text in begun_or_ended[:2]), begun_or_ended
    end = lines(capsys.readouterr().out)[-1]
    assert min(flow["seconds"] for flow in end["flows"]) >= 6
    assert {flow["reason"] for flow in end["flows"]} == {"its time is up"}
    assert main(["run", str(flows)]) == 0  # what a busy machine has not read in that time
    assert len(store.query("select * from rows")) == 4


@pytest.mark.usefixtures("on_spark")
def test_run_from_another_place(
    flows: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(flows), "--from", "0=2,1=1"]) == 1
    assert "rewinding would store its records twice" in capsys.readouterr().out
    assert main(["run", str(flows), "--from", "0=2,1=1", "--yes"]) == 0
    assert len(store.query("select * from rows")) == 1
    assert main(["run", str(flows), "--from", "earliest", "--table", "truncate"]) == 0
    assert len(store.query("select * from rows")) == 3


@pytest.mark.full
def test_run_adopts_a_table_that_was_rebuilt(
    flows: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(flows)]) == 0
    store.identify("people", "rebuilt")
    assert main(["run", str(flows)]) == 1
    assert "go on from the checkpoint: run once with table: adopt" in capsys.readouterr().out
    assert main(["run", str(flows), "--table", "adopt"]) == 0
    assert main(["run", str(flows)]) == 0
    assert len(store.query("select * from rows")) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        ["--from", "yesterday"],
        ["--for", "0"],
        ["--for", "soon"],
        ["--table", "truncate"],
        ["--from", "earliest", "--table", "adopt"],
    ],
)
def test_run_refuses_a_wrong_command_line(flows: Path, wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", str(flows), *wrong])
    assert ended.value.code == 2


def test_an_unknown_flow_is_suggested(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(flows), "--flow", "poeple"]) == 1
    said = capsys.readouterr().err
    assert said == "dataflow: no flow poeple; did you mean people? There is: default/people\n"


@pytest.mark.usefixtures("on_spark")
def test_a_broken_neighbour_does_not_stop_a_chosen_flow(
    flows: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    (flows / "broken.yaml").write_text(BROKEN.format(name="broken", store="s"))
    assert main(["run", str(flows), "--flow", "default/people"]) == 0
    assert "broken.yaml:5:" in capsys.readouterr().err
    assert main(["run", str(flows)]) == 1  # all were asked for, and one could not run
    assert len(store.query("select * from rows")) == 3


def test_a_suspended_flow_does_not_run(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = flows / "people.yaml"
    file.write_text(file.read_text() + "  maintenance: {suspended: true}\n")
    assert main(["run", str(flows)]) == 0
    assert "default/people: left out: suspended in its manifest (" in capsys.readouterr().err
    assert main(["run", str(flows), "--flow", "people"]) == 1
    assert "people.yaml:1): it must not run" in capsys.readouterr().err


def test_a_flow_in_its_window_does_not_run(
    flows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, clock = flows / "people.yaml", WallClock(monkeypatch, OPEN)
    file.write_text(file.read_text() + WINDOW)
    assert main(["run", str(flows)]) == 0
    assert f"default/people: left out: {REASON}" in capsys.readouterr().err
    assert main(["run", str(flows), "--flow", "people"]) == 1
    assert f"default/people is {REASON}: it must not run" in capsys.readouterr().err
    assert main(["replay", str(flows), "--flow", "people"]) == 1
    assert f"default/people is {REASON}: it must not run" in capsys.readouterr().err
    assert main(["status", str(flows)]) == 0
    assert f"Stopped  {REASON}" in capsys.readouterr().out
    assert main(["status", str(flows), "--json"]) == 0
    (flow,) = json.loads(capsys.readouterr().out)["flows"]
    assert (flow["paused"], flow["suspended"], flow["state"]) == (REASON, False, "Stopped")
    clock.now = CLOSED
    assert main(["status", str(flows), "--json"]) == 0
    (flow,) = json.loads(capsys.readouterr().out)["flows"]
    assert (flow["paused"], flow["state"]) == (None, "-")


@pytest.mark.usefixtures("on_spark")
def test_status_and_reset(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(flows)]) == 0
    assert "never run" in capsys.readouterr().out
    main(["run", str(flows)])
    capsys.readouterr()
    assert main(["status", str(flows), "--json"]) == 0
    (flow,) = json.loads(capsys.readouterr().out)["flows"]
    (branch,) = flow["branches"]
    assert branch["source_end"] == branch["checkpoint"]["positions"] == {"0": 3, "1": 1}
    assert (branch["lag_records"], branch["checkpoint"]["rejected"]) == (0, 1)
    assert main(["reset", str(flows), "--flow", "people", "--yes"]) == 0
    assert "is forgotten; its rows stay" in capsys.readouterr().out
    main(["status", str(flows)])
    assert "never run" in capsys.readouterr().out


def test_reset_asks_and_nobody_answers(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reset", str(flows), "--flow", "people"]) == 1
    assert "pass --yes" in capsys.readouterr().err


def test_status_of_what_cannot_be_reached(
    flows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    text = KAFKA_FLOW.format(
        dsn="postgresql://me:hidden-word@127.0.0.1:1/x",
        bootstrap="127.0.0.1:1",
        topic="t",
        table="t",
    )
    (flows / "away.yaml").write_text(text.replace("name: people", "name: away"))
    assert main(["status", str(flows)]) == 1
    said = capsys.readouterr()
    assert "default/people" in said.out
    (line,) = said.err.splitlines()
    assert "default/away" in line
    assert "127.0.0.1:1" in line


@pytest.mark.usefixtures("on_spark")
def test_kafka_to_postgresql(
    tmp_path: Path,
    kafka: devservers.Kafka,
    postgresql: devservers.PostgreSQL,
    topic: Topics,
    schema: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, file = topic(), tmp_path / "people.yaml"
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(100):
        producer.produce(name, json.dumps({"id": number % 50, "name": "x"}))
    producer.produce(name, b"{bad")
    producer.flush(30)
    dsn, table = postgresql.dsn(), f"{schema}.people"
    file.write_text(KAFKA_FLOW.format(dsn=dsn, bootstrap=kafka.bootstrap, topic=name, table=table))
    assert main(["run", str(file), "--json"]) == 0
    assert lines(capsys.readouterr().out)[-1]["flows"][0]["rejected"] == 1
    with psycopg.connect(dsn) as connection:
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (50,)
    assert main(["status", str(file), "--json"]) == 0
    (flow,) = json.loads(capsys.readouterr().out)["flows"]
    assert flow["branches"][0]["checkpoint"]["positions"] == {"0": 101}
    assert flow["branches"][0]["lag_records"] == 0


@pytest.mark.usefixtures("on_spark")
def test_a_failure_is_one_sentence(
    tmp_path: Path, kafka: devservers.Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "people.yaml"
    dsn = "postgresql://postgres@127.0.0.1:1/x"
    file.write_text(
        KAFKA_FLOW.format(dsn=dsn, bootstrap=kafka.bootstrap, topic="no-such-topic", table="t")
    )
    assert main(["run", str(file)]) == 1
    (_, last) = capsys.readouterr().out.splitlines()
    assert "no-such-topic" in last
    assert "failed" in last


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.usefixtures("on_spark")
def test_a_signal_ends_after_the_micro_batch(
    flows: Path, number: signal.Signals, code: int
) -> None:
    process = _running(flows)
    first = json.loads(next(process.lines(errors=False)))
    assert first["rows"] == 3
    process.send_signal(number)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == code
    end = lines(said)[-1]
    assert end["outcome"] == "stopped"
    assert end["flows"][0]["reason"] == "stopped on request"


@pytest.mark.usefixtures("on_spark")
def test_a_second_signal_abandons(
    flows: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = store.name
    reached = Path(tempfile.gettempdir(), f"dataflow-failpoint-drain.begun-{token}")
    monkeypatch.setenv("DATAFLOW_FAILPOINT", "drain.begun:sleep")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", token)
    process = _running(flows)
    while not reached.exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    while process.poll() is None:  # two that come before either is taken are one
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, said = process.communicate(timeout=5)
    assert process.returncode == 130
    assert "abandoned" in said
    reached.unlink()


@pytest.mark.parametrize("which", ["orders", "cdc"])
def test_the_demo_says_which_port_is_taken(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv(OFFSET, str(port - WEB))
        assert main(["demo", which, "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"{port} (dagster)" in said
    assert len(said.splitlines()) == 1


def test_secrets_are_masked(tmp_path: Path) -> None:
    text = KAFKA_FLOW.format(
        dsn="postgresql://me:hidden-word@db:5432/x", bootstrap="b:9092", topic="t", table="t"
    )
    (tmp_path / "flow.yaml").write_text(text)
    loaded = load(tmp_path)
    shown = mask("cannot log in as me with hidden-word; t, default/people stay", loaded.flows)
    assert shown == "cannot log in as me with ***; t, default/people stay"
    assert mask("postgresql://a:b-c@h/d password=e1", ()) == "postgresql://a:***@h/d password=***"


def _running(flows: Path) -> Forked:
    return Forked(["run", str(flows), "--for", "60", "--json"], ROOT, os.environ)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["run", "x", "--flows", "a"], "unknown option --flows; did you mean --flow?"),
        (["run", "x", "--untill=now"], "unknown option --untill; did you mean --until?"),
        (["check", "x", "--quick"], "unknown option --quick; `dataflow check --help` lists what"),
        (["demo", "orders", "lake"], "demo does not take lake; `dataflow demo --help` lists what"),
    ],
)
def test_a_word_that_a_command_does_not_take(
    capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
