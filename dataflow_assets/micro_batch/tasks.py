"""Shipping of work into Spark's tasks, and their answers."""

from __future__ import annotations

import gc
import logging
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING
from zipimport import zipimporter

import pyarrow as pa

from dataflow_assets.contracts import Source, SourceSession, Span
from dataflow_assets.contracts.reading import ChoosesReader, SpanReader, SparkFrames
from dataflow_assets.errors import Defect, TransientError
from dataflow_assets.errors.defects import is_defect_of
from dataflow_assets.spark.errors import python_error, sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

MOMENT = 0.5  # seconds between two questions whether a job is to end
RESULT = pa.schema([("result", pa.binary())])

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""From the batches of one Spark partition to rows of RESULT."""


def frame(
    spark: SparkSession, source: SourceSession, span: Span, declared: Source, wanted: frozenset[str]
) -> DataFrame:
    """The span's messages with the wanted metadata; where the pass itself reads one row a slice.

    Work passes messages through `large_records.with_large_values` before it looks at them.
    """
    if isinstance(source, SparkFrames) and declared.delivers == "messages":
        return source.frame(spark, span, wanted)
    return numbers(spark, len(span.slices))


def span_reader(source: SourceSession, span: Span) -> SpanReader:
    """Returns who reads a span of messages: Spark's reader, unless their session chooses."""
    return source.reader(span) if isinstance(source, ChoosesReader) else "spark"


def numbers(spark: SparkSession, count: int, tasks: int | None = None) -> DataFrame:
    """The numbers from 0 on; by default each in a Spark partition of its own, one for each task."""
    return spark.range(0, count, 1, tasks or count)


def collect(read: DataFrame, work: Work) -> list[bytes]:
    """Runs the work over the frame, and what it gave.

    Raises JobDied: what fails in Spark, not in our code, may succeed after a new attempt. What
    fails in our code is a Defect.
    """
    from grpc import RpcError
    from pyspark.errors import PySparkException

    try:
        table = read.mapInArrow(_Fed(work), "result binary").toArrow()
    except (PySparkException, RpcError, OSError) as error:
        why = f"the Spark job failed: {sentence(error)}"
        if is_defect_of(python_error(error)):
            raise Defect(f"{why}; a defect, which trying again does not fix: report it") from error
        raise JobDied(why) from error
    outputs: list[bytes] = table.column("result").to_pylist()
    return outputs


@dataclass(frozen=True)
class _Fed:
    """Work whose input comes from Spark: where that breaks off, it is no mistake of our code."""

    work: Work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.work(_input_rows(batches))


def _input_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowException, ValueError) as error:
        raise JobDied(f"Spark's rows broke off: {error}") from error


class JobDied(TransientError):
    """Spark has failed, or a worker: nothing is known about what the job has read."""


class CutOff(JobDied):
    """A job did not end in the time that it was given."""


def within(seconds: float) -> Callable[[], str]:
    """For `limit_jobs`: so much time from now on."""
    end = time.monotonic() + seconds
    return lambda: f"it did not end within {seconds:g} seconds" if time.monotonic() >= end else ""


@contextmanager
def limit_jobs(spark: SparkSession, over: Callable[[], str]) -> Iterator[None]:
    """Ends the jobs of this thread once `over` gives a reason; they raise CutOff with it then.

    Called in a lane around each job; `over` is asked every moment by another thread. The Python
    workers of the job's tasks are ended by Spark, so that a step that never returns frees its core.
    """
    tag, done = uuid.uuid4().hex, threading.Event()
    reasons: list[str] = []

    def watch() -> None:
        while not done.wait(MOMENT):
            if reason := over():
                reasons.append(reason)
                _interrupt(spark, tag)  # again and again: the job may not have begun yet

    spark.addTag(tag)
    threading.Thread(target=watch, name="dataflow-limit", daemon=True).start()
    try:
        yield
    except TransientError as error:
        if reasons:
            raise CutOff(reasons[0]) from error
        raise
    finally:
        done.set()
        spark.removeTag(tag)


def _interrupt(spark: SparkSession, tag: str) -> None:
    try:
        spark.interruptTag(tag)
    except Exception as error:  # noqa: BLE001 - a server that is gone has no job either
        log.warning("a job could not be interrupted: %s", sentence(error))


_tasks = count()


def spare_worker() -> None:
    """Keeps this worker from doing much again and again between its tasks.

    Called at the start of each task. Spark has all objects looked through for garbage after each
    task, 50 to 100 ms with all our modules; what is there after the first one is left out.
    """
    forget_archives()
    if next(_tasks) == 1:
        gc.freeze()


_SPARKS_ARCHIVES = re.compile(r"/(pyspark\.zip|py4j-[^/]*\.zip|[^/]*\.jar)(/|$)")


def forget_archives() -> None:
    """Keeps this worker from reading the directories of archives again before each task.

    Every task of a reused worker calls `importlib.invalidate_caches`, and each finder of an archive
    then reads the archive's whole directory again: 120 to 350 ms a task. Our own archive has a
    finder for each of its packages; a finder that is wanted again is made from the directory that
    Python keeps. Spark's own archives leave the import path too: pyspark is installed beside us.
    """
    for path, finder in [*sys.path_importer_cache.items()]:
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    sys.path[:] = [path for path in sys.path if not _SPARKS_ARCHIVES.search(path)]
