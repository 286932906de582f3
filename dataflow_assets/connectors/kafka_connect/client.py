"""The process that runs the connector, as the driver has it: started, listened to, ended."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import IO

from dataflow_assets.connectors.kafka_connect.errors import HostFailure
from dataflow_assets.connectors.kafka_connect.host.protocol import Event, Order, decode, encode
from dataflow_assets.connectors.kafka_connect.options import KafkaConnectSourceOptions

log = logging.getLogger(__name__)
_OPENING = 90.0  # seconds; the host of an older run may hold the spool for 60
_ENDING = 5.0
_MODULE = "dataflow_assets.connectors.kafka_connect.host"
MASK = "***"


class HostProcess:
    """One run of a connector. It ends with this process, however that ends."""

    def __init__(self, order: Order, hidden: Iterable[str]) -> None:
        self._order = order
        self._hidden = {value for value in hidden if value}
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._opened, self._told = threading.Event(), threading.Event()
        self._spool, self._failed = "", Event("failed", message="")
        self._quiet, self._heard = 0.0, 0.0
        for listen in (self._events, self._lines):
            threading.Thread(target=listen, daemon=True, name="connector").start()
        self._pipe.write(encode(order))
        self._pipe.flush()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101 - as it was started
        return self._process.stdin

    @property
    def pid(self) -> int:
        """Of the process."""
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
        """Raises HostFailure where the process has ended."""
        if self._process.poll() is None:
            return
        self._told.wait(_ENDING)
        code = self._process.returncode
        message = self._failed.message or f"its process has ended with code {code}"
        raise HostFailure(self._masked(message), lasting=self._failed.lasting)

    def quiet_since(self, moment: float) -> float:
        """For how many seconds, of those since a moment, no task has delivered anything.

        Args:
            moment: by `time.monotonic`. Nothing is quiet before all tasks have started.
        """
        return min(self._quiet, self._heard - moment) if self._heard else 0.0

    def end(self) -> None:
        """Ends it; safe twice."""
        if self._process.poll() is None:
            self._pipe.close()
            try:
                self._process.wait(_ENDING)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _events(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - as it was started
        for line in self._process.stdout:
            self._take(decode(line, Event))
        self._told.set()

    def _take(self, event: Event) -> None:
        match event.event:
            case "opened":
                self._spool = event.spool
                self._opened.set()
            case "secrets":
                config = self._order.config
                self._hidden |= {config[key] for key in event.keys if config.get(key)}
            case "started":
                log.info("%s runs with %s tasks", self._order.connector, event.tasks)
            case "alive":
                self._quiet, self._heard = event.quiet, time.monotonic()
            case "failed":
                self._failed = event

    def _lines(self) -> None:
        """What the connector logs, in the log of the run."""
        assert self._process.stderr is not None  # noqa: S101 - as it was started
        for line in self._process.stderr:
            text = line.decode(errors="replace").rstrip()
            log.info("%s: %s", self._order.connector, self._masked(text))

    def _masked(self, text: str) -> str:
        for value in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(value, MASK)
        return text


def order_of(source: KafkaConnectSourceOptions, jars: list[str], spool_id: str) -> Order:
    """What the host is told of a source with its secrets in place."""
    return Order(
        connector=source.connector_class,
        config=source.properties,
        plugins=list(source.plugins),
        jars=jars,
        spool=source.spool,
        spool_id=spool_id,
        tasks=source.tasks_max,
        heap=source.heap,
    )
