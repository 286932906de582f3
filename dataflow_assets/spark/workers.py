"""Leftovers of a session of our own on the warm server: the parent of its Python workers.

Spark starts one for each session, ends the workers after a minute without work, and their parent
never: 40 MB for each run of a user's asset. Nobody can use it once its session is closed.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dataflow_assets.spark import connect, warm_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARENT = "pyspark.daemon"
# Spark's own name of a session: of the folder of its files, and in its workers' environment.
SESSION = "SPARK_JOB_ARTIFACT_UUID"


def parent(session: SparkSession, folder: Path) -> psutil.Process | None:
    """The parent of the session's workers on the server of a folder; None where it had none."""
    parents = {name: process for process in _children(folder) if (name := _session(process))}
    return parents.get(_name(session)) if parents else None


def end(process: psutil.Process | None) -> None:
    """Ends it with its workers; psutil knows it from another process of the same number."""
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            process.terminate()


def _children(folder: Path) -> list[psutil.Process]:
    server = warm_server.running(folder)
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(server.pid).children() if server else []
    return []


def _session(process: psutil.Process) -> str | None:
    with suppress(psutil.Error):
        if PARENT in process.cmdline():
            return process.environ().get(SESSION)
    return None


def _name(session: SparkSession) -> str:
    """Returns what the server calls a session, without a job, which would wait for those of others.

    The client does not say; the list of files of all sessions does, of a file that we send.
    """
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / Path(folder).name
        mark.touch()
        connect.send(session, mark, file=True)
    paths = [Path(row[0]) for row in session.sql("LIST FILES").collect()]
    return next(path.parent.parent.name for path in paths if path.name == mark.name)
