"""Who takes part in a lane, who leaves it, and that neither is any other's business."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import (
    MemoryOffsetSource,
    MemoryPartSource,
    MemorySliceSink,
    MemorySpanSink,
)
from dataflow_assets.connectors.memory.source.session import MemoryPartSession
from dataflow_assets.contracts import (
    PARTS,
    Limit,
    Rejects,
    SinkTraits,
    Slice,
    SourceTraits,
    Span,
    Ticket,
)
from dataflow_assets.contracts.reading import ReadsInOrder
from dataflow_assets.errors import Locked, PermanentError, Stopped, TransientError
from dataflow_assets.flow import Policies
from dataflow_assets.lanes import lane
from dataflow_assets.lanes.events import Began, Ended, Event
from dataflow_assets.lanes.joint_jobs import JointJobs
from dataflow_assets.lanes.lane import POLL_SECONDS
from dataflow_assets.lanes.member import AT_ONCE, Beside, LaneMember
from dataflow_assets.lanes.pace import PART
from dataflow_assets.languages.promises import PreparesSpans
from dataflow_assets.runs.request import Patience, Report, Request
from tests.clock import Clock
from tests.contract.conftest import numbered
from tests.contract.drivers import MemoryOffsets
from tests.contract.test_branches import Branched, Flaky
from tests.lanes.driving import Driving, threads_of

IN_PARTS = "dataflow_assets.connectors.memory.source.session._PARTS"  # of a plan
SOON = 25.0  # seconds: less than a lane waits for what does not come (30, 45 or 60)


def test_all_flows_are_driven_and_end_with_their_last_reports(memory: Any, drive: Any) -> None:
    flows = [
        memory(),
        memory(source=MemoryOffsetSource),
        memory(sink=MemorySpanSink),
        memory(source=MemoryOffsetSource, sink=MemorySpanSink, sink_options={"exists": False}),
    ]
    driven: Driving = drive(*[one.flow for one in flows])
    for rows in (10, 1, 200):
        for one in flows:
            one.produce(rows)
        driven.until(lambda: all(one.complete for one in flows), SOON)
    assert driven.lane.idle_seconds < SOON
    assert driven.end() < SOON
    for one in flows:
        *_, last = driven.reports(one.flow)
        assert (last.last, last.reason) == (True, "enough")
        assert sum(report.delta.rows for report in driven.reports(one.flow)) == 211
        assert [event.reason for event in driven.of(Ended, one.flow)] == ["enough"]
        assert driven.began(one.flow) == 1
    assert threads_of([one.flow for one in flows]) == []


def test_flows_come_and_go(memory: Any, drive: Any) -> None:
    stays, goes, comes = memory(), memory(), memory()
    driven: Driving = drive(stays.flow, goes.flow)
    driven.until(lambda: driven.began(goes.flow))
    driven.flows = [stays.flow, comes.flow]
    for one in (stays, goes, comes):
        one.produce(5)
    driven.until(lambda: stays.complete and comes.complete, SOON)
    driven.until(lambda: driven.of(Ended, goes.flow), SOON)
    assert "does not belong" in driven.of(Ended, goes.flow)[0].reason
    assert driven.lane.state(goes.flow) == "not in this lane"
    assert "freshness of 4 s" in driven.lane.state(stays.flow)
    driven.flows.append(goes.flow)
    goes.produce(5)
    driven.until(lambda: goes.complete, SOON)
    assert driven.began(stays.flow) == 1


def test_an_edited_manifest_ends_the_flow_and_begins_it_again(memory: Any, drive: Any) -> None:
    one = memory()
    driven: Driving = drive(one.flow)
    driven.until(lambda: driven.began(one.flow))
    driven.flows = [one.edited(freshness_seconds=3)]
    driven.until(lambda: driven.began(one.flow) == 2, SOON)
    kinds = [type(e) for e in driven.events if isinstance(e, Began | Ended)]
    assert kinds == [Began, Ended, Began]
    assert driven.of(Ended, one.flow)[0].reason == "its manifest has changed"
    assert "freshness of 3 s" in driven.lane.state(one.flow)
    one.produce(3)
    driven.until(lambda: one.complete, SOON)


class Broken(MemorySliceSink):
    """Takes nothing while the flag stands."""

    flag: Path

    def open(self, *given: Any) -> Any:
        if self.flag.exists():
            raise PermanentError("the table has no column name")
        return super().open(*given)


def test_a_flow_that_fails_leaves_until_it_was_left_out_once_or_edited(
    memory: Any, drive: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    sound, broken = memory(), memory(sink=Broken, sink_options={"flag": flag})
    driven: Driving = drive(sound.flow, broken.flow)
    driven.until(lambda: driven.left(broken.flow), SOON)
    assert "no column name" in str(driven.left(broken.flow)[0])
    sound.produce(4)
    driven.until(lambda: sound.complete, SOON)
    driven.going_on(1.0)
    assert driven.began(broken.flow) == 1, "it was wanted all the time, unchanged"
    driven.flows[1] = broken.edited()
    driven.until(lambda: len(driven.left(broken.flow)) == 2, SOON)
    flag.unlink()
    driven.going_on(1.0)
    del driven.flows[1]
    driven.going_on(0.5)
    driven.flows.append(broken.flow)
    broken.produce(4)
    driven.until(lambda: broken.complete, SOON)
    assert driven.began(sound.flow) == 1


def test_a_flow_that_is_taken_back_begins_again(memory: Any, drive: Any, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    one = memory(sink=Broken, sink_options={"flag": flag})
    driven: Driving = drive(one.flow)
    driven.until(lambda: driven.left(one.flow), SOON)
    flag.unlink()
    driven.lane.take_back(one.flow)
    one.produce(4)
    driven.until(lambda: one.complete, SOON)
    assert driven.began(one.flow) == 2


class Unreachable(MemorySliceSink):
    def open(self, *_: Any) -> Any:
        raise TransientError("the database is down")


def test_the_end_does_not_wait_for_an_outage(memory: Any, drive: Any) -> None:
    sound, down = memory(), memory(sink=Unreachable)
    driven: Driving = drive(sound.flow, down.flow, patience=Patience(600, 30, 30))
    sound.produce(3)
    driven.until(lambda: sound.complete, SOON)
    assert driven.end() < SOON
    assert "the database is down" in str(driven.left(down.flow)[0])
    assert driven.of(Ended, sound.flow)


class Mistaken(MemoryPartSource):
    """Reading ends with a mistake that nobody has thought of."""

    flag: Path

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        if self.flag.exists():
            raise ZeroDivisionError("nobody has thought of this")
        return super().batches(piece, metadata)


@pytest.mark.parametrize("mended", [True, False])
def test_a_flow_that_kills_its_job_is_alone_with_it(
    memory: Any, drive: Any, tmp_path: Path, *, mended: bool
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    others = [memory() for _ in range(3)]
    culprit = memory(source=Mistaken, options={"flag": flag})
    flows = [culprit.flow, *[one.flow for one in others]]
    driven: Driving = drive(*flows, patience=Patience(6, 0.05, 0.2))
    driven.until(lambda: all(driven.began(flow) for flow in flows))
    culprit.produce(5)
    for _ in range(3):
        for one in others:
            one.produce(5)
        driven.until(lambda: all(one.complete for one in others), SOON)
    assert not any(driven.left(one.flow) for one in others)
    driven.until(lambda: driven.left(culprit.flow), SOON)
    assert "nobody has thought of this" in str(driven.left(culprit.flow)[0])
    assert culprit.rows() == []
    if mended:
        flag.unlink()
        driven.lane.take_back(culprit.flow)
        driven.until(lambda: culprit.complete, SOON)


class Unframed(MemoryOffsetSource):
    """The frame of its records is never made: a mistake that the lane's own thread meets."""

    def open(self, flow: str) -> Any:
        session = super().open(flow)

        def frame(*_: Any) -> Any:
            raise ZeroDivisionError("nobody has thought of this")

        session.frame = frame  # type: ignore[assignment,method-assign]
        return session


