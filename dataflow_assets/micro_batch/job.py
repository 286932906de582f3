"""Passes as Spark jobs: one over a frame of Spark's reader, or many whose tasks read themselves."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from dataflow_assets.contracts import Receipt, SourceSession, Span
from dataflow_assets.errors import DataflowError
from dataflow_assets.micro_batch.fused import Pass, Result, encoded
from dataflow_assets.micro_batch.task_failures import raise_gravest
from dataflow_assets.micro_batch.task_messages import Share, read_together
from dataflow_assets.micro_batch.tasks import collect, forget_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_SLICES_OF_A_TASK = 25
# The fewest tasks of a job of several passes: a task waits for its sink most of the time.
_FEWEST_TASKS = 4


@dataclass(frozen=True)
class Planned:
    """A pass, and the session that has planned its span."""

    work: Pass
    source: SourceSession

    @property
    def in_tasks(self) -> bool:
        """The tasks read the span themselves, and need no frame of Spark's reader."""
        messages = self.work.source.delivers == "messages"
        return not messages or self.source.reads_in_tasks(self.work.span)


@dataclass(frozen=True)
class Outcome:
    """What was read of the span, and the receipts by branch."""

    span: Span
    receipts: Mapping[str, Sequence[Receipt]]


def run(spark: SparkSession, planned: Planned) -> Outcome:
    """Runs one pass as a job of its own.

    Raises a task's own error again, the gravest first; TransientError when Spark itself failed.
    """
    if planned.in_tasks:
        return _outcome(planned.work, _collected(spark, [planned.work], _alone(planned.work)))
    work = planned.work
    read = planned.source.frame(spark, work.span, work.wanted)
    return _outcome(work, _decoded(collect(read, work)))


def run_together(spark: SparkSession, works: Sequence[Pass]) -> list[Outcome | DataflowError]:
    """Runs passes that tasks read themselves as one job; an outcome or an error for each.

    Raises TransientError when Spark itself failed: then nothing is known about any of them.
    """
    results = _collected(spark, works, _dealt(works))
    return [_settled(work, [r for r in results if r.of == n]) for n, work in enumerate(works)]


@dataclass(frozen=True)
class _InTasks:
    """The function that Spark runs: each row is the number of a task, which reads its shares."""

    works: tuple[Pass, ...]
    tasks: tuple[tuple[Share, ...], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_archives()
        for batch in batches:
            for task in batch.column("id").to_pylist():
                yield from self._done(self.tasks[task])

    def _done(self, shares: Sequence[Share]) -> Iterator[pa.RecordBatch]:
        messages = [share for share in shares if self.works[share[0]].source.delivers == "messages"]
        for n, indexes in shares:
            if (n, indexes) not in messages:
                yield _of(n, self.works[n].over_parts(indexes))
        for n, index, batches in read_together(self.works, messages):
            yield _of(n, self.works[n].over_messages(index, batches))


def _of(n: int, results: Iterable[Result]) -> pa.RecordBatch:
    return encoded(replace(result, of=n) for result in results)


def _collected(
    spark: SparkSession, works: Sequence[Pass], tasks: Sequence[tuple[Share, ...]]
) -> list[Result]:
    if not tasks:
        return []
    read = spark.range(0, len(tasks), 1, len(tasks))
    return _decoded(collect(read, _InTasks(tuple(works), tuple(tasks))))


def _alone(work: Pass) -> list[tuple[Share, ...]]:
    """A task for each slice that is not committed; one for all that must be read in order."""
    left = _left(work)
    if work.in_order:
        return [((0, left),)] if left else []
    return [((0, (index,)),) for index in left]


def _dealt(works: Sequence[Pass]) -> list[tuple[Share, ...]]:
    """The slices of all passes over a few tasks: each task costs as much as several slices."""
    shares = [share for n, work in enumerate(works) for share in _shares(n, work)]
    slices = sum(len(indexes) for _, indexes in shares)
    tasks = min(len(shares), max(_FEWEST_TASKS, -(-slices // _SLICES_OF_A_TASK)))
    return [tuple(shares[task::tasks]) for task in range(tasks)]


def _shares(n: int, work: Pass) -> list[Share]:
    """The parts of a pass that may be read by different tasks."""
    left = _left(work)
    if work.in_order:
        return [(n, left)] if left else []
    return [(n, (index,)) for index in left]


def _left(work: Pass) -> tuple[int, ...]:
    """Slices that hold something; a part that is empty was committed before a crash."""
    return tuple(index for index, piece in enumerate(work.span.slices) if not piece.empty)


def _decoded(outputs: Sequence[bytes]) -> list[Result]:
    return [msgspec.msgpack.decode(output, type=Result) for output in outputs]


def _settled(work: Pass, results: Sequence[Result]) -> Outcome | DataflowError:
    try:
        return _outcome(work, results)
    except DataflowError as error:
        return error


def _outcome(work: Pass, results: Sequence[Result]) -> Outcome:
    raise_gravest([result.failure for result in results if result.failure])
    receipts: dict[str, list[Receipt]] = {one.ticket.target.branch: [] for one in work.branches}
    for result in results:
        if result.receipt:
            receipts[result.receipt.branch].append(result.receipt)
        if result.note:
            _tell(result.note)
    cuts = dict(result.cut for result in results if result.cut)
    return Outcome(work.span.cut(cuts), receipts)


@lru_cache(maxsize=1_000)
def _tell(note: str) -> None:
    """Once in the driver's life, however many tasks say it."""
    log.warning(note)
