"""Flows with several branches: one read, a checkpoint each, every record accounted for."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import MemorySliceSink, MemorySpanSink, Store
from dataflow_assets.contracts import (
    Address,
    Limit,
    Rejects,
    Run,
    Sink,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.replay import replay
from dataflow_assets.runs.request import Patience, Report, Request
from dataflow_assets.transforms.cast import Cast
from dataflow_assets.transforms.router import Router
from tests.contract.conftest import numbered
from tests.contract.drivers import MemoryOffsets, MemoryParts

ODD = "$.name =~ '[13579]$'"
SIX = "$.name =~ '6$'"


class Flaky(MemorySliceSink):
    """Down while the flag stands: at opening or in the task, as the flag says."""

    flag: Path

    def open(self, target: Target, run: Run) -> SinkSession:
        self._look("open")
        return super().open(target, run)

    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        self._look("task")
        return super().writer(ticket, piece)

    def _look(self, where: str) -> None:
        if self.flag.exists() and where in self.flag.read_text():
            kind = PermanentError if "for good" in self.flag.read_text() else TransientError
            raise kind("the sink is down")


class Hidden(Flaky):
    """Named by a Secret: its address is the same before and after it is resolved."""

    def address(self) -> Address:
        return replace(super().address(), name="secret/key")

    def resolved_address(self) -> Address:
        return super().address()


def router(*conditions: str) -> tuple[Transformation, ...]:
    routes = [{"condition": c, "sink": {"type": "x", "config": {"a": 1}}} for c in conditions]
    return (Transformation(Router.model_validate({"routes": routes})),)


class Branched:
    """A topic, a main table for even numbers but six, one for odd ones, one for sixes."""

    def __init__(self, engine: SparkSession, source: MemoryOffsets | MemoryParts) -> None:
        self.source = source
        self.engine = engine
        self.name = f"branched-{uuid.uuid4().hex[:8]}"
        self.store = Store(self.name)
        self.store.create()
        self.sinks: list[Sink] = [
            MemorySliceSink(store=self.name, table="even"),
            MemorySpanSink(store=self.name, table="odd"),
            MemorySliceSink(store=self.name, table="six"),
        ]
        self.limit = 1_000_000
        self.routes: tuple[str | None, ...] = (None, ODD, SIX)
        self.transformations = router(ODD, SIX)

    def flow(self) -> Flow:
        branches = tuple(
            Branch(sink, routes=(way,)) for sink, way in zip(self.sinks, self.routes, strict=True)
        )
        return Flow(
            "contract",
            self.name,
            self.source.declare(),
            branches,
            Policies(limit=Limit(records=self.limit)),
            self.transformations,
            hash="h1",
        )

    def drain(self, patience: float = 20) -> list[Report]:
        order = Request(run=Run(), patience=Patience(patience, 0.01, 0.05))
        return list(drain(self.flow(), lambda: self.engine, order))

    def rows(self, table: str) -> list[int]:
        found = self.store.query("select row from rows where name = ?", table)
        return sorted(json.loads(row)["id"] for (row,) in found)

    def expect(self, top: int) -> None:
        assert self.rows("odd") == [n for n in range(1, top) if n % 2]
        assert self.rows("six") == [n for n in range(1, top) if n % 10 == 6]
        assert self.rows("even") == [n for n in range(1, top) if n % 2 == 0 and n % 10 != 6]


@pytest.fixture(params=[MemoryOffsets, MemoryParts], ids=["offsets", "parts"])
def branched(request: pytest.FixtureRequest, engine: SparkSession) -> Iterator[Branched]:
    case = Branched(engine, request.param(request))
    yield case
    case.store.remove()


@pytest.fixture
def topic(request: pytest.FixtureRequest, engine: SparkSession) -> Iterator[Branched]:
    case = Branched(engine, MemoryOffsets(request))
    yield case
    case.store.remove()


@pytest.mark.parametrize("down", ["task", "task, for good"])
def test_a_branch_that_a_secret_names_is_set_aside_alone(
    topic: Branched, tmp_path: Path, down: str
) -> None:
    """What fails in its tasks is its own error, although tasks know it by what the Secret holds."""
    flag = tmp_path / "flag"
    flag.write_text(down)
    topic.sinks[1] = Hidden(store=topic.name, table="odd", flag=flag)
    topic.source.seed(numbered(1, 11))
    with pytest.raises(DataflowError, match="the sink is down"):
        topic.drain(patience=0.2)
    assert topic.rows("even") == [2, 4, 8, 10]
    flag.unlink()
    topic.drain()
    topic.expect(11)


def test_a_flow_whose_only_branch_a_secret_names_ends_with_its_error(
    topic: Branched, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    flag.write_text("task, for good")
    topic.sinks, topic.routes = [Hidden(store=topic.name, table="all", flag=flag)], (None,)
    topic.transformations = ()
    topic.source.seed(numbered(1, 5))
    with pytest.raises(PermanentError, match="the sink is down"):
        topic.drain(patience=0.2)


def test_each_record_goes_to_one_branch(branched: Branched) -> None:
    branched.source.seed(numbered(1, 41))
    reports = branched.drain()
    branched.expect(41)
    assert sum(report.delta.rows for report in reports) == 40
    branched.source.seed(numbered(41, 55))
    branched.limit = 3
    branched.drain()
    branched.expect(55)


def test_reordering_routes_changes_nothing(branched: Branched) -> None:
    branched.source.seed(numbered(1, 20))
    branched.drain()
    flow = branched.flow()
    branched.source.seed(numbered(20, 41))
    turned = Flow(
        flow.namespace,
        flow.name,
        flow.source,
        (flow.branches[0], flow.branches[2], flow.branches[1]),
        flow.policies,
        flow.transformations,
        hash="h2",
    )
    list(drain(turned, lambda: branched.engine, Request(run=Run())))
    branched.expect(41)


@pytest.fixture
def flag(tmp_path: Path, branched: Branched) -> Path:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    path = tmp_path / "flag"
    branched.sinks[2] = Flaky(store=branched.name, table="six", flag=path)
    return path


@pytest.mark.parametrize("where", ["open", "task"])
def test_a_branch_that_is_down_does_not_hold_the_others(
    branched: Branched, flag: Path, where: str
) -> None:
    branched.source.seed(numbered(1, 20))
    branched.drain()
    branched.source.seed(numbered(20, 60))
    flag.write_text(where)
    with pytest.raises(TransientError, match="memory:six was suspended: the sink is down"):
        branched.drain(patience=2)
    assert branched.rows("odd") == [n for n in range(1, 60) if n % 2]
    assert branched.rows("six") == [6, 16]
    branched.source.seed(numbered(60, 70))
    flag.unlink()
    branched.drain()
    branched.expect(70)


def test_a_branch_comes_back_in_the_same_run(branched: Branched, flag: Path) -> None:
    branched.source.seed(numbered(1, 40))
    flag.write_text("task")
    order = Request(run=Run(), patience=Patience(60, 0.2, 0.5))
    for report in drain(branched.flow(), lambda: branched.engine, order):
        if report.branch.address.name == "odd" and branched.rows("odd"):
            flag.unlink(missing_ok=True)
    branched.expect(40)


@pytest.mark.parametrize("seconds", [None, 2.0], ids=["to the end", "for a while"])
def test_a_branch_that_is_back_with_nothing_to_read_is_opened_once(
    branched: Branched, flag: Path, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt asks all servers, and takes another epoch of all branches."""
    branched.source.seed(numbered(1, 20))
    branched.drain()
    flag.write_text("open")
    down, real = list[bool](), Flaky.open

    def opening(self: Flaky, target: Target, run: Run) -> SinkSession:
        down.append(flag.exists())
        try:
            return real(self, target, run)
        finally:
            flag.unlink(missing_ok=True)

    monkeypatch.setattr(Flaky, "open", opening)
    order = Request(run=Run(), seconds=seconds, patience=Patience(5, 0.01, 0.05))
    list(drain(branched.flow(), lambda: branched.engine, order))
    assert down == [True, False]


