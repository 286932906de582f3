"""The work of Spark's tasks: slices of messages are read, buckets of a table are merged."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from dataflow_assets import failpoints
from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.contracts import OffsetSlice
from dataflow_assets.errors import DataflowError
from dataflow_assets.languages.sql.state import output, tables
from dataflow_assets.languages.sql.state.files import StateFiles
from dataflow_assets.languages.sql.state.hops import Flowing, Hop
from dataflow_assets.languages.sql.state.manifest import StateFile, StateTable
from dataflow_assets.languages.sql.state.reading import ViewReader
from dataflow_assets.languages.sql.state.staged import StagedState, changes_of, stage
from dataflow_assets.micro_batch.defects import place, report_defects
from dataflow_assets.micro_batch.task_failures import TaskFailure, raise_gravest
from dataflow_assets.micro_batch.tasks import RESULT, collect, numbers, spare_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StatePlace:
    """The folder into which a task writes its files."""

    location: FilesConnection
    flow: str
    folder: str
    """Of the span, below that of the view."""

    def files(self) -> StateFiles:
        return StateFiles(self.location, self.flow)

    def name(self, kind: str) -> str:
        """A new file: a second attempt of a task writes another one."""
        return f"{self.folder}/{kind}-{uuid4().hex}.parquet"

    def changes(self, table: str) -> str:
        return f"{self.folder}/{table}-changes-{uuid4().hex}.arrow"


@dataclass(frozen=True)
class StateDone:
    """The result of a task."""

    staged: Mapping[str, StagedState] = field(default_factory=dict)
    """By the table that the changes are of."""
    parts: tuple[StateFile, ...] = ()
    bucket: int = 0
    kept: StateFile | None = None
    """All of the bucket; None: nothing."""
    records: int = 0
    refused: int = 0
    late: int = 0
    moments: Mapping[str, int | None] = field(default_factory=dict)
    """By the partition that was read the latest watermark of its rows."""
    first: int | None = None
    """When the first window of the bucket is final."""


@dataclass(frozen=True)
class ReadSlice:
    """A slice of messages -> changes of the first tables."""

    reader: ViewReader
    piece: OffsetSlice
    place: StatePlace
    buckets: Mapping[str, int]
    """By the table how many it has."""

    @property
    def about(self) -> tuple[str, str]:
        """The flow, and what of it is read, for people."""
        return self.place.flow, place("its source", self.piece)

    def __call__(self) -> StateDone:
        files, done = self.place.files(), StateDone()
        for _, read in self.reader.together([self.piece]):
            flowing = Flowing(self.reader.view, self.reader.environment)
            staged = _stage(files, self.place, flowing.arriving(read.changes), self.buckets)
            parts = part(files, self.place, read.refused)
            done = StateDone(
                staged,
                parts,
                records=read.records,
                refused=len(read.refused),
                late=read.late,
                moments={self.piece.partition: read.moment},
            )
        failpoints.reach("view.read")
        return done


@dataclass(frozen=True)
class MergeBucket:
    """One bucket of a table and its changes -> the bucket anew."""

    flowing: Flowing
    hop: Hop
    table: StateTable
    bucket: int
    staged: tuple[StagedState, ...]
    place: StatePlace
    buckets: Mapping[str, int]
    final: int | None = None
    """Windows that end by then are final."""

    @property
    def about(self) -> tuple[str, str]:
        """The flow, and what of it is merged, for people."""
        return self.place.flow, f"state of {self.hop.table}, bucket {self.bucket}"

    def __call__(self) -> StateDone:
        files = self.place.files()
        before = self._before(files)
        changes = changes_of(files, self.staged, self.bucket)
        old = tables.matching(before, changes["k"].combine_chunks())
        moved = self.flowing.merge(self.hop, old.select(["k", "v"]), changes)
        rows = tables.merge([before, tables.touch(moved.puts, self.flowing.now)])
        if self.final is not None:
            ended, rows = tables.divide(rows, self.final)
            moved = moved.and_then(self.flowing.close(self.hop, ended))
        failpoints.reach("view.merged")
        kept = None
        if rows.num_rows:
            name = self.place.name(f"{self.hop.table}-{self.bucket:05}")
            kept = files.write(name, tables.encode(rows), rows.num_rows)
        staged = _stage(files, self.place, moved.changes, self.buckets)
        parts = part(files, self.place, moved.output)
        first = tables.first([rows]) if self.flowing.is_windowed(self.hop) else None
        return StateDone(staged, parts, self.bucket, kept, first=first)

    def _before(self, files: StateFiles) -> pa.Table:
        since, count = self.flowing.since(self.hop), self.buckets[self.hop.table]
        read = partial(load_alive, files, since)
        return tables.bucket_rows(self.table, self.bucket, count, read)


Task = ReadSlice | MergeBucket


def load_alive(files: StateFiles, since: int | None, file: StateFile) -> pa.Table:
    """The rows of a file of a table, without those that are forgotten."""
    return tables.alive(load(files, file), since)


def _stage(
    files: StateFiles,
    place: StatePlace,
    changes: Mapping[str, pa.Table],
    buckets: Mapping[str, int],
) -> dict[str, StagedState]:
    return {
        name: stage(files, place.changes(name), some, buckets[name])
        for name, some in changes.items()
    }


def load(files: StateFiles, file: StateFile) -> pa.Table:
    return tables.decode(files.read(file.name, file.digest)).cast(tables.SCHEMA)


def part(
    files: StateFiles, place: StatePlace, rows: Sequence[output.OutputRow]
) -> tuple[StateFile, ...]:
    if not rows:
        return ()
    file = files.write(place.name("output"), output.write_rows(rows), len(rows))
    failpoints.reach("view.output")
    return (file,)


@dataclass(frozen=True)
class _StateInTasks:
    """The function that Spark runs: each row is the number of a task."""

    tasks: tuple[Task, ...]
    failpoint: failpoints.Failpoint | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_worker()
        failpoints.arm(self.failpoint)
        for batch in batches:
            results = [self._do(number) for number in batch.column("id").to_pylist()]
            yield pa.record_batch([[pickle.dumps(one) for one in results]], RESULT)

    def _do(self, number: int) -> Any:
        task = self.tasks[number]
        try:
            with report_defects(*task.about):
                return task()
        except DataflowError as error:
            return TaskFailure.of(error)


def run(spark: SparkSession, tasks: Sequence[Task]) -> list[StateDone]:
    """Runs tasks as one job, and what came of each, in any order.

    Raises a task's own error again, the gravest first; TransientError when Spark itself failed.
    """
    if not tasks:
        return []
    work = _StateInTasks(tuple(tasks), failpoints.from_environment())
    results: list[Any] = [pickle.loads(one) for one in collect(numbers(spark, len(tasks)), work)]  # noqa: S301 - of tasks of our own
    raise_gravest([one for one in results if isinstance(one, TaskFailure)])
    return results
