"""One task of a connector, in a thread of its own: records are sealed, then the task is told."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, NamedTuple

import jpype
import pyarrow as pa

from dataflow_assets.connectors.kafka_connect.host.busy import Busy
from dataflow_assets.connectors.kafka_connect.host.helper import unpack
from dataflow_assets.connectors.kafka_connect.host.java_errors import sentence
from dataflow_assets.connectors.kafka_connect.host.resuming import Repeats
from dataflow_assets.connectors.kafka_connect.host.sealing import Sealer
from dataflow_assets.connectors.kafka_connect.host.virtual_machine import VirtualMachine
from dataflow_assets.connectors.kafka_connect.states import Name
from dataflow_assets.errors import TransientError
from dataflow_assets.failpoints import reach

log = logging.getLogger(__name__)
_CROWDED = 0.2  # seconds until somebody looks again whether there is room
_RETRY = 1.0  # seconds after an error that the task calls temporary
_WITHOUT_ROWS = 10.0  # seconds until a part is sealed whose records were all dropped
_FIRST = 30.0  # seconds that the first poll may take before a task counts as one that has nothing


class ConnectorTask(NamedTuple):
    """A task of the connector, and what is known of it."""

    task: Any
    helper: Any
    """Packs what the task delivers."""
    busy: Busy


class Task:
    """Polls until it is stopped. Records that are not sealed yet are kept as the task gave them."""

    def __init__(
        self, number: int, made: ConnectorTask, machine: VirtualMachine, sealer: Sealer
    ) -> None:
        self.number, self._delivered = number, time.monotonic() + _FIRST
        self.error: BaseException | None = None
        self._task, self._helper, self._busy = made
        self._machine, self._sealer = machine, sealer
        self._repeats = Repeats(sealer.known)
        self._lock = threading.Lock()
        self._batches: list[pa.RecordBatch] = []
        self._lists: list[Any] = []
        self._since, self._patience = 0.0, 0.0
        self._rested = False
        """The last poll has delivered nothing."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"task-{number}", daemon=True)

    @property
    def state(self) -> Name:
        if self.error is not None:
            return "FAILED"
        return "RUNNING" if self._sealer.has_room() else "PAUSED"

    @property
    def active(self) -> float:
        """The moment from which on it is quiet, by `time.monotonic`; it may be to come."""
        return max(self._delivered, self._busy.until)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float) -> bool:
        """Ends the polling; False where the task does not return in time.

        What it has delivered and nobody has sealed was never delivered: it is polled again.
        """
        self.seal_when_due(now=True)
        self._stopped.set()
        self._task.stop()
        self._thread.join(patience)
        return not self._thread.is_alive()

    def seal_when_due(self, *, now: bool = False) -> None:
        """Stores what has waited long enough, then tells the task: called by another thread."""
        with self._lock:
            due = now or time.monotonic() - self._since >= self._patience
            if due and self._sealable():
                self._seal()

    def _sealable(self) -> bool:
        if not self._batches:
            return False
        return self._rested or not self._sealer.may_be_cut(self._batches)

    def _run(self) -> None:
        try:
            self._machine.enter()
            while not self._stopped.is_set():
                if not self._sealer.has_room():
                    self._delivered = time.monotonic()  # who is not asked is not quiet
                    self._stopped.wait(_CROWDED)
                else:
                    self._take(self._poll())
        except BaseException as error:  # noqa: BLE001 - Java's errors, for the thread that reports
            self.error = error

    def _poll(self) -> Any:
        try:
            return self._task.poll()
        except jpype.JException as error:
            if not isinstance(
                error, jpype.JClass("org.apache.kafka.connect.errors.RetriableException")
            ):
                raise
            self._busy.note_failure()
            log.warning("task %s: %s; trying again", self.number, sentence(error))
            self._begin_again()
            self._stopped.wait(_RETRY)
            return None

    def _begin_again(self) -> None:
        """The task may ask where it is, as Debezium's do after a lost connection.

        What it has delivered is sealed first. What cannot be sealed comes again.

        Raises:
            TransientError: inside of a snapshot, which begins again without what is sealed of it:
                only the next process throws that away.
        """
        with self._lock:
            if self._batches and not self._sealer.may_be_cut(self._batches):
                self._seal()
            self._batches, self._lists = [], []
            if self._sealer.is_open(self.number):
                raise TransientError(
                    f"task {self.number}: its snapshot was cut off: the process is started again, "
                    "and the snapshot with it"
                )
            self._repeats = Repeats(self._sealer.known)

    def _take(self, records: Any) -> None:
        self._delivered = min(self._delivered, time.monotonic())
        self._rested = records is None or records.isEmpty()
        if self._rested:
            return
        batch = self._repeats.drop(unpack(bytes(self._helper.pack(records))))
        with self._lock:
            if not self._batches:
                self._since, self._patience = time.monotonic(), _WITHOUT_ROWS
            if batch.column("dropped").null_count:
                self._patience = self._sealer.seconds
            self._batches.append(batch)
            self._lists.append(records)
            self._busy.note_delivery()
            self._delivered = time.monotonic()
            if self._sealer.full(self._batches) and self._sealable():
                self._seal()

    def _seal(self) -> None:
        """Durable first, told second.

        What is durable is never sealed again, also where the task fails when it is told.
        """
        self._sealer.seal(self.number, pa.Table.from_batches(self._batches))
        lists, self._batches, self._lists = self._lists, [], []
        for records in lists:
            self._helper.done(self._task, records)
        reach("connect.told")
        self._delivered = time.monotonic()
