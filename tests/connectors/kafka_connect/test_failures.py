"""What a person reads when a connector cannot run, or its spool is another one."""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from pathlib import Path

import pytest

from dataflow_assets.errors import PermanentError, TransientError
from tests.connectors.kafka_connect import driver
from tests.connectors.kafka_connect.driver import Flow, source
from tests.drained import drain_file, follow_file

pytestmark = pytest.mark.heavy


def flow(folder: Path, connector: str, **config: object) -> Flow:
    return Flow(folder, source(folder, connector, config, tasksMax=1))


@pytest.mark.parametrize(
    ("connector", "config", "sentence"),
    [
        (
            "NoConnector",
            {},
            r"running the connector NoConnector: no jar in plugins .+ has the class",
        ),
        (
            "FileStreamSourceConnector",
            {},
            r"config of FileStreamSourceConnector: topic: Missing req",
        ),
        ("FileStreamSourceTask", {}, r"FileStreamSourceTask is not a source connector"),
    ],
)
def test_a_connector_that_cannot_run_ends_the_run_with_one_sentence(
    connector: str, config: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(PermanentError, match=sentence):
        drain_file(flow(tmp_path, connector, **config).manifest)


@pytest.mark.full
def test_a_configuration_that_was_right_once_is_tried_again(tmp_path: Path) -> None:
    """Debezium refuses a database that does not answer in the same way as a wrong setting."""
    reading = driver.stream(tmp_path)
    (tmp_path / "in.txt").write_text("one\n")
    drain_file(reading.manifest)
    with pytest.raises(TransientError, match="config of FileStreamSourceConnector: topic: Missing"):
        drain_file(flow(tmp_path, "FileStreamSourceConnector").manifest)
    drain_file(driver.stream(tmp_path).manifest)
    assert [row["record"] for row in reading.rows] == ["one"]


def test_what_a_connector_logs_is_in_the_log_of_the_run_without_its_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The connector warns of a file that does not exist, with its name."""
    secret = tmp_path / "planted-s3cret"
    reading = source(tmp_path, "FileStreamSourceConnector", {"topic": "t"}, tasksMax=1)
    reading["credentials"] = json.dumps({"file": str(secret)})
    with caplog.at_level(logging.INFO, "dataflow_assets"):
        drain_file(Flow(tmp_path, reading).manifest)
    said = [one.getMessage() for one in caplog.records if "FileStream" in one.getMessage()]
    assert any("Couldn't find file ***" in line for line in said), said
    assert "planted-s3cret" not in caplog.text


def test_a_spool_that_is_another_one_is_not_taken_for_the_flow_s(tmp_path: Path) -> None:
    reading = driver.stream(tmp_path)
    (tmp_path / "in.txt").write_text("one\n")
    follow_file(reading.manifest, 1)
    assert [row["record"] for row in reading.rows] == ["one"]
    kept = tmp_path / "kept"
    shutil.move(reading.spool, kept)
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    with pytest.raises(PermanentError, match="is not the one that the flow has read so far"):
        drain_file(reading.manifest)
    shutil.rmtree(reading.spool)
    shutil.move(kept, reading.spool)
    follow_file(reading.manifest, 2)
    assert [row["record"] for row in reading.rows] == ["one", "two"]


def test_a_flow_that_begins_asks_for_an_empty_spool(tmp_path: Path) -> None:
    reading = driver.stream(tmp_path)
    (tmp_path / "in.txt").write_text("one\n")
    follow_file(reading.manifest, 1)
    with pytest.raises(PermanentError, match="remove the folder, so that the connector begins, to"):
        drain_file(reading.manifest, "truncate")
    shutil.rmtree(reading.spool)
    drain_file(reading.manifest, "truncate")
    assert [row["record"] for row in reading.rows] == ["one"]


def test_a_part_that_is_gone_is_named(tmp_path: Path) -> None:
    reading = driver.stream(tmp_path)
    (tmp_path / "in.txt").write_text("one\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATAFLOW_FAILPOINT", "connect.read:raise")
        patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
        with pytest.raises(TransientError):
            drain_file(reading.manifest)
    (part,) = reading.spool.glob("*.parquet")
    part.unlink()
    with pytest.raises(PermanentError, match=r"part 1 of the spool \S+ is gone"):
        drain_file(reading.manifest)