def test_a_mistake_in_the_lane_s_own_thread_is_one_flow_s_error(memory: Any, drive: Any) -> None:
    others = [memory(source=MemoryOffsetSource) for _ in range(4)]
    culprit = memory(source=Unframed)
    driven: Driving = drive(*[one.flow for one in (*others, culprit)])
    driven.until(lambda: all(driven.began(one.flow) for one in (*others, culprit)))
    for one in (culprit, *others):
        one.produce(5)
    driven.until(lambda: all(one.complete for one in others), SOON)
    driven.until(lambda: driven.left(culprit.flow), SOON)
    assert isinstance(driven.left(culprit.flow)[0], ZeroDivisionError)
    assert not any(driven.left(one.flow) for one in others)


class Guarded(MemorySliceSink):
    """Its table is locked: the first attempt gives up, a later one waits for the lock."""

    free: ClassVar[threading.Event] = threading.Event()
    epochs: ClassVar[set[int]] = set()

    def writer(self, ticket: Ticket, piece: Slice) -> Any:
        if not Guarded.free.is_set():
            Guarded.epochs.add(ticket.epoch)
            if len(Guarded.epochs) == 1:
                raise Locked("writing: canceling statement due to lock timeout")
            Guarded.free.wait()
        return super().writer(ticket, piece)


