"""References to Kafka's own config providers: what they stand for reaches the connector alone."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.spark import jars
from tests.connectors.kafka_connect.driver import Flow, source
from tests.drained import drain_file, follow_file

pytestmark = pytest.mark.heavy

CLASS = "FileStreamSourceConnector"


def test_the_connector_gets_what_they_stand_for_and_no_log_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connector warns of a file that does not exist, with its name. Its jar is pinned."""
    monkeypatch.setenv("PLANTED_NAME", "planted-name")
    (tmp_path / "topic").write_text("from-a-folder")
    settings = tmp_path / "a.properties"
    settings.write_text(f"place = {tmp_path}/planted-place\n")
    given = {
        "config.providers": "mine",
        "config.providers.mine.class": "EnvVarConfigProvider",
        "config.providers.mine.param.allowlist.pattern": "PLANTED_.*",
        "topic": f"${{directory:{tmp_path}:topic}}",
    }
    reading = source(tmp_path, CLASS, given, tasksMax=1)
    file = f"${{file:{settings}:place}}/${{mine:PLANTED_NAME}}"
    (jar,) = (one for one in jars.lock_sets()["connect-plugins"] if one.artifact == "connect-file")
    reading["plugins"] = [{"maven": jar.coordinate, "sha256": jar.sha256}]
    reading["credentials"] = json.dumps({"file": file})
    flow = Flow(tmp_path, reading)
    with caplog.at_level(logging.INFO, "dataflow_assets"):
        drain_file(flow.manifest)
    assert "Couldn't find file *** for" in caplog.text
    assert "planted" not in caplog.text
    (tmp_path / "planted-place").mkdir()
    (tmp_path / "planted-place" / "planted-name").write_text("one\n")
    follow_file(flow.manifest, 1)
    assert [(row["topic"], row["record"]) for row in flow.rows] == [("from-a-folder", "one")]


def test_all_that_is_missing_is_named_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "s3cret")
    (tmp_path / "a.properties").write_text("a = s3cret\n")
    given = {
        "config.providers": "some",
        "config.providers.some.class": "EnvVarConfigProvider",
        "config.providers.some.param.allowlist.pattern": "NO.*",
        "topic": "${env:NOWHERE}-${env:PLANTED}",
        "file": f"${{file:{tmp_path}/b.properties:a}}",
        "x": f"${{file:{tmp_path}/a.properties:b}} ${{directory:{tmp_path}:none}}",
        "y": "${some:PLANTED}",
    }
    with pytest.raises(PermanentError) as caught:
        drain_file(Flow(tmp_path, source(tmp_path, CLASS, given)).manifest)
    told = str(caught.value)
    assert "config refers to values that are missing: " in told
    for reason in (
        "${env:NOWHERE}: the environment of the run has no NOWHERE;",
        f"${{file:{tmp_path}/b.properties:a}}: Could not read properties from file",
        f"${{file:{tmp_path}/a.properties:b}}: the file {tmp_path}/a.properties has no key b",
        f"${{directory:{tmp_path}:none}}: the folder {tmp_path} has no file none",
        "${some:PLANTED}: the environment of the run has no PLANTED, or allowlist.pattern does not",
    ):
        assert reason in told, told
    assert "s3cret" not in told
