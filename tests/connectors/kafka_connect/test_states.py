"""How a connector and its tasks fare is there for everybody who sees the spool."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dataflow_assets.cli import main
from dataflow_assets.connectors.kafka_connect import states
from dataflow_assets.connectors.kafka_connect.source.session import KafkaConnectSession
from dataflow_assets.connectors.kafka_connect.source.source import KafkaConnectSource
from tests.connectors.kafka_connect.driver import Flow, source


def test_the_states_of_the_last_process_are_told_with_the_lag(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    given = {"class": "C", "plugins": [str(tmp_path)], "spool": str(spool)}
    session = KafkaConnectSession(KafkaConnectSource.model_validate(given))
    assert session.lag({}).connector == {}
    states.write(spool, "RUNNING", ["RUNNING", "PAUSED"])
    wanted = {"connector": "RUNNING", "task 0": "RUNNING", "task 1": "PAUSED"}
    assert session.lag({}).connector == wanted


def test_the_command_line_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    given = source(tmp_path, "C", {}, plugins=[str(tmp_path)])
    flow = Flow(tmp_path, given)
    flow.spool.mkdir()
    states.write(flow.spool, "RUNNING", ["RUNNING", "RUNNING", "PAUSED"])

    def said(*arguments: str) -> str:
        assert main(["status", flow.manifest, *arguments]) == 0
        return capsys.readouterr().out

    assert "-, connector RUNNING (tasks: 1 PAUSED, 2 RUNNING)" in said()
    ((branch,),) = (one["branches"] for one in json.loads(said("--json"))["flows"])
    assert list(branch["connector"].values()) == ["RUNNING", "RUNNING", "RUNNING", "PAUSED"]


@pytest.mark.parametrize(
    ("connector", "seen"),
    [
        ("RUNNING", "UNASSIGNED"),
        ("STOPPED", "STOPPED"),
        ("FAILED", "FAILED at 2026-11-25 20:30 UTC"),
    ],
)
def test_a_process_that_writes_no_more_runs_no_more(
    connector: states.Name, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 11, 25, 20, 30, tzinfo=UTC).timestamp()
    monkeypatch.setattr(time, "time", lambda: now)
    states.write(tmp_path, connector, [])
    assert states.read(tmp_path) == {"connector": connector}
    monkeypatch.setattr(time, "time", lambda: now + 31)
    assert states.read(tmp_path) == {"connector": seen}


def test_a_connector_that_takes_long_to_start_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "WRITTEN", 0.01)
    states.write(tmp_path, "RUNNING", [])
    tasks: list[states.Name] = []
    with states.note_states(tmp_path, lambda: tasks):
        now = time.time() + 31  # of the start of one task
        monkeypatch.setattr(time, "time", lambda: now)
        tasks.append("RUNNING")
        until = time.monotonic() + 10
        wanted = {"connector": "RUNNING", "task 0": "RUNNING"}
        while states.read(tmp_path) != wanted:
            assert time.monotonic() < until, states.read(tmp_path)
    monkeypatch.setattr(time, "time", lambda: now + 31)
    assert states.read(tmp_path)["connector"] == "UNASSIGNED", "the block has ended"


def test_what_cannot_be_read_or_written_is_no_error(tmp_path: Path) -> None:
    states.write(tmp_path / "nowhere", "RUNNING", [])
    (tmp_path / "connector.json").write_text("{")
    assert states.read(tmp_path) == {}
