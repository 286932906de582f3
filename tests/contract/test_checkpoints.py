"""The checkpoint of every sink is one state machine: what a crash, a reset or a person does to it.

On the sessions and writers of the sinks, in this process: Spark only merges upserts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import MemorySliceSink, Store
from dataflow_assets.contracts import (
    Cut,
    Limit,
    PartSlice,
    Receipt,
    Run,
    SinkSession,
    Span,
    StagesWithSpark,
    Target,
    Ticket,
    local_now,
)
from dataflow_assets.contracts.looking import Peeks
from dataflow_assets.errors import CheckpointRemoved, PermanentError, TakenOver, TransientError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.micro_batch.branches import BranchSteps, PassBranch
from dataflow_assets.micro_batch.fused import Pass
from dataflow_assets.micro_batch.results import Result
from dataflow_assets.micro_batch.task_failures import raise_gravest
from tests.contract import SINKS
from tests.contract.conftest import numbered
from tests.contract.drivers import MemoryOffsets, MemoryParts, SinkDriver, SourceDriver

ALL = Limit()
MOVABLE = sorted(set(SINKS) - {"kafka"})
"""In Kafka the driver alone writes its record: it replaces whatever was put there meanwhile."""


class Driving:
    """One flow, driven a step at a time."""

    def __init__(self, source: SourceDriver, sink: SinkDriver, engine: SparkSession) -> None:
        self.source_driver, self.sink, self.engine = source, sink, engine
        name = f"steps-{uuid.uuid4().hex[:8]}"
        branches = (Branch(sink.declare()),)
        self.flow = Flow("contract", name, source.declare(), branches, hash="h1")
        self.source = self.flow.source.open(self.flow.id)

    @property
    def branch(self) -> Branch:
        return self.flow.branches[0]

    @property
    def target(self) -> Target:
        return replace(self.flow.target(self.branch), source_id=self.source.identity)

    @contextmanager
    def open(self, target: Target | None = None) -> Iterator[SinkSession]:
        with closing(self.branch.sink.open(target or self.target, Run())) as session:
            yield session

    @contextmanager
    def begun(self, limit: Limit = ALL) -> Iterator[tuple[SinkSession, Span]]:
        """With the first span recorded."""
        with self.open() as session:
            session.restart(self.source.start(), self.source.identity)
            yield session, session.begin(self.plan(session, limit))

    def plan(self, session: SinkSession, limit: Limit = ALL) -> Span:
        return self.source.plan(session.checkpoint.positions, limit)

    def read(self, ticket: Ticket, span: Span, only: Sequence[int] = ()) -> list[Receipt]:
        """What the tasks of these slices do, of all by default."""
        branch = PassBranch(self.branch.sink, ticket, self.branch.routes)
        steps = BranchSteps.of(self.flow, local_now(), [branch.shape()])
        work = Pass(self.flow.source, span, (branch,), 100.0, steps)
        results = [
            result
            for index in only or range(len(span.slices))
            if not span.slices[index].empty
            for result in self._results(work, index)
        ]
        raise_gravest([result.failure for result in results if result.failure])
        return [result.receipt for result in results if result.receipt]

    def _results(self, work: Pass, index: int) -> list[Result]:
        if self.flow.source.delivers != "messages":
            return work.over_parts([index])
        return work.over_messages(index, iter([self._batch(work, index)]))

    def _batch(self, work: Pass, index: int) -> pa.RecordBatch:
        slices, piece = work.span.slices, work.span.slices[index]
        records = int(piece.upto) - int(piece.after or 0)
        assert isinstance(self.source, Peeks)
        batch = self.source.peek(work.span.after, records)[piece.partition]
        at = pa.array(
            [o * len(slices) + index for o in batch.column("_at").to_pylist()], pa.int64()
        )
        return batch.set_column(0, "_at", at).select(
            ["_at", "body", *sorted(work.metadata_to_read)]
        )

    def micro_batch(self, session: SinkSession, span: Span) -> None:
        """All of it, as the loop of a run does it."""
        begun = session.begin(span)
        self.finish(session, begun, self.read(session.ticket(), begun))

    def finish(self, session: SinkSession, span: Span, receipts: Sequence[Receipt]) -> None:
        if isinstance(session, StagesWithSpark):
            session.stage(span, receipts, lambda: self.engine)
        session.finish(span, receipts, self.source)


@pytest.fixture
def offsets(request: pytest.FixtureRequest, sink: SinkDriver, engine: SparkSession) -> Driving:
    """A topic of two partitions of five records; 0 has the odd numbers."""
    source = MemoryOffsets(request)
    source.seed(numbered(1, 11))
    return Driving(source, sink, engine)


@pytest.fixture
def parts(request: pytest.FixtureRequest, sink: SinkDriver, engine: SparkSession) -> Driving:
    """A table that is read in three parts of three rows."""
    source = MemoryParts(request)
    source.seed(numbered(0, 9))
    return Driving(source, sink, engine)


def test_a_read_with_nothing_left_is_not_recorded(parts: Driving) -> None:
    with parts.open() as session:
        session.restart(parts.source.start(), parts.source.identity)
        session.begin(Span((PartSlice("table", "0", "0"),)))
        planned = parts.plan(session)
        assert session.begin(planned).slices == planned.slices


def test_a_read_that_was_planned_from_another_position_is_refused(parts: Driving) -> None:
    with parts.open() as session:
        session.restart(parts.source.start(), parts.source.identity)
        planned = parts.plan(session)
        with pytest.raises(PermanentError, match=r"table is at 0, but .+ planned from 3;"):
            session.begin(replace(planned, planned={"table": "3"}))
        begun = session.begin(replace(planned, planned={"table": "0"}))
        assert begun.slices == planned.slices


def test_a_part_that_no_task_has_read_is_read_again(parts: Driving) -> None:
    with parts.begun() as (session, span):
        receipts = parts.read(session.ticket(), span, only=[0])
        with suppress(TransientError):
            parts.finish(session, span, receipts)
    with parts.open() as session:
        again = session.begin(parts.plan(session))
        assert [piece.partition for piece in again.slices] == ["part-0", "part-1", "part-2"]
        assert not any(piece.empty for piece in again.slices[1:])
        parts.finish(session, again, parts.read(session.ticket(), again))
        assert session.checkpoint.positions == {"table": "9"}
        assert session.checkpoint.totals.rows == 9
    assert parts.sink.rows() == numbered(0, 9)


@pytest.mark.parametrize("sink", ["memory-slice"], indirect=True)
def test_a_part_whose_commit_the_target_has_lost_is_read_again(parts: Driving) -> None:
    """As where a replica has become the server that lacks the last commits of the one before."""
    sink = parts.branch.sink
    assert isinstance(sink, MemorySliceSink)
    with parts.begun() as (session, span):
        store, table = Store(sink.store), "select * from checkpoints"
        before = store.query(table)
        receipts = parts.read(session.ticket(), span)
        store.query("delete from rows")
        with store.transaction() as connection:
            connection.executemany("insert or replace into checkpoints values (?, ?, ?)", before)
        with pytest.raises(TransientError, match="part-0 was not read to its end"):
            parts.finish(session, span, receipts)
    with parts.open() as session:
        parts.micro_batch(session, parts.plan(session))
        assert session.checkpoint.positions == {"table": "9"}
    assert parts.sink.rows() == numbered(0, 9)


@pytest.mark.parametrize("sink", ["memory-slice"], indirect=True)
def test_records_whose_commit_the_target_has_lost_are_read_again(offsets: Driving) -> None:
    """No gap is stepped over that a task has stored rows in."""
    sink = offsets.branch.sink
    assert isinstance(sink, MemorySliceSink)
    with offsets.begun() as (session, span):
        store, table = Store(sink.store), "select * from checkpoints"
        before = store.query(table)
        receipts = offsets.read(session.ticket(), span)
        store.query("delete from rows")
        with store.transaction() as connection:
            connection.executemany("insert or replace into checkpoints values (?, ?, ?)", before)
        with pytest.raises(
            TransientError, match="has lost what was committed of partition 0 from 0 to 5"
        ):
            offsets.finish(session, span, receipts)
    with offsets.open() as session:
        offsets.micro_batch(session, offsets.plan(session))
        assert session.checkpoint.positions == {"0": 5, "1": 5}
    assert offsets.sink.rows() == numbered(1, 11)


def test_a_span_that_was_abandoned_is_planned_again(parts: Driving) -> None:
    """What was begun of it can store nothing any more, also where a run was killed in between."""
    with parts.begun(Limit(6)) as (_, span):
        pass
    with parts.open() as session:
        again = session.begin(parts.plan(session))
        assert again.slices == span.slices
        late = session.ticket()
        cut = Cut({part: () for part in again.slices if isinstance(part, PartSlice)})
        assert session.divide(again, cut).slices == ()
        assert dict(session.checkpoint.positions) == {"table": "0"}
    with parts.open() as session:
        following = session.begin(parts.plan(session))
        assert following.upto["part-0"] == "9"
        with suppress(TakenOver):  # sinks that publish later only stage
            parts.read(late, span, only=[1])
        parts.finish(session, following, parts.read(session.ticket(), following))
        assert session.checkpoint.totals.rows == 9
    assert parts.sink.rows() == numbered(0, 9)


def test_a_task_of_the_last_span_that_comes_late_stores_nothing(parts: Driving) -> None:
    """Parts of both spans have the same names, and both spans the same epoch."""
    with parts.begun(Limit(6)) as (session, span):
        late = session.ticket()
        parts.finish(session, span, parts.read(late, span))
        following = session.begin(parts.plan(session))
        with suppress(TakenOver):  # sinks that publish later only stage
            parts.read(late, span, only=[1])
        assert parts.sink.rows() == numbered(0, 6)
        parts.finish(session, following, parts.read(session.ticket(), following))
        assert session.checkpoint.totals.rows == 9
    assert parts.sink.rows() == numbered(0, 9)


def test_a_checkpoint_that_was_removed_ends_its_branch_alone(offsets: Driving) -> None:
    with offsets.begun() as (session, span):
        offsets.sink.lose(offsets.target)
        with pytest.raises(CheckpointRemoved, match="was removed while it ran") as caught:
            offsets.micro_batch(session, span)
        assert offsets.flow.id in str(caught.value)
    assert offsets.sink.rows() == []


@pytest.mark.parametrize("sink", MOVABLE, indirect=True)
def test_a_checkpoint_that_was_set_back_is_an_error(offsets: Driving) -> None:
    with offsets.open() as session:
        session.restart({"0": 3, "1": 3}, offsets.source.identity)
        span = offsets.plan(session)
        offsets.sink.move(offsets.target, 1)
        with pytest.raises(PermanentError) as caught:
            offsets.micro_batch(session, span)
        assert type(caught.value) is PermanentError
        assert (
            f"the checkpoint of flow {offsets.flow.id} was moved by somebody: partition 0 is at 1, "
            "but the micro-batch was planned from 3"
        ) in str(caught.value)
    assert not any(id_ % 2 for id_, _ in offsets.sink.rows())
    with offsets.open() as session:
        assert session.checkpoint.positions["0"] == 1


@pytest.mark.parametrize("sink", MOVABLE, indirect=True)
def test_a_checkpoint_that_was_set_ahead_is_obeyed(offsets: Driving) -> None:
    with offsets.begun() as (session, span):
        offsets.sink.move(offsets.target, 3)
        with suppress(TransientError):  # sinks that publish whole spans begin again from there
            offsets.micro_batch(session, span)
    with offsets.open() as session:
        offsets.micro_batch(session, offsets.plan(session))
        assert session.checkpoint.positions == {"0": 5, "1": 5}
        assert session.checkpoint.totals.rows == 7
    skipped = [(id_, name) for id_, name in numbered(1, 11) if id_ not in (1, 3, 5)]
    assert offsets.sink.rows() == skipped


def test_a_slice_that_begins_below_the_checkpoint_is_stored_from_there(offsets: Driving) -> None:
    """As where another branch is behind."""
    with offsets.begun(Limit(3)) as (session, span):
        offsets.finish(session, span, offsets.read(session.ticket(), span))
        offsets.micro_batch(session, offsets.source.plan(offsets.source.start(), ALL))
        assert session.checkpoint.positions == {"0": 5, "1": 5}
        assert session.checkpoint.totals.rows == 10
    assert offsets.sink.rows() == numbered(1, 11)


def test_a_reset_under_a_run_is_a_takeover(offsets: Driving) -> None:
    with offsets.begun() as (session, span), offsets.open() as other:
        other.forget()
        with pytest.raises(TakenOver, match="was taken over by run"):
            offsets.finish(session, span, offsets.read(session.ticket(), span))
    assert offsets.branch.sink.peek(offsets.target) is None
    assert offsets.sink.rows() == []


def test_a_reading_after_a_reset_is_later_whatever_the_clock_says(
    offsets: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    with offsets.begun() as (session, _):
        first = session.ticket().target.reading
        session.forget()
    monkeypatch.setattr(
        "dataflow_assets.contracts.checkpoint.time", SimpleNamespace(time=lambda: 1.0)
    )
    with offsets.begun() as (session, _):
        assert session.ticket().target.reading > first


def test_a_checkpoint_names_the_manifest_that_has_moved_it(offsets: Driving) -> None:
    with offsets.begun() as (session, span):
        offsets.finish(session, span, offsets.read(session.ticket(), span))
    offsets.source_driver.seed(numbered(11, 21))
    with offsets.open(replace(offsets.target, manifest="h2")) as session:
        offsets.micro_batch(session, offsets.plan(session))
    stored = offsets.branch.sink.peek(offsets.target)
    assert stored is not None
    assert (stored.manifest, stored.positions) == ("h2", {"0": 10, "1": 10})
    assert offsets.sink.rows() == numbered(1, 21)
