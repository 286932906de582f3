"""Processes of their own that begin in milliseconds: forked from one that has imported everything.

What they run is what `python -m dataflow_assets.cli` would run, without the seconds that Python
takes to import Spark's client, Arrow and the rest.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import connection, get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

_PRELOADED = [
    "clickhouse_connect",
    "confluent_kafka.admin",
    "dataflow_assets.cli.commands",
    "dataflow_assets.registry",
    "pandas",
    "psycopg",
    "pyiceberg.catalog.rest",
    "pyspark.sql.connect.session",
    "pytest",
    "rich.console",
    "tests.preloaded",
]


def forking() -> ForkServerContext:
    """Makes processes that have imported everything."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


_LOOK = 0.02  # seconds between two looks at what a process has printed
PART_BYTES = "DATAFLOW_TEST_PART_BYTES"
"""The variable with which runs of a flow's own plan parts of so many bytes, as a lane does."""


class Forked:
    """One process; the verbs are those of `subprocess.Popen` with pipes of text."""

    def __init__(self, arguments: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        handle, self._out = tempfile.mkstemp(prefix="dataflow-forked-")
        os.close(handle)
        given = (tuple(arguments), self._out, str(folder), dict(env))
        self._process: ForkServerProcess = forking().Process(target=_command, args=given)
        self._asking = threading.Lock()  # the exit code is read from a pipe, once
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal that ended it."""
        with self._asking:
            return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.returncode) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("dataflow", timeout or 0)
            connection.wait([self._process.sentinel], _LOOK)
        return code

    def lines(self, *, errors: bool) -> Iterator[str]:
        """What it prints, line by line while it runs, to its end."""
        path = Path(f"{self._out}.err" if errors else self._out)
        while self.returncode is None and not path.exists():
            time.sleep(_LOOK)
        if not path.exists():  # it was killed before it could print
            return
        line = ""
        with path.open() as printed:
            while True:
                over = self.returncode is not None
                for piece in iter(printed.readline, ""):
                    line += piece
                    if line.endswith("\n"):
                        yield line
                        line = ""
                if over:
                    return
                time.sleep(_LOOK)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it printed, once it has ended."""
        self.wait(timeout)
        paths = [Path(self._out), Path(f"{self._out}.err")]
        out, err = [path.read_text() if path.exists() else "" for path in paths]
        for path in paths:
            path.unlink(missing_ok=True)
        return out, err


def _command(arguments: Sequence[str], out: str, folder: str, env: Mapping[str, str]) -> None:
    for path, stream in ((out, 1), (f"{out}.err", 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    faulthandler.enable()
    from dataflow_assets.cli import main

    if size := env.get(PART_BYTES):
        _plan_short_parts(int(size))
    sys.exit(main(arguments))


def _plan_short_parts(size: int) -> None:
    from dataflow_assets.contracts import Limit
    from dataflow_assets.runs.host import Alone

    def limit(self: Alone, declared: Limit) -> Limit:
        return Limit(declared.records, size, declared)

    Alone.limit = limit  # type: ignore[method-assign]
