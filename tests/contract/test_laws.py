"""The laws that every source and every sink keeps."""

from __future__ import annotations

import tempfile
import time
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dataflow_assets import registry
from dataflow_assets.contracts import Limit
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.runs.request import Start
from tests.contract import SINKS, SOURCES
from tests.contract.conftest import Case, numbered
from tests.contract.drivers import MemoryOffsets, SourceDriver

SINK_FAILPOINTS = [
    (sink, name) for sink, driver in sorted(SINKS.items()) for name in driver.failpoints
]
OWN_FAILPOINTS = [(sink, name) for sink, name in SINK_FAILPOINTS if not name.startswith("drain.")]
"""Without those of the loop, which are the same for offsets and parts."""
OF_MEMORY = [
    pytest.param(sink, marks=() if sink.startswith("memory-") else pytest.mark.full)
    for sink in sorted(SINKS)
]
"""For a law of the loop: that each sink counts what it rejects is a law of its own."""


def test_every_connector_has_a_driver() -> None:
    assert set(SOURCES) == set(registry.sources())
    assert {driver.type for driver in SINKS.values()} == set(registry.sinks())


@pytest.mark.parametrize(
    "source", [name for name in sorted(SOURCES) if not name.startswith("memory-")], indirect=True
)
def test_a_record_s_metadata_is_what_the_docs_list(source: SourceDriver) -> None:
    source.seed(numbered(1, 4))
    declared = source.declare()
    with closing(declared.open("docs")) as session:
        deadline = time.monotonic() + 120
        while not (slices := session.plan(session.start(), Limit()).slices):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        piece = slices[0]
    found = {*declared.metadata(piece), *declared.metadata_columns}
    if declared.delivers == "messages":
        found.add("offset")
    assert found == set(declared.metadata_keys)


def test_drains_everything_once_and_resumes(case: Case) -> None:
    case.source.seed(numbered(1, 40))
    reports = case.drain()
    case.expect(numbered(1, 40))
    assert sum(report.delta.rows for report in reports) == 39
    assert reports[-1].last
    assert reports[-1].lag.records == 0
    case.source.seed(numbered(40, 55))
    case.drain()
    case.expect(numbered(1, 55))
    assert case.totals().rows == 54


def test_nothing_new_is_nothing_done(case: Case) -> None:
    case.drain()
    case.source.seed(numbered(1, 4))
    case.drain()
    reports = case.drain()
    assert [report.delta.rows for report in reports] == [0]
    case.expect(numbered(1, 4))


def test_small_spans_add_up(case: Case) -> None:
    case.limit = 3  # of a slice; a span has several
    case.source.seed(numbered(1, 26))
    reports = case.drain()
    assert len(reports) > 3 or not case.source.small_spans
    case.expect(numbered(1, 26))
    assert case.totals().rows == 25


def test_one_bad_record_is_rejected_and_the_others_arrive(sink_case: Case) -> None:
    sink_case.source.seed(numbered(1, 60), raw=sink_case.sink.bad)
    sink_case.drain()
    sink_case.expect(numbered(1, 60))
    assert len(sink_case.sink.rejected()) == 3
    assert sink_case.totals().rejected == 3
    sink_case.drain()
    assert len(sink_case.sink.rejected()) == 3


def test_rejecting_nearly_everything_stops_the_flow(sink_case: Case) -> None:
    sink_case.source.seed([], raw=[sink_case.sink.bad[0]] * 3_000)
    with pytest.raises(PermanentError, match="maxRejectedPercent 10"):
        sink_case.drain()
    sink_case.expect([])


def _armed(failpoint: str, action: str, patch: pytest.MonkeyPatch) -> Path:
    """The file that has a byte for each time that the step was reached."""
    token = uuid.uuid4().hex
    patch.setenv("DATAFLOW_FAILPOINT", f"{failpoint}:{action}")
    patch.setenv("DATAFLOW_FAILPOINT_TOKEN", token)
    return Path(tempfile.gettempdir(), f"dataflow-failpoint-{failpoint}-{token}")


