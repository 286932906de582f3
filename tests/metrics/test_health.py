"""Probes of lanes and of the location, with the DataFlow Operator's paths and meaning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from dataflow_assets.cli.metrics import health
from dataflow_assets.metrics import process
from dataflow_assets.metrics.declarations import LANE_PROGRESS
from dataflow_assets.metrics.health import TIMEOUT, Health
from dataflow_assets.metrics.recorder import Recorder
from dataflow_assets.metrics.serving import ADDRESS, serving, serving_lane
from dataflow_assets.metrics.store import MetricsStore

STUCK = "stale: no pipeline progress"


@pytest.fixture
def own() -> Iterator[Recorder]:
    """The recorder of a process that has counted nothing yet."""
    process._recorder_of.cache_clear()
    yield process.recorder()
    process._recorder_of.cache_clear()


def test_a_process_is_ready_once_a_source_was_read_and_live_while_there_is_progress() -> None:
    process = Health()
    assert [process(path) for path in ("/readyz", "/livez")] == ["not ready"] * 2
    assert process("/healthz") == "ok"
    process.note_progress()
    assert [process(path) for path in ("/readyz", "/livez")] == ["ok"] * 2
    process.progressed = time.time() - 601
    assert [process(path) for path in ("/readyz", "/livez")] == ["ok", STUCK]


@pytest.mark.parametrize("text", ["0", "-1", "no number"])
def test_without_a_timeout_no_process_is_stuck(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT, text)
    process = Health()
    process.progressed = 1.0
    assert process("/livez") == "ok"


def test_answers_over_http() -> None:
    process = Health()
    with serving("127.0.0.1", 0, CollectorRegistry(), process) as port:
        with pytest.raises(HTTPError) as refused, urlopen(f"http://127.0.0.1:{port}/livez"):
            pass
        assert (refused.value.code, refused.value.read()) == (503, b"not ready")
        refused.value.close()
        process.note_progress()
        with urlopen(f"http://127.0.0.1:{port}/livez") as answer:
            assert (answer.status, answer.read()) == (200, b"ok")
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.status == 200


def test_a_lane_whose_port_is_taken_is_driven_all_the_same(
    own: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving("127.0.0.1", 0, CollectorRegistry(), Health()) as port:
        monkeypatch.setenv(ADDRESS, f"127.0.0.1:{port}")
        with serving_lane("shared"):
            assert own.health.lane == "shared"
    assert "the lane shared answers no probes" in caplog.text


def test_the_location_is_stuck_where_a_lane_that_lives_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_METRICS", str(tmp_path))
    assert health([tmp_path], "/livez") == "ok"
    assert health([tmp_path / "gone"], "/readyz") == "not ready"
    lane = Recorder(MetricsStore(tmp_path))
    lane.set(LANE_PROGRESS, "shared", value=time.time() - 601)
    lane.flush()
    assert [health([tmp_path], path) for path in ("/readyz", "/livez")] == ["ok", STUCK]
