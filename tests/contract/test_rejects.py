"""What becomes of rejected records: error sinks, skipping, and flows that stop at a record."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets import failpoints
from dataflow_assets.connectors.memory import MemorySliceSink, MemorySpanSink, Store
from dataflow_assets.contracts import Rejects, Run, Sink
from dataflow_assets.errors import PermanentError, Stopped, TransientError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.records.chain import Transformation
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.replay import Replayed, replay
from dataflow_assets.runs.request import Patience, Report, Request
from dataflow_assets.sdk.rejected_records import HELD
from dataflow_assets.transforms.cast import Cast
from dataflow_assets.transforms.flatten import Flatten
from tests.contract.conftest import numbered
from tests.contract.drivers import MemoryOffsets


class Rejecting:
    """A topic, a table that refuses negative ids, and an error sink."""

    def __init__(
        self, request: pytest.FixtureRequest, engine: SparkSession, sink: type[Sink]
    ) -> None:
        self.source = MemoryOffsets(request)
        self.engine = engine
        self.name = f"rejecting-{uuid.uuid4().hex[:8]}"
        self.store = Store(self.name)
        self.store.create()
        self.sink = sink(store=self.name, table="good")  # type: ignore[call-arg]
        self.elsewhere = Store(f"{self.name}-errors")
        self.errors = MemorySliceSink(store=f"{self.name}-errors", table="bad")

    def flow(self, rejects: Rejects) -> Flow:
        branches = (Branch(self.sink),)
        policies = Policies(rejects=rejects)
        return Flow("contract", self.name, self.source.declare(), branches, policies, hash="h")

    def drain(self, rejects: Rejects, seconds: float | None = None) -> list[Report]:
        order = Request(run=Run(), seconds=seconds, patience=Patience(10, 0.01, 0.05))
        return list(drain(self.flow(rejects), lambda: self.engine, order))

    def replay(self, rejects: Rejects) -> list[Replayed]:
        failpoints.arm(failpoints.from_environment())
        return list(replay(self.flow(rejects), lambda: self.engine, Run()))

    def rows(self) -> list[int]:
        return sorted(json.loads(row)["id"] for (row,) in self.store.query("select row from rows"))

    def stored(self) -> list[dict[str, Any]]:
        found = self.elsewhere.query("select body, metadata from errors order by id")
        return [{**json.loads(body), "metadata": json.loads(meta)} for body, meta in found]


@pytest.fixture(params=[MemorySliceSink, MemorySpanSink], ids=lambda sink: sink.type)
def case(request: pytest.FixtureRequest, engine: SparkSession) -> Iterator[Rejecting]:
    case = Rejecting(request, engine, request.param)
    yield case
    case.store.remove()
    case.elsewhere.remove()


def test_an_error_sink_gets_each_rejected_record_once(case: Rejecting) -> None:
    case.source.seed([*numbered(1, 20), (-1, "refused")], raw=[b"no json", b'{"id": "x"}'])
    reports = case.drain(Rejects("errors", case.errors))
    assert case.rows() == list(range(1, 20))
    assert sum(report.delta.rejected for report in reports) == 3
    by_stage = {one["error"]["stage"] + one["error"]["message"][:6]: one for one in case.stored()}
    assert len(by_stage) == 3
    refused = next(one for one in by_stage.values() if one["error"]["stage"] == "sink")
    assert refused["original_message"] == {"id": -1, "name": "refused"}
    text = next(one for one in by_stage.values() if "original_data" in one["original_message"])
    assert text["original_message"] == {"original_data": "no json"}
    error = text["error"]
    assert error["original_sink"] == "memory"
    assert error["type"] == "invalid_data"
    assert error["attempt"] == 1
    assert error["flow"] == case.flow(Rejects()).id
    assert error["source"]["offset"] == error["metadata"]["offset"]
    assert error["metadata"].keys() == {"topic", "partition", "offset"}  # bodies only were read
    assert text["metadata"]["is_error_message"] is True
    assert text["metadata"]["original_sink"] == "memory"
    case.drain(Rejects("errors", case.errors))
    assert len(case.stored()) == 3


@pytest.mark.parametrize("point", ["memory.errors", "memory.before-commit", "memory.committed"])
def test_a_crash_around_the_commit_stores_each_error_once(
    case: Rejecting, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.source.seed([*numbered(1, 20), (-1, "refused"), (-2, "refused too")])
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{point}:raise")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    case.drain(Rejects("errors", case.errors))
    assert case.rows() == list(range(1, 20))
    assert len(case.stored()) == 2


def test_an_error_sink_in_the_same_place_shares_the_commit(case: Rejecting) -> None:
    case.errors = MemorySliceSink(store=case.name, table="bad")
    case.elsewhere = case.store
    case.source.seed([*numbered(1, 20), (-1, "refused")])
    case.drain(Rejects("errors", case.errors))
    assert case.rows() == list(range(1, 20))
    assert len(case.stored()) == 1


def test_skipped_records_are_counted_and_logged(
    case: Rejecting, caplog: pytest.LogCaptureFixture
) -> None:
    case.source.seed([*numbered(1, 20), (-1, "refused")])
    reports = case.drain(Rejects("skip"))
    assert case.rows() == list(range(1, 20))
    assert sum(report.delta.rejected for report in reports) == 1
    assert case.store.query("select count(*) from rejected") == [(0,)]


@pytest.mark.parametrize("seconds", [None, 30.0], ids=["draining", "continuous"])
def test_a_flow_stops_at_the_record(case: Rejecting, seconds: float | None) -> None:
    rows = numbered(1, 41)
    rows[20] = (-21, "refused")
    case.source.seed(rows)
    place = r"stops at .*, partition 0, offset 10, .*id is negative"
    advice = r"; .*onRejected: table .*onRejected: skip .*errors"
    with pytest.raises(Stopped, match=place + advice):
        case.drain(Rejects("fail"), seconds)
    found = case.rows()
    before = [row[0] for row in rows[:20:2]]
    others = [row[0] for row in rows[1::2]]
    assert found == sorted(before + others)
    case.drain(Rejects("skip"))
    assert case.rows() == [n for n in range(1, 41) if n != 21]


def test_with_never_the_record_is_in_the_error_sink_and_the_flow_stops(case: Rejecting) -> None:
    rows = numbered(1, 41)
    rows[20] = (-21, "refused")
    case.source.seed(rows)
    rejects = Rejects("errors", case.errors, holds=True)
    for _ in range(2):
        with pytest.raises(Stopped, match="it is in the error sink"):
            case.drain(rejects)
    assert len(case.stored()) == 1
    goes_on = replace(rejects, holds=False)
    case.drain(goes_on)
    assert len(case.rows()) == 39
    entry, held = (one["error"]["id"] for one in case.stored())
    assert held == f"{entry}{HELD}"
    _mended(case, [-21])
    assert [(one.entries, one.rows) for one in case.replay(goes_on)] == [(1, 1)]
    assert case.replay(goes_on) == []
    assert len(case.rows()) == 40


def test_what_the_flow_stored_after_it_had_stopped_there_is_not_replayed(case: Rejecting) -> None:
    case.source.seed([*numbered(1, 20), (-1, "refused")])
    rejects = Rejects("errors", case.errors, holds=True)
    with pytest.raises(Stopped):
        case.drain(rejects)
    goes_on = replace(rejects, holds=False)
    assert case.replay(goes_on) == []  # nor before: the flow would store it once more
    _mended(case, [-1])
    case.drain(rejects)
    assert len(case.stored()) == 1
    assert case.replay(goes_on) == []
    assert case.rows() == [-1, *range(1, 20)]


def _mended(case: Rejecting, ids: list[int]) -> None:
    """The cause is gone: the in-memory table takes these ids from now on."""
    case.sink = case.sink.model_copy(update={"allowed": frozenset(ids)})


def test_a_replay_puts_entries_back_once(case: Rejecting) -> None:
    rejects = Rejects("errors", case.errors)
    case.source.seed([*numbered(1, 20), (-1, "refused"), (-2, "refused too")])
    case.drain(rejects)
    _mended(case, [-1])
    done = case.replay(rejects)
    assert [(one.entries, one.rows, one.rejected_again) for one in done] == [(2, 1, 1)]
    assert case.rows() == [-1, *range(1, 20)]
    again = next(one for one in case.stored() if one["error"]["attempt"] == 2)
    assert again["original_message"]["id"] == -2
    _mended(case, [-1, -2])
    assert [(one.entries, one.rows) for one in case.replay(rejects)] == [(1, 1)]
    assert case.rows() == [-2, -1, *range(1, 20)]
    assert case.replay(rejects) == []


@pytest.mark.parametrize(
    "point", ["memory.begin", "replay.begun", "memory.finished", "replay.passed", "memory.finish"]
)
def test_a_replay_that_is_cut_off_puts_nothing_back_twice(
    case: Rejecting, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejects = Rejects("errors", case.errors)
    case.source.seed([*numbered(1, 5), (-1, "refused"), (-2, "refused too")])
    case.drain(rejects)
    _mended(case, [-1, -2])
    with monkeypatch.context() as patch:
        patch.setenv("DATAFLOW_FAILPOINT", f"{point}:raise")
        patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
        with pytest.raises(TransientError):
            case.replay(rejects)
    case.source.seed([(-3, "refused")])
    case.drain(rejects)
    case.replay(rejects)
    assert [one.rows for one in case.replay(rejects)] == [0]  # what is refused still waits
    assert case.rows() == [-2, -1, *range(1, 5)]


def test_a_flow_that_keeps_nothing_has_nothing_to_replay(case: Rejecting) -> None:
    with pytest.raises(PermanentError, match="keeps no rejected records"):
        case.replay(Rejects("skip"))


def test_rows_of_one_entry_that_are_rejected_again_are_entries_of_their_own(
    case: Rejecting,
) -> None:
    flow = case.flow(Rejects("errors", case.errors))
    flatten = Transformation(Flatten.model_validate({"field": "rows"}))
    cast = Transformation(Cast.model_validate({"spec": {"name": "int64"}}))
    rows = b'[{"id": -1}, {"id": 7}, {"id": -2}]'
    case.source.seed([], raw=[b'{"name": "no number", "rows": ' + rows + b"}"])
    failing = replace(flow, transformations=(cast, flatten))
    list(drain(failing, lambda: case.engine, Request(run=Run())))
    mended = replace(flow, transformations=(flatten,))
    (again,) = replay(mended, lambda: case.engine, Run())
    assert (again.entries, again.rows, again.rejected_again) == (1, 1, 2)
    ends = sorted(one["error"]["id"].partition("#")[2] for one in case.stored())
    assert ends == ["", "attempt-2", "attempt-2.2"]
    assert [one["error"]["attempt"] for one in case.stored()] == [1, 2, 2]
    _mended(case, [-1, -2])
    flow = replace(case.flow(Rejects("errors", case.errors)), transformations=(flatten,))
    (done,) = replay(flow, lambda: case.engine, Run())
    assert (done.entries, done.rows, done.rejected_again) == (2, 2, 0)
    assert case.rows() == [-2, -1, 7]
