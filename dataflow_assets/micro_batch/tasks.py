"""How work gets into Spark's tasks, and what they say back."""

from __future__ import annotations

import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.contracts import Source, SourceSession, Span
from dataflow_assets.errors import TransientError
from dataflow_assets.spark.errors import sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULT = pa.schema([("result", pa.binary())])

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""From the batches of one Spark partition to rows of RESULT."""


def frame(
    spark: SparkSession, source: SourceSession, span: Span, declared: Source, wanted: frozenset[str]
) -> DataFrame:
    """The span's messages with the wanted metadata; where the pass itself reads one row a slice.

    Work passes messages through `large_records.completed` before it looks at them.
    """
    if declared.delivers == "messages":
        return source.frame(spark, span, wanted)
    slices = len(span.slices)
    return spark.range(0, slices, 1, slices)


def collect(read: DataFrame, work: Work) -> list[bytes]:
    """Runs the work over the frame, and what it gave.

    Raises TransientError: what fails in Spark, not in our code, may succeed after a new attempt.
    """
    from grpc import RpcError
    from pyspark.errors import PySparkException

    try:
        table = read.mapInArrow(work, "result binary").toArrow()
    except (PySparkException, RpcError, OSError) as error:
        raise TransientError(f"the Spark job failed: {sentence(error)}") from error
    outputs: list[bytes] = table.column("result").to_pylist()
    return outputs


class CutOff(TransientError):
    """A job did not end in the time that it was given."""


@contextmanager
def limited(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Ends the jobs of this thread after so many seconds; they raise CutOff then.

    Called by the lane's thread around each job. The Python workers of the job's tasks are ended by
    Spark, so that a step that never returns frees its core.
    """
    tag, late = uuid.uuid4().hex, threading.Event()

    def end() -> None:
        late.set()
        spark.interruptTag(tag)

    timer = threading.Timer(seconds, end)
    spark.addTag(tag)
    timer.start()
    try:
        yield
    except TransientError as error:
        if late.is_set():
            raise CutOff(f"it did not end within {seconds:g} seconds") from error
        raise
    finally:
        timer.cancel()
        spark.removeTag(tag)


_SPARKS_ARCHIVES = re.compile(r"/(pyspark\.zip|py4j-[^/]*\.zip|[^/]*\.jar)(/|$)")


def forget_archives() -> None:
    """Takes Spark's own archives off this worker's import path; pyspark is installed beside us.

    Every task of a reused worker calls `importlib.invalidate_caches`, and each archive on the path
    then reads its whole directory again: 120 to 350 ms a task.
    """
    for path in [path for path in sys.path_importer_cache if _SPARKS_ARCHIVES.search(path)]:
        del sys.path_importer_cache[path]
    sys.path[:] = [path for path in sys.path if not _SPARKS_ARCHIVES.search(path)]
