"""What a session of our own leaves behind on the warm server: the parent of its Python workers.

Spark starts one for each session, ends the workers after a minute without work, and their parent
never: 40 MB for each run of a user's asset. Nobody can use it once its session is closed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa

from dataflow_assets.spark import warm_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARENT = "pyspark.daemon"


def parent(session: SparkSession, folder: Path, since: float) -> psutil.Process | None:
    """The parent of the session's workers on the server of a folder; None where it had none."""
    young = {process.pid: process for process in _parents(folder) if _born(process) >= since}
    if not young:
        return None  # asking would start one
    table = session.range(0, 1, 1, 1).mapInArrow(_ask, "pid long").toArrow()
    return young.get(table.column("pid")[0].as_py())


def end(process: psutil.Process | None) -> None:
    """Ends it with its workers; psutil knows it from another process of the same number."""
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            process.terminate()


def _parents(folder: Path) -> list[psutil.Process]:
    server = warm_server.running(folder)
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(server.pid).children() if server and server.pid else []
        return [process for process in children if _named(process)]
    return []


def _named(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return PARENT in process.cmdline()
    return False


def _born(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        return process.create_time()
    return 0.0


def _ask(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch([[os.getppid()]], ["pid"])
