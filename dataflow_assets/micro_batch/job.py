"""Passes as Spark jobs: one over a frame of Spark's reader, or many whose tasks read themselves."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.contracts import OffsetSlice, Receipt, SourceSession, Span
from dataflow_assets.contracts.reading import SpanReader, SparkFrames
from dataflow_assets.micro_batch.fused import Pass
from dataflow_assets.micro_batch.results import Result, SliceCounts, encode
from dataflow_assets.micro_batch.task_failures import raise_gravest
from dataflow_assets.micro_batch.task_messages import Indexes, Share, read_together
from dataflow_assets.micro_batch.tasks import JobDied, collect, span_reader, spare_worker
from dataflow_assets.records.decoding import decode_msgpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_SLICES_OF_A_TASK = 25
# The fewest tasks of a job of several passes: a task waits for its sink most of the time.
_FEWEST_TASKS = 4


Deal = Callable[[Sequence[Share]], list[tuple[Share, ...]]]


@dataclass(frozen=True)
class Planned:
    """A pass, and the session that has planned its span."""

    work: Pass
    source: SourceSession

    @property
    def in_tasks(self) -> bool:
        """The tasks read the span themselves, and need no frame of Spark's reader."""
        messages = self.work.source.delivers == "messages"
        return not messages or self._stores_times or self.reader != "spark"

    @property
    def reader(self) -> SpanReader:
        """Returns who reads a span of messages, as far as its session says."""
        return span_reader(self.source, self.work.span)

    @property
    def _stores_times(self) -> bool:
        """Spark's reader fails at a time that it cannot hold; one record should be refused."""
        return any(branch.traits.record_time for branch in self.work.branches)


@dataclass(frozen=True)
class BatchOutcome:
    """The span as it was read, the receipts by branch, and what tasks have counted by slice."""

    span: Span
    receipts: Mapping[str, Sequence[Receipt]]
    counts: Sequence[SliceCounts] = ()


def run(spark: SparkSession, planned: Planned) -> BatchOutcome:
    """Runs one pass as a job of its own.

    Raises a task's own error again, the gravest first; TransientError when Spark itself failed.
    """
    work = planned.work
    if planned.in_tasks:
        return _read_alone(spark, work, _one_each)
    session = planned.source
    assert isinstance(session, SparkFrames)  # noqa: S101 - messages are read in one of two ways
    frame = session.frame(spark, work.span, work.metadata_to_read)
    try:
        return _outcome(work, _decode(collect(frame, work)))
    except JobDied as error:
        if not session.frame_failed(str(error)):
            raise
        log.warning("%s; the tasks read the records themselves", error)
    return _read_alone(spark, work, _one_each)


def run_in_one_task(spark: SparkSession, planned: Planned) -> BatchOutcome:
    """Runs a job in one task; of many messages one slice is read, by chance.

    Be they of a frame, or read in tasks: all slices of a large span may take too long for one task.
    """
    work = planned.work
    messages = work.source.delivers == "messages"
    if planned.in_tasks and (not messages or planned.reader == "driver"):
        return _read_alone(spark, work, _all_in_one)
    return run(spark, replace(planned, work=replace(work, span=_one_slice(work.span))))


def _read_alone(spark: SparkSession, work: Pass, deal: Deal) -> BatchOutcome:
    """All of one pass that tasks read themselves, in a job of its own."""
    reading = TaskReading(work)
    read(spark, {reading: reading.take()}, deal)
    return reading.outcome()


def _one_slice(span: Span) -> Span:
    """Nothing is read of the others now; a span that is read whole or not at all stays as it is."""
    filled = [one for one in span.slices if isinstance(one, OffsetSlice) and not one.empty]
    if span.whole or not filled:
        return span
    chosen = random.choice(filled)  # noqa: S311 - so that each partition has its turn
    return cut_short(span, {one.partition: one.after for one in filled if one is not chosen})


def cut_short(span: Span, upto: Mapping[str, int]) -> Span:
    """The span that was read, where tasks have stopped early.

    `upto` has for each partition that ends earlier the offset before which it ends.
    """
    slices = (
        replace(one, upto=upto[one.partition])
        if isinstance(one, OffsetSlice) and one.partition in upto
        else one
        for one in span.slices
    )
    return replace(span, slices=tuple(slices)) if upto else span


