"""A connector that runs: its tasks, and what they have come to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jpype

from dataflow_assets.connectors.kafka_connect.host.busy import SLOT_RETRIES, Busy
from dataflow_assets.connectors.kafka_connect.host.contexts import (
    connector_context,
    offset_reader,
    task_context,
)
from dataflow_assets.connectors.kafka_connect.host.java_errors import connector_error
from dataflow_assets.connectors.kafka_connect.host.plugins import jars_of
from dataflow_assets.connectors.kafka_connect.host.protocol import ConnectOrder, Event
from dataflow_assets.connectors.kafka_connect.host.resolving import resolve
from dataflow_assets.connectors.kafka_connect.host.sealing import Sealer
from dataflow_assets.connectors.kafka_connect.host.task import ConnectorTask, Task
from dataflow_assets.connectors.kafka_connect.host.transforms import helper_of
from dataflow_assets.connectors.kafka_connect.host.virtual_machine import (
    VirtualMachine,
    java_map,
)
from dataflow_assets.connectors.kafka_connect.mask import is_long_enough
from dataflow_assets.connectors.kafka_connect.providers import is_reference
from dataflow_assets.connectors.kafka_connect.spool import ConnectOffset, Spool
from dataflow_assets.connectors.kafka_connect.states import WRITTEN, Name, note_states, write
from dataflow_assets.errors import PermanentError, TransientError

log = logging.getLogger(__name__)
_TICK = 0.1
_ALIVE = 0.5
_STOPPING = 30.0
_SHARE = 8  # part of the heap for what waits inside of the connector
_POSTGRESQL = "io.debezium.connector.postgresql.PostgresConnector"
_MIRROR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"


class ConnectRunning:
    """One connector in one JVM, started once, or again with other tasks."""

    def __init__(
        self,
        order: ConnectOrder,
        spool: Spool,
        say: Callable[[Event], None],
        ending: threading.Event,
    ) -> None:
        self._order, self._spool, self._say = order, spool, say
        self._ending = ending
        name, jars = jars_of(order.connector, order.plugins, order.plugin_jars)
        self._machine = VirtualMachine(
            order.heap, order.jars, plain=order.plain, schemas=order.schemas
        )
        self._connector = self._machine.connector(name, jars)
        self._check_kind(name)
        config, self._named = resolve(order.config)
        self._config = {
            **_bounds(name, order),
            **_attempts(name),
            **config,
            "connector.class": name,
            "tasks.max": str(order.tasks),
        }
        self._tasks: list[Task] = []
        self._sealer: Sealer | None = None
        self._noted: tuple[float, list[Name]] = (0.0, [])
        self._changed, self._raised = threading.Event(), ""
        self._started = False

    def _check_kind(self, name: str) -> None:
        if not isinstance(
            self._connector, jpype.JClass("org.apache.kafka.connect.source.SourceConnector")
        ):
            raise PermanentError(f"{name} is not a source connector")

    def start(self) -> None:
        """Starts the connector if it does not run yet, then its tasks behind what is sealed."""
        with self._noted_on():
            self._start()
        self._say(Event("started", tasks=len(self._tasks)))
        self._note()

    def _start(self) -> None:
        self._spool.clear()
        last, offsets = self._spool.end()
        sealer = self._sealer = Sealer(self._spool, last, offsets, self._order)
        reader = offset_reader(self._machine.new_helper(), self._last_offset)
        if not self._started:
            self._start_connector(reader, before=bool(offsets))
        kind = jpype.JClass(self._connector.taskClass())
        for number, config in enumerate(self._connector.taskConfigs(self._order.tasks)):
            task = kind()
            task.initialize(task_context(reader, config))
            task.start(config)
            helper = helper_of(self._machine, self._config)
            running = ConnectorTask(task, helper, Busy(self._config))
            self._tasks.append(Task(number, running, self._machine, sealer))
        for one in self._tasks:
            one.start()

    def _last_offset(self, partition: str) -> ConnectOffset | None:
        return self._sealer.known.get(partition) if self._sealer else None

    def _start_connector(self, reader: Any, *, before: bool) -> None:
        self._connector.initialize(connector_context(reader, self._changed.set, self._raise))
        declared = self._connector.config().configKeys()
        secret = [str(key) for key in declared if str(declared.get(key).type()) == "PASSWORD"]
        self._warn_of(secret)
        hidden = (self._config.get(key, "") for key in self._order.hidden)
        others = filter(is_long_enough, (*hidden, *self._named))
        values = {*(self._config.get(key, "") for key in secret), *others}
        self._say(Event("secrets", values=sorted(values)))
        config = java_map(self._config)
        self._check(self._connector.validate(config), before=before)
        self._connector.start(config)
        self._started = True

    def _warn_of(self, secret: Sequence[str]) -> None:
        """Only the connector knows that these settings are passwords."""
        written = self._order.config
        for key in secret:
            value = written.get(key)
            if value and key not in self._order.hidden and not is_reference(value):
                log.warning(
                    "%s: is a password of the connector, and is shown wherever its settings are: "
                    "move it to the credentials",
                    key,
                )

    def _check(self, checked: Any, *, before: bool) -> None:
        """Validates the configuration, which a worker does before it starts a connector.

        Debezium's connectors also refuse a database that does not answer. `before`: the connector
        has delivered records already, so that its configuration was right once.
        """
        problems = [
            f"{one.name()}: {message}"
            for one in checked.configValues()
            for message in one.errorMessages()
        ]
        if problems:
            kind = TransientError if before else PermanentError
            raise kind(f"config of {self._order.connector}: {'; '.join(map(str, problems))}")

    def _raise(self, message: str) -> None:
        self._raised = message

    def watch(self) -> None:
        """Seals what is due, until the connector needs other tasks, or all is to end.

        Raises:
            DataflowError: what a task has met.
        """
        reported_at = 0.0
        while not (self._changed.wait(_TICK) or self._ending.is_set()):
            for task in self._tasks:
                task.seal_when_due()
                if task.error is not None:
                    task.seal_when_due(now=True)
                    what = f"task {task.number} of {self._order.connector}"
                    raise connector_error(what, task.error)
            if self._raised:
                raise TransientError(f"{self._order.connector}: {self._raised}")
            if time.monotonic() - reported_at >= _ALIVE:
                reported_at = time.monotonic()
                quiet = reported_at - max(
                    (one.active for one in self._tasks), default=reported_at - 1e9
                )
                self._say(Event("alive", quiet=quiet))
                at, before = self._noted
                if time.monotonic() - at >= WRITTEN or before != self.states:
                    self._note()

    @property
    def states(self) -> list[Name]:
        return [task.state for task in self._tasks]

    def _noted_on(self) -> AbstractContextManager[None]:
        """Around calls that may take long, in which nobody watches."""
        return note_states(self._spool.folder, lambda: self.states)

    def _note(self) -> None:
        """Writes down how the connector and its tasks fare, for everybody."""
        self._noted = time.monotonic(), self.states
        write(self._spool.folder, "RUNNING", self._noted[1])

    def end(self) -> None:
        with self._noted_on():
            self._connector.stop()
        write(self._spool.folder, "STOPPED", [])

    def stop(self) -> None:
        """Stops all tasks; they begin again behind what is sealed, unless all is to end."""
        if not self._ending.is_set():
            self._say(Event("starting"))
        self._changed.clear()
        with self._noted_on():
            for task in self._tasks:
                if not task.stop(_STOPPING):
                    raise TransientError(
                        f"task {task.number} does not stop: it is ended with its process, which is "
                        "started again"
                    )
        self._tasks = []


def _bounds(name: str, order: ConnectOrder) -> dict[str, str]:
    """Bounds on the records inside of the connector: Debezium alone counts records and no bytes.

    MirrorMaker fetches up to 50 MB for each of its tasks.
    """
    size = int(order.heap[:-1]) * (1024**2 if order.heap.endswith("m") else 1024**3) // _SHARE
    if name.startswith("io.debezium."):
        return {"max.queue.size.in.bytes": str(size)}
    if name == _MIRROR:
        return {"consumer.fetch.max.bytes": str(size // order.tasks)}
    return {}


def _attempts(name: str) -> dict[str, str]:
    """Debezium says that its slot is taken only when it has tried often enough.

    Until then its polls return nothing, as of a source without changes. It begins again by itself.
    """
    return {SLOT_RETRIES: "0"} if name == _POSTGRESQL else {}