@pytest.mark.crash
@pytest.mark.parametrize(("sink", "failpoint"), SINK_FAILPOINTS, indirect=["sink"])
def test_a_failure_at_every_step_neither_loses_nor_doubles(
    sink_case: Case, failpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink_case.limit = 15
    sink_case.source.seed(numbered(1, 32))
    reached = _armed(failpoint, "raise", monkeypatch)
    reports = sink_case.drain()
    assert reached.stat().st_size >= 1
    sink_case.expect(numbered(1, 32))
    assert sink_case.totals().rows == 31
    assert sum(report.delta.rows for report in reports) == 31


@pytest.mark.crash
@pytest.mark.parametrize(("sink", "failpoint"), OWN_FAILPOINTS, indirect=["sink"])
def test_a_failure_at_every_step_of_a_read_in_parts(
    parts_case: Case, failpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts_case.limit = 15
    parts_case.source.seed(numbered(1, 32))
    reached = _armed(failpoint, "raise:2", monkeypatch)
    reports = parts_case.drain()
    assert reached.stat().st_size >= 2
    parts_case.expect(numbered(1, 32))
    assert parts_case.totals().rows == 31
    assert sum(report.delta.rows for report in reports) == 31


def test_rewinding_an_append_table_must_be_confirmed(sink_case: Case) -> None:
    sink_case.source.seed(numbered(1, 5))
    sink_case.drain()
    if sink_case.sink.upserts:
        sink_case.drain(Start("earliest"))
        sink_case.expect(numbered(1, 5))
    else:
        with pytest.raises(PermanentError, match="twice"):
            sink_case.drain(Start("earliest"))
    sink_case.drain(Start("earliest", table="truncate"))
    sink_case.expect(numbered(1, 5))


def test_a_rejected_record_of_another_topic_at_the_same_offset_is_stored_too(
    sink_case: Case,
) -> None:
    source = sink_case.source
    assert isinstance(source, MemoryOffsets)
    source.seed([], raw=[b"first"])
    sink_case.drain()
    source.recreate()
    source.seed([], raw=[b"second"])
    sink_case.drain(on_topic_recreated="restart")
    assert len(sink_case.sink.rejected()) == 2


def test_less_than_was_visible_at_start_is_not_the_end(
    request: pytest.FixtureRequest, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(
        MemoryOffsets(request), SINKS["memory-slice"](request), engine, "less", patience=0.5
    )
    case.source.seed(numbered(1, 9))
    session = type(case.source.declare().open("f"))
    real, shown = session.end, iter([{"0": 6, "1": 4}])
    monkeypatch.setattr(session, "end", lambda self: next(shown, None) or real(self))
    with pytest.raises(TransientError, match="shows less than when the run began"):
        case.drain()
    case.expect(numbered(1, 9))


@pytest.mark.parametrize("failure", ["drain.finished:raise:1", "drain.passed:raise:2"])
@pytest.mark.parametrize("sink", OF_MEMORY, indirect=True)
def test_the_share_of_rejected_records_is_of_the_run_not_of_its_attempts(
    sink_case: Case, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two micro-batches, each of which holds too few to be judged by, in two attempts."""
    sink_case.limit = 300
    sink_case.source.seed([], raw=[sink_case.sink.bad[0]] * 1_200)
    monkeypatch.setenv("DATAFLOW_FAILPOINT", failure)
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    with pytest.raises(PermanentError, match="1200 of 1200 records of this run were rejected"):
        sink_case.drain()


@pytest.mark.parametrize("sink", ["memory-slice"], indirect=True)
@pytest.mark.parametrize("source", ["kafka", "memory-offsets"], indirect=True)
def test_offsets_of_a_partition_that_does_not_exist_are_not_stored(case: Case) -> None:
    case.source.seed(numbered(1, 9))
    case.drain()
    wrong = Start("offsets", offsets={"0": 1, "7": 3}, confirmed=True)
    with pytest.raises(PermanentError) as caught:
        case.drain(wrong)
    assert "start: offsets names partition 7" in str(caught.value)
    assert str(caught.value).endswith("has partitions 0, 1")
    case.drain()
    case.expect(numbered(1, 9))
    case.drain(replace(wrong, offsets={"0": 3, "1": 4}))
    case.expect([*numbered(1, 9), (7, "name-7")])