def test_a_branch_that_fails_for_good_ends_the_run_after_the_others(
    branched: Branched, flag: Path
) -> None:
    branched.source.seed(numbered(1, 40))
    flag.write_text("task, for good")
    with pytest.raises(PermanentError, match="The other branches went on"):
        branched.drain()
    assert len(branched.rows("odd")) == 20
    assert branched.rows("six") == []


def test_a_branch_that_is_back_goes_on_when_another_one_fails_for_good(
    topic: Branched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not committed yet: all that tells that it works is that it was opened."""
    main, six = tmp_path / "main", tmp_path / "six"
    topic.sinks = [
        Flaky(store=topic.name, table="even", flag=main),
        Flaky(store=topic.name, table="six", flag=six),
    ]
    topic.routes, topic.transformations, topic.limit = (None, SIX), router(SIX), 5
    topic.source.seed(numbered(1, 20))
    main.write_text("open")
    real = Flaky.open

    def opening(self: Flaky, target: Target, run: Run) -> SinkSession:
        if self.flag == main and not main.exists():
            six.write_text("open, for good")
        try:
            return real(self, target, run)
        finally:
            main.unlink(missing_ok=True)

    monkeypatch.setattr(Flaky, "open", opening)
    with pytest.raises(PermanentError, match="memory:six was suspended: the sink is down"):
        topic.drain()
    assert topic.rows("even") == [n for n in range(1, 20) if n % 10 != 6]


@pytest.mark.parametrize("wait", [0.01, 0.6], ids=["in one attempt", "one waits"])
def test_a_branch_comes_back_though_another_one_fails_for_good_before(
    waiting: Branched, wait: float
) -> None:
    """All that tells that it may work is that its time is not over."""
    with pytest.raises(PermanentError, match=r"memory:even was suspended: .+ branches went on"):
        list(drain(waiting.flow(), lambda: waiting.engine, _patient(20, wait)))
    assert (waiting.rows("six"), waiting.rows("even")) == ([6, 16], [])


def test_a_branch_that_fails_for_good_is_told_where_the_last_one_gives_up(
    waiting: Branched, tmp_path: Path
) -> None:
    (tmp_path / "stays").touch()
    with pytest.raises(PermanentError) as caught:
        list(drain(waiting.flow(), lambda: waiting.engine, _patient(0.5, 0.01)))
    assert "without progress: the sink is down" in str(caught.value)
    assert "Before that, memory:even was suspended: the sink is down" in str(caught.value)
    assert caught.value.suspended == ("memory:even",), "only this one waits for long"
    assert waiting.rows("six") == []


def test_a_run_that_waits_for_its_last_branch_ends_when_it_is_asked_to(
    waiting: Branched, tmp_path: Path
) -> None:
    order = replace(
        _patient(600, 600), stop=lambda: "enough" if (tmp_path / "tried").exists() else None
    )
    with pytest.raises(PermanentError) as caught:
        list(drain(waiting.flow(), lambda: waiting.engine, order))
    assert "memory:even was suspended: the sink is down; memory:six was" in str(caught.value)
    assert set(caught.value.suspended) == {branch.id for branch in waiting.flow().branches}


def test_a_run_that_is_asked_to_end_does_not_wait_for_an_outage(waiting: Branched) -> None:
    order = replace(_patient(600, 600), stop=lambda: "enough")
    with pytest.raises(TransientError, match="the sink is down"):
        list(drain(waiting.flow(), lambda: waiting.engine, order))


def _patient(seconds: float, wait: float) -> Request:
    return Request(run=Run(), patience=Patience(seconds, wait, wait))


@pytest.fixture
def waiting(topic: Branched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Branched:
    """The second branch is down when it is opened first; then the first one fails for good."""
    main, six, stays = (tmp_path / name for name in ("main", "six", "stays"))
    topic.sinks = [
        Flaky(store=topic.name, table="even", flag=main),
        Flaky(store=topic.name, table="six", flag=six),
    ]
    topic.routes, topic.transformations = (None, SIX), router(SIX)
    topic.source.seed(numbered(1, 20))
    six.write_text("open")
    real = Flaky.open

    def opening(self: Flaky, target: Target, run: Run) -> SinkSession:
        try:
            return real(self, target, run)
        finally:
            if self.flag == six:
                main.write_text("open, for good")
                if not stays.exists():
                    six.unlink(missing_ok=True)
            elif main.exists():
                (tmp_path / "tried").touch()

    monkeypatch.setattr(Flaky, "open", opening)
    return topic


@pytest.mark.crash
@pytest.mark.parametrize("nth", range(1, 6))
def test_a_failure_between_the_commits_of_branches(
    branched: Branched, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each branch then has parts, or partitions, that others lack."""
    branched.limit = 15
    branched.source.seed(numbered(1, 50))
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"memory.committed:raise:{nth}")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    branched.drain()
    branched.expect(50)


