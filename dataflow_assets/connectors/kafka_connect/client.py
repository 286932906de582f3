"""The process that runs the connector, as the driver has it: started, listened to, ended."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

from dataflow_assets.connectors.kafka_connect.artifacts import fetch_files
from dataflow_assets.connectors.kafka_connect.errors import HostFailure
from dataflow_assets.connectors.kafka_connect.host.protocol import (
    ConnectOrder,
    Event,
    decode,
    encode,
)
from dataflow_assets.connectors.kafka_connect.mask import Mask
from dataflow_assets.connectors.kafka_connect.options import KafkaConnectSourceOptions
from dataflow_assets.contracts import Limit

log = logging.getLogger(__name__)
_OPENING = 90.0  # seconds; the host of an older run may hold the spool for 60
_ENDING = 5.0
_STARTING = 600.0  # seconds, each time: a task of Debezium may read the history of all tables
_SILENT = 120.0  # seconds, while all tasks run
_NO_MEMORY = 3  # the code with which a JVM without memory ends
_LEAST_ROWS, _MOST_ROWS = 1_000, 10_000
_MOST_BYTES = 16 * 1024 * 1024
_MODULE = "dataflow_assets.connectors.kafka_connect.host"
_LONGEST = 1_000  # characters of a message
_MOST_LINES = 10_000  # of the log that wait: a connector may log much before it starts


class HostProcess:
    """One run of a connector. It ends with this process, however that ends."""

    def __init__(self, order: ConnectOrder, hidden: Iterable[str]) -> None:
        self._order = order
        self._hidden = frozenset(hidden)
        self._mask = Mask(self._hidden)
        self._logged: deque[str] | None = deque(maxlen=_MOST_LINES)
        """The last lines, which wait until all secrets are known; None from then on."""
        self._logging = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._opened, self._reported = threading.Event(), threading.Event()
        self._spool, self._failed = "", Event("failed", message="")
        self._quiet, self._heard, self._spoken = 0.0, 0.0, time.monotonic()
        self._patience = _STARTING
        self._listeners = [
            threading.Thread(target=listen, daemon=True, name="connector")
            for listen in (self._events, self._lines)
        ]
        for one in self._listeners:
            one.start()
        with suppress(BrokenPipeError):  # `check` says why it has ended
            self._pipe.write(encode(order))
            self._pipe.flush()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101 - as it was started
        return self._process.stdin

    @property
    def pid(self) -> int:
        return self._process.pid

    def spool(self) -> str:
        """The id of the spool, once the process has it. Raises HostFailure where it ends first."""
        until = time.monotonic() + _OPENING
        while not self._opened.wait(0.05):
            self.check()
            if time.monotonic() > until:
                raise HostFailure(f"the spool was not opened within {_OPENING:g} seconds")
        return self._spool

    def check(self) -> None:
        """Raises HostFailure where the process has ended, or says nothing any more."""
        if self._process.poll() is None:
            patience = self._patience
            if time.monotonic() - self._spoken > patience:
                raise HostFailure(
                    f"it has neither started, failed nor answered for {patience:g} seconds, and is "
                    "ended: see what it has logged, and which call to its source may hang"
                )
            return
        self._reported.wait(_ENDING)
        message = self._failed.message or self._cause_of_death(self._process.returncode)
        # Masked before it is cut: half of a secret would not be found.
        raise HostFailure(self._mask(message)[:_LONGEST], lasting=self._failed.lasting)

    def _cause_of_death(self, code: int) -> str:
        if code == _NO_MEMORY:
            return (
                f"its JVM is out of memory (heap: {self._order.heap}): raise heap, or lower how "
                "many records the connector holds at once (batch.size, max.batch.size or alike)"
            )
        if code == -signal.SIGKILL:
            return "its process was killed (SIGKILL): the machine may have no memory left"
        return f"its process has ended with code {code}"

    def quiet_since(self, moment: float) -> float:
        """For how many seconds, of those since a moment, no task has delivered anything.

        Args:
            moment: by `time.monotonic`. Nothing is quiet before all tasks have started.
        """
        return min(self._quiet, self._heard - moment) if self._heard else 0.0

    def end(self) -> None:
        """Ends it, after the connector was stopped if that takes no 4 seconds; safe twice."""
        with suppress(BrokenPipeError):
            self._pipe.close()
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()
        for one in self._listeners:
            one.join(_ENDING)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _events(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - as it was started
        for line in self._process.stdout:
            self._take(decode(line, Event))
        self._log_from_now(())
        self._reported.set()

    def _take(self, event: Event) -> None:
        self._spoken = time.monotonic()
        match event.event:
            case "opened":
                self._spool = event.spool
                self._opened.set()
            case "secrets":
                self._log_from_now(event.values)
            case "starting":
                self._patience = _STARTING
            case "started":
                self._patience = _SILENT
                log.info("%s runs with %s tasks", self._order.connector, event.tasks)
            case "alive":
                self._quiet, self._heard = event.quiet, time.monotonic()
            case "failed":
                self._failed = event

    def _lines(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - as it was started
        for line in self._process.stderr:
            text = line.decode(errors="replace").rstrip()
            with self._logging:
                if self._logged is None:
                    self._log(text)
                else:
                    self._logged.append(text)

    def _log_from_now(self, values: Iterable[str]) -> None:
        """`values`: more that must be shown nowhere."""
        with self._logging:
            self._hidden = self._hidden.union(values)
            self._mask = Mask(self._hidden)
            for text in self._logged or ():
                self._log(text)
            self._logged = None

    def _log(self, text: str) -> None:
        log.info("%s: %s", self._order.connector, self._mask(text))


def order_of(
    source: KafkaConnectSourceOptions,
    jars: list[str],
    limit: Limit,
    *,
    spool_id: str,
    position: int,
) -> ConnectOrder:
    """The order to the host for a source with its secrets in place; its artifacts are fetched.

    `jars`: of Connect itself.
    `limit`: of a micro-batch. Parts are as large, within bounds that a disk bears.
    `spool_id`, `position`: the spool that the flow has read so far, and up to which part.
    """
    fetched = fetch_files(source.artifacts)
    return ConnectOrder(
        connector=source.connector_class,
        config=source.properties,
        hidden=sorted(source.hidden_keys),
        plugins=[*source.folders, *fetched.folders],
        plugin_jars=fetched.jars,
        jars=jars,
        spool=source.spool,
        spool_id=spool_id,
        position=position,
        tasks=source.tasks_max,
        heap=source.heap,
        plain=not source.envelope,
        schemas=source.schemas,
        part_rows=min(max(_LEAST_ROWS, limit.records), _MOST_ROWS),
        part_bytes=min(limit.bytes, _MOST_BYTES),
    )