def test_others_do_not_wait_for_the_lock_of_one_target(memory: Any, drive: Any) -> None:
    Guarded.free.clear()
    Guarded.epochs.clear()
    others, locked = [memory() for _ in range(3)], memory(sink=Guarded)
    driven: Driving = drive(locked.flow, *[one.flow for one in others])
    try:
        driven.until(lambda: driven.began(locked.flow), SOON)
        locked.produce(5)
        driven.until(lambda: len(Guarded.epochs) == 2, SOON)
        for _ in range(3):
            for one in others:
                one.produce(5)
            driven.until(lambda: all(one.complete for one in others), SOON)
        assert locked.rows() == []
    finally:
        Guarded.free.set()
    driven.until(lambda: locked.complete, SOON)
    assert not driven.left(locked.flow)


def test_a_lane_that_is_abandoned_leaves_no_thread(memory: Any, drive: Any) -> None:
    flows = [memory(), memory(source=MemoryOffsetSource)]
    driven: Driving = drive(*[one.flow for one in flows])
    for one in flows:
        one.produce(50)
    driven.until(lambda: flows[0].complete, SOON)
    driven.abandon()
    deadline = time.monotonic() + SOON
    while left := threads_of([one.flow for one in flows]):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_the_lane_ends_without_a_flow_that_does_not(
    memory: Any, drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataflow_assets.lanes.lane.END_SECONDS", 1.0)
    sound, stuck = memory(), memory(sink=Stuck)
    Stuck.going = False
    driven: Driving = drive(sound.flow, stuck.flow)
    try:
        sound.produce(2)
        driven.until(lambda: sound.complete and driven.began(stuck.flow), SOON)
        assert driven.end() < SOON
        (error,) = driven.left(stuck.flow)
        assert "did not end within 1 seconds" in str(error)
        assert driven.of(Ended, sound.flow)
    finally:
        Stuck.going = True


class Stuck(MemorySliceSink):
    """A server that never answers the driver."""

    going: ClassVar[bool] = False

    def open(self, *given: Any) -> Any:
        while not Stuck.going:
            time.sleep(0.05)
        return super().open(*given)


def test_a_branch_that_was_suspended_comes_back(
    request: pytest.FixtureRequest, engine: SparkSession, drive: Any, tmp_path: Path
) -> None:
    """Nothing new comes meanwhile: its return is all there is to do."""
    case = Branched(engine, MemoryOffsets(request))
    request.addfinalizer(case.store.remove)
    flag = tmp_path / "flag"
    flag.write_text("task")
    case.sinks[1] = Flaky(store=case.name, table="odd", flag=flag)
    case.source.seed(numbered(1, 21))
    driven: Driving = drive(case.flow())
    driven.until(lambda: len(case.rows("six")) == 2 and len(case.rows("even")) == 8, SOON)
    assert case.rows("odd") == []
    flag.unlink()
    driven.until(lambda: len(case.rows("odd")) == 10, SOON)
    case.expect(21)
    assert not driven.left(case.flow())


def test_a_record_at_which_the_flow_stops_ends_it_with_that_record(memory: Any, drive: Any) -> None:
    """What lies before it is stored."""
    rules = Policies(rejects=Rejects("fail"), freshness_seconds=4)
    one, other = memory(source=MemoryOffsetSource, policies=rules), memory()
    driven: Driving = drive(one.flow, other.flow)
    one.produce(7)
    driven.until(lambda: one.complete, SOON)
    one.store.produce("t", 0, [b'{"id": 7, "name": "name"}', b"not json", b'{"id": 9}'])
    driven.until(lambda: driven.left(one.flow), SOON)
    (error,) = driven.left(one.flow)
    assert isinstance(error, Stopped)
    assert one.rows() == list(range(8))
    other.produce(3)
    driven.until(lambda: other.complete, SOON)


def test_too_many_rejected_records_end_the_flow(memory: Any, drive: Any) -> None:
    one, other = memory(source=MemoryOffsetSource), memory()
    driven: Driving = drive(one.flow, other.flow)
    one.store.produce("t", 0, [b"not json"] * 3_000)
    driven.until(lambda: driven.left(one.flow), SOON)
    assert "maxRejectedPercent" in str(driven.left(one.flow)[0])
    other.produce(3)
    driven.until(lambda: other.complete, SOON)


class InOrder(MemoryPartSource, ReadsInOrder):
    seen: ClassVar[list[str]] = []

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        InOrder.seen.append(piece.partition)
        return super().batches(piece, metadata)


class Upserting(MemorySliceSink):
    @property
    def traits(self) -> SinkTraits:
        return SinkTraits(upserts=True)


def test_parts_in_order_stay_in_order_over_the_turns(
    memory: Any, drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IN_PARTS, 2 * PARTS + 1)
    one, other = memory(source=InOrder, sink=Upserting), memory()
    one.produce(90)
    InOrder.seen.clear()
    driven: Driving = drive(one.flow, other.flow)
    driven.until(lambda: one.complete, SOON)
    assert len(InOrder.seen) == 2 * PARTS + 1
    stored = one.store.query("select json_extract(row, '$.id') from rows order by rowid")
    assert [number for (number,) in stored] == list(range(90))


def test_parts_of_one_task_take_room_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four stretches of a log are as much as four slices, though one task reads them."""
    joint = JointJobs(_no_spark, threading.Condition(), list, lambda: False)
    asked = list[str]()

    class Waiting:
        def __init__(self, name: str) -> None:
            self.name, self.reading = name, self

        def begin_turn(self) -> Waiting:
            asked.append(self.name)
            return self

        def take(self) -> list[tuple[int, ...]]:
            return [tuple(range(PARTS))]

        def answer_when_over(self) -> None:
            pass

    monkeypatch.setattr(joint, "_slices", 2.0 * PARTS)
    monkeypatch.setattr(joint, "_do", lambda *_: True)
    members: Any = [Waiting(name) for name in "abc"]
    joint._together(members)
    assert asked == ["a", "b"]


class Noted(MemoryPartSource):
    seen: ClassVar[list[str]] = []

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        Noted.seen.append(self.store)
        time.sleep(0.05)  # the other one gets ready meanwhile
        return super().batches(piece, metadata)


def test_a_micro_batch_of_many_parts_lets_others_have_their_turns(
    memory: Any, drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IN_PARTS, 4 * PARTS)
    both = memory(source=Noted), memory(source=Noted)
    for one in both:
        one.produce(8 * PARTS)
    Noted.seen.clear()
    driven: Driving = drive(*[one.flow for one in both])
    driven.until(lambda: all(one.complete for one in both), SOON)
    last = {name: at for at, name in enumerate(Noted.seen)}
    first = {name: at for at, name in reversed([*enumerate(Noted.seen)])}
    assert max(first.values()) < min(last.values()), "neither was read whole before the other began"


class Polled(MemoryPartSource):
    """A table that wants to be left in peace; `ends` are the looks at it."""

    looks: ClassVar[list[float]] = []

    @property
    def traits(self) -> SourceTraits:
        return replace(super().traits, poll_seconds=1.5)

    def open(self, flow: str) -> Any:
        session = super().open(flow)
        ends = session.end

        def noted() -> Any:
            Polled.looks.append(time.monotonic())
            return ends()

        session.end = noted  # type: ignore[method-assign]
        return session


def test_a_polled_table_is_asked_as_often_as_it_allows(memory: Any, drive: Any) -> None:
    one = memory(source=Polled)
    driven: Driving = drive(one.flow)
    driven.until(lambda: driven.began(one.flow))
    one.produce(3)
    driven.until(lambda: one.complete and driven.reports(one.flow), SOON)
    driven.going_on(0.5)  # plans and reports ask for the ends as well
    Polled.looks.clear()
    driven.going_on(4.0)
    assert 1 <= len(Polled.looks) <= 3


class Query(MemoryPartSource):
    """A query that each plan reads whole; nothing is new before an hour has passed."""

    plans: ClassVar[list[float]] = []

    @property
    def traits(self) -> SourceTraits:
        return replace(super().traits, poll_seconds=3600.0)

    def open(self, flow: str) -> Any:
        session = super().open(flow)
        plan = session.plan

        def noted(*arguments: Any) -> Any:
            Query.plans.append(time.monotonic())
            return plan(*arguments)

        session.plan = noted  # type: ignore[assignment,method-assign]
        return session


class Whole(MemoryPartSource):
    @property
    def traits(self) -> SourceTraits:
        return replace(super().traits, incremental=False)


def test_a_query_that_is_read_as_a_whole_joins_no_others(memory: Any, drive: Any) -> None:
    """Only the command line drives such a flow in a lane."""
    one, other = memory(source=Whole), memory()
    for each in (one, other):
        each.produce(3)
    driven: Driving = drive(one.flow, other.flow)
    driven.until(lambda: one.complete and other.complete, SOON)
    joint = {name: member.joint for name, member in driven.lane._members.items()}
    assert joint == {one.flow.id: False, other.flow.id: True}


def test_a_release_is_no_reason_to_read_a_query_again(
    memory: Any, drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LaneMember, "acknowledge_seconds", 3.0)
    one = memory(source=Query)
    one.produce(3)
    driven: Driving = drive(one.flow)
    driven.until(lambda: one.complete, SOON)
    driven.going_on(0.5)
    Query.plans.clear()
    released = "select * from identities where name like 'released %'"
    driven.until(lambda: one.store.query(released), SOON)
    driven.going_on(1.0)
    assert not Query.plans


def test_others_commit_less_often_while_a_backlog_is_worked_off(memory: Any) -> None:
    one = memory()
    member = LaneMember(one.flow, Request(), _no_spark, threading.Condition(), Beside())
    backlog = False
    joint = JointJobs(_no_spark, threading.Condition(), lambda: [member], lambda: backlog)
    joint._joint_seconds = 5.0
    assert joint.interval(member) == member.freshness / 2
    backlog = True
    assert joint.interval(member) == member.freshness


def test_small_jobs_are_no_reason_to_commit_more_often_than_asked_for(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    calm = replace(memory(), policies=Policies(freshness_seconds=120)).flow
    member = LaneMember(calm, Request(), _no_spark, threading.Condition(), Beside())
    joint = JointJobs(_no_spark, threading.Condition(), lambda: [member], lambda: False)
    joint._joint_seconds = 0.1
    assert joint.interval(member) == 30


def test_a_pass_that_has_not_begun_is_left_to_the_next_run(memory: Any) -> None:
    one, events = memory(), queue.SimpleQueue[Event]()
    one.produce(3)
    member = LaneMember(one.flow, Request(), _no_spark, threading.Condition(), Beside())
    member.start(events.put)
    deadline = time.monotonic() + SOON
    while member.waiting is None and time.monotonic() < deadline:
        time.sleep(0.01)
    member.end("switched off")
    assert [type(events.get(timeout=SOON)) for _ in range(3)] == [Began, Report, Ended]
    assert one.rows() == []


def test_the_lane_knows_that_a_backlog_is_worked_off(memory: Any, drive: Any) -> None:
    driven: Driving = drive(memory().flow)
    before = driven.lane._joint._backlog()
    driven.lane._single._last = time.monotonic()
    assert (before, driven.lane._joint._backlog()) == (False, True)


def test_a_table_with_a_backlog_is_read_in_jobs_of_its_own(memory: Any, drive: Any) -> None:
    large, small = memory(policies=Policies(freshness_seconds=4, limit=Limit(records=10))), memory()
    driven: Driving = drive(large.flow, small.flow)
    small.produce(10)
    driven.until(lambda: small.complete, SOON)
    assert not driven.lane._single.lately
    large.produce(45)
    driven.until(lambda: large.complete and len(driven.reports(large.flow)) >= 5, SOON)
    assert driven.lane._single.lately
    assert [report.delta.rows for report in driven.reports(large.flow)] == [10, 10, 10, 10, 5]


def test_what_a_table_s_turn_may_hold_is_small(memory: Any) -> None:
    one = memory()
    member = LaneMember(one.flow, Request(), _no_spark, threading.Condition(), Beside())
    default, few = Limit(), Limit(records=10, bytes=2**40)
    assert member.limit(default) == replace(PART, declared=default)
    assert member.limit(few) == Limit(10, PART.bytes, declared=few)


def test_a_lane_waits_for_the_interval_of_a_polled_table(
    memory: Any, drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven: Driving = drive(memory(source=Query).flow)
    driven.going_on(1.0)
    with monkeypatch.context() as patch:
        patch.setattr(lane, "time", Clock())
        driven.lane._committed = Clock.now - POLL_SECONDS + 5
        assert driven.lane.idle_seconds == 0
        driven.lane._committed -= 65
        assert driven.lane.idle_seconds == 60


class Preparing(MemoryPartSource):
    """Each span is prepared by a Spark job of a moment, in two steps."""

    now: ClassVar[list[str]] = []
    most: ClassVar[list[int]] = []

    def open(self, flow: str) -> Any:
        session = PreparingSession(self)
        session.flow = flow
        return session


class PreparingSession(MemoryPartSession, PreparesSpans):
    flow = ""

    def prepare(self, span: Span, spark: Callable[[], SparkSession]) -> Span:
        for _ in range(2):
            spark()
            if self.flow not in Preparing.now:
                Preparing.now.append(self.flow)
            Preparing.most.append(len(Preparing.now))
            time.sleep(0.1)
        Preparing.now.remove(self.flow)
        return span


def test_only_some_flows_prepare_with_spark_at_the_same_time(memory: Any, drive: Any) -> None:
    cases = [memory(source=Preparing) for _ in range(3 * AT_ONCE)]
    for one in cases:
        one.produce(3)
    driven: Driving = drive(*[one.flow for one in cases])
    driven.until(lambda: all(one.complete for one in cases), 3 * SOON)
    assert max(Preparing.most) == AT_ONCE
    assert not any(driven.left(one.flow) for one in cases)


class Known(MemoryPartSource):
    """Only a run can know what it delivers."""

    @property
    def traits(self) -> SourceTraits:
        return replace(super().traits, keeps_running=True)


def test_a_lane_does_not_end_while_only_a_run_can_know_what_is_new(memory: Any, drive: Any) -> None:
    quiet, connector = memory(), memory(source=Known)
    driven: Driving = drive(quiet.flow, connector.flow)
    driven.going_on(1.0)
    driven.lane._committed = time.monotonic() - 3600
    assert driven.lane.idle_seconds == 0
    driven.flows = [quiet.flow]
    driven.until(lambda: driven.of(Ended, connector.flow), SOON)
    driven.going_on(0.5)
    driven.lane._committed = time.monotonic() - 3600
    assert driven.lane.idle_seconds > 0


def _no_spark() -> Any:
    raise AssertionError("no job is run")


def test_a_flow_s_own_interval_follows_its_freshness(memory: Any, drive: Any) -> None:
    hasty, calm = memory(), memory()
    calm = replace(calm, policies=Policies(freshness_seconds=120))
    driven: Driving = drive(hasty.flow, calm.flow)
    hasty.produce(3)
    calm.produce(3)
    driven.until(lambda: hasty.complete and calm.complete, SOON)
    assert "for a freshness of 120 s;" in driven.lane.state(calm.flow)
    driven.lane._single._last = time.monotonic()
    assert "for a freshness of 120 s while a backlog is worked off;" in driven.lane.state(calm.flow)