def test_an_error_of_the_source_while_it_cuts_parts_is_no_branch_s(
    engine: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Branched(engine, MemoryParts(request))
    request.addfinalizer(case.store.remove)
    case.source.seed(numbered(1, 50))
    with monkeypatch.context() as patch:
        patch.setenv("DATAFLOW_FAILPOINT", "drain.begun:raise")
        patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
        with pytest.raises(TransientError):
            case.drain(patience=0)

    def smaller(*_: object) -> None:
        raise PermanentError("the source is broken")

    case.limit = 15
    monkeypatch.setattr(type(case.source.declare().open("f")), "smaller", smaller)
    with pytest.raises(PermanentError) as caught:
        case.drain()
    assert (str(caught.value), caught.value.branch) == ("the source is broken", None)


def test_a_branch_that_is_added_later_reads_from_the_beginning(branched: Branched) -> None:
    branched.source.seed(numbered(1, 30))
    six = branched.sinks.pop()
    branched.sinks.append(MemorySliceSink(store=branched.name, table="other"))
    branched.drain()
    branched.sinks[2] = six
    branched.source.seed(numbered(30, 50))
    branched.drain()
    branched.expect(50)


def test_a_table_is_made_with_its_first_record(branched: Branched) -> None:
    branched.sinks[2] = MemorySliceSink(store=branched.name, table="six", exists=False)
    branched.source.seed(numbered(1, 5))
    branched.drain()
    branched.source.seed(numbered(5, 30))
    branched.drain()
    branched.expect(30)


def test_a_table_is_made_where_only_later_parts_reach_it(branched: Branched) -> None:
    branched.sinks[2] = MemorySliceSink(store=branched.name, table="six", exists=False)
    branched.source.seed(numbered(7, 30))
    branched.drain()
    assert branched.rows("six") == [16, 26]


def test_a_record_that_a_step_rejects_is_rejected_once_by_the_main_branch(
    topic: Branched,
) -> None:
    cast = Cast.model_validate({"spec": {"name": "int64"}})
    only_six = Condition.parse("$.id == 6")
    topic.transformations += (Transformation(cast, only_six),)
    topic.source.seed(numbered(1, 20), raw=[b'{"id": 99, "name": "\\ud800"}'])
    topic.drain()
    assert topic.rows("six") == [16]
    found = sorted(topic.store.query("select name, reason from rejected"))
    assert [name for name, _ in found] == ["even", "even"]
    assert "cannot be kept exactly" in found[0][1]
    assert found[1][1] == "transformations[1] (cast): name: must be a whole number of 64 bits"


@pytest.mark.parametrize("which", [1, 2], ids=["span", "slice"])
def test_what_a_sink_refuses_is_replayed_with_its_metadata(topic: Branched, which: int) -> None:
    """The route of the record was chosen by the message's key: without it it would go elsewhere."""
    here = "metadata.key == 'here'"
    routes = [{"condition": here, "sink": {"type": "x", "config": {"a": 1}}}]
    topic.transformations = (Transformation(Router.model_validate({"routes": routes})),)
    topic.source.seed(numbered(1, 9))
    message = ("t", 0, 4, b"here", b'{"id": -1, "name": "refused"}')
    topic.source.store.query("insert into messages values (?, ?, ?, ?, ?)", *message)
    sink = topic.sinks[which]
    branches = (Branch(topic.sinks[0]), Branch(sink, routes=(here,)))
    errors = MemorySliceSink(store=topic.name, table="bad")
    policies = Policies(rejects=Rejects("errors", errors))
    flow = replace(topic.flow(), branches=branches, policies=policies)
    list(drain(flow, lambda: topic.engine, Request(run=Run())))
    (again,) = replay(flow, lambda: topic.engine, Run())
    assert (again.entries, again.rows, again.rejected_again) == (1, 0, 1)
    found = [json.loads(body) for (body,) in topic.store.query("select body from errors")]
    told = {one["error"]["attempt"]: one["error"]["metadata"] for one in found}
    assert [told[n]["key"] for n in (1, 2)] == ["here", "here"]
    assert [told[n]["offset"] for n in (1, 2)] == [4, 4]
    mended = sink.model_copy(update={"allowed": frozenset([-1])})
    flow = replace(flow, branches=(flow.branches[0], replace(flow.branches[1], sink=mended)))
    (done,) = replay(flow, lambda: topic.engine, Run())
    assert (done.entries, done.rows, done.rejected_again) == (1, 1, 0)
    assert topic.rows(sink.address().name) == [-1]