class TaskReading:
    """A pass that tasks read themselves, in one job or, if it is large, in several."""

    def __init__(self, work: Pass) -> None:
        self.work = work
        self._left = [index for index, piece in enumerate(work.span.slices) if not piece.empty]
        self._results: list[Result] = []

    def take(self, most: int | None = None) -> list[Indexes]:
        """Returns what is to be read next: of messages all slices, of parts at most so many.

        Parts that are read in their order are the share of one task.
        """
        if self.work.source.delivers == "messages":
            most = None
        taken, self._left = self._left[:most], [] if most is None else self._left[most:]
        if self.work.in_order and taken:
            return [tuple(taken)]
        return [(index,) for index in taken]

    def add(self, results: Iterable[Result]) -> None:
        self._results += results

    @property
    def over(self) -> bool:
        """Everything was read, or something has failed."""
        return not self._left or any(result.failure for result in self._results)

    def outcome(self) -> BatchOutcome:
        """The outcome of all that was read. Raises a task's own error again, the gravest first."""
        return _outcome(self.work, self._results)


def read(
    spark: SparkSession, asked: Mapping[TaskReading, Sequence[Indexes]], deal: Deal | None = None
) -> None:
    """Reads slices of several passes in one job; what came of them is added to each.

    `deal`: what each task reads; by default a few tasks have several slices each. Raises
    TransientError when Spark itself failed: then nothing is known about any of them.
    """
    works = [reading.work for reading in asked]
    shares = [(n, share) for n, taken in enumerate(asked.values()) for share in taken]
    tasks = (deal or _deal)(shares)
    if not tasks:
        return
    rows = spark.range(0, len(tasks), 1, len(tasks))
    results = _decode(collect(rows, _InTasks(tuple(works), tuple(tasks))))
    for n, reading in enumerate(asked):
        reading.add(result for result in results if result.of == n)


@dataclass(frozen=True)
class _InTasks:
    """The function that Spark runs: each row is the number of a task, which reads its shares."""

    works: tuple[Pass, ...]
    tasks: tuple[tuple[Share, ...], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_worker()
        for batch in batches:
            for task in batch.column("id").to_pylist():
                yield from self._do(self.tasks[task])

    def _do(self, shares: Sequence[Share]) -> Iterator[pa.RecordBatch]:
        messages = [share for share in shares if self.works[share[0]].source.delivers == "messages"]
        for n, indexes in shares:
            if (n, indexes) not in messages:
                yield _of(n, self.works[n].over_parts(indexes))
        for n, index, batches in read_together(self.works, messages):
            yield _of(n, self.works[n].over_messages(index, batches))


def _of(n: int, results: Iterable[Result]) -> pa.RecordBatch:
    return encode(replace(result, of=n) for result in results)


def _one_each(shares: Sequence[Share]) -> list[tuple[Share, ...]]:
    """Each slice is a task of its own, where the job is of one flow."""
    return [(share,) for share in shares]


def _all_in_one(shares: Sequence[Share]) -> list[tuple[Share, ...]]:
    return [tuple(shares)] if shares else []


def _deal(shares: Sequence[Share]) -> list[tuple[Share, ...]]:
    """Slices over a few tasks: each task costs as much as several small slices."""
    slices = sum(len(indexes) for _, indexes in shares)
    tasks = min(len(shares), max(_FEWEST_TASKS, -(-slices // _SLICES_OF_A_TASK)))
    return [tuple(shares[task::tasks]) for task in range(tasks)]


def _decode(outputs: Sequence[bytes]) -> list[Result]:
    return [decode_msgpack(output, Result) for output in outputs]


def _outcome(work: Pass, results: Sequence[Result]) -> BatchOutcome:
    raise_gravest([result.failure for result in results if result.failure])
    receipts: dict[str, list[Receipt]] = {one.ticket.target.branch: [] for one in work.branches}
    for result in results:
        if result.receipt:
            receipts[result.receipt.branch].append(result.receipt)
        if result.note:
            _tell(result.note)
    cuts = dict(result.cut for result in results if result.cut)
    counts = [result.counts for result in results if result.counts]
    return BatchOutcome(cut_short(work.span, cuts), receipts, counts)


@lru_cache(maxsize=1_000)
def _tell(note: str) -> None:
    """Once in the driver's life, however many tasks say it."""
    log.warning(note)
