"""What a worker that is used again reads of archives before each of its tasks: nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from dataflow_assets.micro_batch.tasks import collect, forget_archives


def test_a_worker_keeps_no_finder_of_an_archive(spark: SparkSession) -> None:
    def kept(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The finders that are left from the task before; then as a pass does."""
        import os
        import sys
        from zipimport import zipimporter

        list(batches)  # Spark keeps a worker that has read its input
        left = sum(isinstance(one, zipimporter) for one in sys.path_importer_cache.values())
        forget_archives()
        yield pa.record_batch({"result": [f"{os.getpid()} {left}".encode()]})

    seen: dict[str, list[int]] = {}
    for _ in range(6):
        for output in collect(spark.range(0, 2, 1, 2), kept):
            worker, left = output.split()
            seen.setdefault(worker.decode(), []).append(int(left))
    # What the first task imports after its look is found by the second one.
    again = [left for found in seen.values() for left in found[2:]]
    assert again, "no worker was used three times"
    assert not any(again)
