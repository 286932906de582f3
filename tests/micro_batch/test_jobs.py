"""Many passes as one job: what comes of each is its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.memory import MemoryPartSource, MemorySliceSink, Store
from dataflow_assets.connectors.memory.sink.writer import MemorySliceStore
from dataflow_assets.contracts import (
    Chunk,
    Limit,
    OffsetSlice,
    Run,
    SinkSession,
    SinkTraits,
    Slice,
    SourceSession,
    Span,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.contracts.reading import (
    ChoosesReader,
    ReadsInOrder,
    SpanReader,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.fused import Pass
from dataflow_assets.micro_batch.job import (
    BatchOutcome,
    Planned,
    TaskReading,
    _one_slice,
    read,
    run,
    run_in_one_task,
)
from dataflow_assets.sdk.sink.slice_commit import SliceWriter
from tests.in_process import Session


class Recorded(MemoryPartSource):
    """Notes which part is read, and fails where it is told to."""

    seen: ClassVar[list[tuple[str, str]]] = []
    fails: bool = False

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        self.seen.append((self.store, piece.partition))
        if self.fails:
            raise PermanentError(f"{self.store} cannot be read")
        return super().batches(piece, metadata)


class InOrder(Recorded, ReadsInOrder):
    """Its parts are read one after the other."""


class Chosen(ChoosesReader):
    """The session of a topic that says who reads a span."""

    identity = "t"

    def __init__(self, reader: SpanReader) -> None:
        self._reader = reader

    def reader(self, span: Span) -> SpanReader:  # noqa: ARG002 - the same for all
        return self._reader


class LetGo(Recorded):
    """Notes when nobody reads any longer."""

    over: ClassVar[list[str]] = []

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from super().batches(piece, metadata)
        finally:
            self.over.append(self.store)


class RefusingWriter(SliceWriter):
    """Takes no rows; its errors, and with them the frames that they came through, live on."""

    kept: ClassVar[list[PermanentError]] = []

    def write(self, chunk: Chunk) -> None:
        self.kept.append(PermanentError(f"{chunk.seen} records: another run has taken over"))
        raise self.kept[-1]


class Refusing(MemorySliceSink):
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        return RefusingWriter(ticket, piece, MemorySliceStore(self, ticket, piece))


class Upserting(MemorySliceSink):
    @property
    def traits(self) -> SinkTraits:
        return SinkTraits(upserts=True)


SINKS: dict[type[Recorded], type[MemorySliceSink]] = {InOrder: Upserting, LetGo: Refusing}


@dataclass
class Table:
    """A table of some rows on its way into another one."""

    store: Store
    work: Pass
    source: SourceSession
    sink: SinkSession

    def finish(self, reading: TaskReading) -> list[int]:
        done = reading.outcome()
        self.sink.finish(done.span, done.receipts["memory"], self.source)
        return self.rows()

    def rows(self) -> list[int]:
        sql = "select json_extract(row, '$.id') from rows order by rowid"
        return [int(number) for (number,) in self.store.query(sql)]


@pytest.fixture
def tables() -> Iterator[Any]:
    """A factory: `tables(rows, kind)` has three parts."""
    with ExitStack() as stack:

        def make(rows: int, kind: type[Recorded] = Recorded, **options: Any) -> Table:
            name = f"jobs-{uuid.uuid4().hex[:8]}"
            store = Store(name)
            store.create()
            stack.callback(store.remove)
            store.produce("t", 0, [b"name"] * rows)
            source = kind(store=name, topic="t", **options)
            sink = SINKS.get(kind, MemorySliceSink)(store=name, table="target")
            return stack.enter_context(_opened(source, sink, store))

        yield make


class _opened(ExitStack):  # noqa: N801 - a function with an end
    def __init__(self, source: Recorded, sink: MemorySliceSink, store: Store) -> None:
        super().__init__()
        session = self.enter_context(closing(source.open("f")))
        target = Target("default/f", "memory", "h1", "t", source_id=session.identity)
        opened = self.enter_context(closing(sink.open(target, Run())))
        opened.restart(session.start(), session.identity)
        span = opened.begin(session.plan(session.start(), Limit()))
        work = Pass(source, span, (PassBranch(sink, opened.ticket()),), 10.0)
        self.table = Table(store, work, session, opened)

    def __enter__(self) -> Table:  # type: ignore[override]
        super().__enter__()
        return self.table


@pytest.fixture
def engine() -> SparkSession:
    def none() -> SparkSession:
        raise AssertionError("no job needs Spark here")

    return cast("SparkSession", Session(none))


def test_each_pass_has_its_own_receipts(tables: Any, engine: SparkSession) -> None:
    many = [tables(rows) for rows in (3, 30, 1, 7)]
    readings = [TaskReading(table.work) for table in many]
    read(engine, {reading: reading.take() for reading in readings})
    assert all(reading.over for reading in readings)
    found = [table.finish(one) for table, one in zip(many, readings, strict=True)]
    assert [sorted(rows) for rows in found] == [list(range(n)) for n in (3, 30, 1, 7)]


def test_a_failure_touches_no_neighbour(tables: Any, engine: SparkSession) -> None:
    sound, broken, other = tables(9), tables(9, fails=True), tables(9)
    readings = {id(table): TaskReading(table.work) for table in (sound, broken, other)}
    read(engine, {reading: reading.take() for reading in readings.values()})
    for table in (sound, other):
        assert sorted(table.finish(readings[id(table)])) == list(range(9))
    with pytest.raises(PermanentError, match="cannot be read"):
        readings[id(broken)].outcome()
    assert broken.rows() == []


def test_a_source_is_let_go_at_once_when_a_sink_refuses(tables: Any, engine: SparkSession) -> None:
    """Its connection must not wait for the garbage collection of a worker with open transaction."""
    table = tables(9, LetGo)
    reading = TaskReading(table.work)
    read(engine, {reading: reading.take(1)})
    assert LetGo.over == [table.work.source.store]
    with pytest.raises(PermanentError, match="another run has taken over"):
        reading.outcome()


def test_a_large_pass_takes_several_turns(tables: Any, engine: SparkSession) -> None:
    table = tables(30)
    reading, sizes = TaskReading(table.work), []
    while not reading.over:
        taken = reading.take(2)
        read(engine, {reading: taken})
        sizes.append([len(share) for share in taken])
    assert sizes == [[1, 1], [1]]
    assert sorted(table.finish(reading)) == list(range(30))


def test_what_has_failed_is_not_read_on(tables: Any, engine: SparkSession) -> None:
    reading = TaskReading(tables(30, fails=True).work)
    read(engine, {reading: reading.take(1)})
    assert reading.over
    with pytest.raises(PermanentError):
        reading.outcome()


def test_parts_in_order_stay_in_one_task_and_in_order(tables: Any, engine: SparkSession) -> None:
    """Also over several turns, beside others."""
    table, other = tables(30, InOrder), tables(9)
    reading, beside = TaskReading(table.work), TaskReading(other.work)
    Recorded.seen.clear()
    first = reading.take(2)
    assert first == [(0, 1)]
    read(engine, {reading: first, beside: beside.take()})
    second = reading.take(2)
    assert second == [(2,)]
    read(engine, {reading: second})
    parts = [part for store, part in Recorded.seen if store == table.work.source.store]
    assert parts == [piece.partition for piece in table.work.span.slices]
    assert table.finish(reading) == list(range(30))
    assert sorted(other.finish(beside)) == list(range(9))


def test_alone_parts_in_order_are_one_task(tables: Any, engine: SparkSession) -> None:
    table = tables(30, InOrder)
    done = run(engine, Planned(table.work, table.source))
    assert len(done.receipts["memory"]) == 3
    assert table.rows() == list(range(30))


def test_where_others_need_the_rest_of_spark_a_pass_is_one_task(
    tables: Any, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[int] = []
    ranged = engine.range

    def counted(*given: int) -> Any:
        tasks.append(given[1])
        return ranged(*given)

    monkeypatch.setattr(engine, "range", counted)
    table = tables(30)
    run_in_one_task(engine, Planned(table.work, table.source))
    assert tasks == [1]
    assert sorted(table.rows()) == list(range(30))


def test_of_a_frame_one_slice_is_read_then() -> None:
    span = Span((OffsetSlice("0", 3, 9), OffsetSlice("1", 4, 4), OffsetSlice("2", 5, 8)))
    found = [_one_slice(span).slices for _ in range(30)]
    ways = {tuple(piece.upto for piece in slices) for slices in found}
    assert ways == {(9, 4, 5), (3, 4, 8)}


@pytest.mark.parametrize("small", [True, False])
def test_of_a_large_span_that_tasks_read_one_slice_is_read_then(
    small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is cut off with all slices in one task would be cut off each time."""
    asked: list[tuple[int, int]] = []

    def read_alone(_: object, work: Pass, deal: Any) -> BatchOutcome:
        taken = TaskReading(work).take()
        tasks = deal([(0, share) for share in taken])
        asked.append((len(taken), len(tasks)))
        return BatchOutcome(work.span, {})

    monkeypatch.setattr(job, "_read_alone", read_alone)
    span = Span((OffsetSlice("0", 3, 9), OffsetSlice("1", 4, 4), OffsetSlice("2", 5, 8)))
    source = KafkaSource.model_validate({"brokers": ["h:1"], "topic": "t"})
    session = Chosen("driver" if small else "tasks")
    planned = Planned(Pass(source, span, (), 10.0), cast("SourceSession", session))
    found = run_in_one_task(cast("SparkSession", None), planned)
    left = [piece for piece in found.span.slices if not piece.empty]
    assert asked == ([(2, 1)] if small else [(1, 1)])
    assert len(left) == (2 if small else 1)


def test_a_job_that_dies_is_an_error_for_all(tables: Any) -> None:
    class Frames:
        def range(self, *_: int) -> Any:
            return self

        def mapInArrow(self, *_: object) -> Any:  # noqa: N802 - Spark's name
            return self

        def toArrow(self) -> None:  # noqa: N802 - Spark's name
            raise PySparkException("the worker is gone")

    readings = [TaskReading(tables(rows).work) for rows in (3, 4)]
    with pytest.raises(TransientError, match="the worker is gone"):
        read(cast("SparkSession", Frames()), {one: one.take() for one in readings})


def test_nothing_to_read_is_no_job(tables: Any) -> None:
    reading = TaskReading(tables(0).work)
    read(cast("SparkSession", None), {reading: reading.take()})
    assert reading.over
    assert reading.outcome().receipts == {"memory": []}
