"""The host's own loop: opens the spool, starts the connector, watches its tasks."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import IO

from dataflow_assets import failpoints
from dataflow_assets.connectors.kafka_connect import states
from dataflow_assets.connectors.kafka_connect.errors import older_spool, other_spool, without_state
from dataflow_assets.connectors.kafka_connect.host.protocol import (
    ConnectOrder,
    Event,
    decode,
    encode,
)
from dataflow_assets.connectors.kafka_connect.spool import ConnectState, Spool
from dataflow_assets.errors import DataflowError, PermanentError

_LOCKED = 60.0  # seconds in which the host of an older run has ended
_STOPPING = 4.0  # seconds; the driver waits one more before it kills
_TICK = 1.0


class ConnectHost:
    """One connector; `say` tells the driver."""

    def __init__(self, order: ConnectOrder, say: Callable[[Event], None]) -> None:
        self._order, self._say = order, say
        self._spool = Spool(order.spool)

    def run(self, ending: threading.Event) -> None:
        """Until an error, or until `ending` is set; then the connector was stopped."""
        with self._spool.lock(_LOCKED):
            state = self._open()
            self._say(Event("opened", spool=state.id))
            from dataflow_assets.connectors.kafka_connect.host.running import ConnectRunning

            running: ConnectRunning | None = None
            try:
                running = ConnectRunning(self._order, self._spool, self._say, ending)
                while not ending.is_set():
                    running.start()
                    running.watch()
                    running.stop()
                running.end()
            except BaseException:
                states.write(self._spool.folder, "FAILED", running.states if running else [])
                raise

    def _open(self) -> ConnectState:
        """The spool as the flow knows it; a new one where the flow begins.

        Nothing of it is deleted before it is known to be the flow's.
        """
        state = self._known_state() if self._order.spool_id else self._begin()
        self._spool.clear()
        return state

    def _known_state(self) -> ConnectState:
        state, order = self._spool.state(), self._order
        if state is None or state.id != order.spool_id:
            raise PermanentError(other_spool(order.spool))
        last, _ = self._spool.end()
        if last < order.position:
            raise PermanentError(older_spool(order.spool, last, order.position))
        return state

    def _begin(self) -> ConnectState:
        state = self._spool.state()
        if state is None:
            if self._spool.parts():
                raise PermanentError(without_state(self._order.spool))
            return self._spool.begin(self._order.connector, {})
        if state.first > 1 or state.connector != self._order.connector:
            raise PermanentError(
                f"the flow begins, and the spool {self._order.spool} has records of "
                f"{state.connector} that others have read: remove the folder, so that the "
                "connector begins, too; a branch that is added to a flow cannot read what other "
                "branches have read"
            )
        return state  # nothing of it was read to its end


def main() -> None:
    """The program. Its argument is the process id of the driver."""
    threading.Thread(target=_end_after, args=(int(sys.argv[1]),), daemon=True).start()
    events = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # connectors may print
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    failpoints.arm(failpoints.from_environment())
    order = decode(sys.stdin.buffer.readline(), ConnectOrder)
    ending = threading.Event()
    threading.Thread(target=_end_with, args=(sys.stdin.buffer, ending), daemon=True).start()
    lock = threading.Lock()

    def say(event: Event) -> None:
        with lock:
            events.write(encode(event))

    try:
        ConnectHost(order, say).run(ending)
    except BaseException as error:  # noqa: BLE001 - whatever Java throws
        failure = _as_dataflow_error(order, error)
        say(Event("failed", message=str(failure), lasting=isinstance(failure, PermanentError)))
        os._exit(1)
    os._exit(0)


def _as_dataflow_error(order: ConnectOrder, error: BaseException) -> DataflowError:
    if isinstance(error, DataflowError):  # also where JPype is not there
        return error
    from dataflow_assets.connectors.kafka_connect.host.java_errors import connector_error

    return connector_error(order.connector, error)


def _end_with(source: IO[bytes], ending: threading.Event) -> None:
    """The driver reads no more: the connector is stopped, if it stops in time.

    What is not sealed then was never delivered.
    """
    while source.read(1):
        pass
    ending.set()
    time.sleep(_STOPPING)
    os._exit(0)


def _end_after(driver: int) -> None:
    """The driver is gone, and what it has forked may hold the other end of the input.

    The driver says who it is: it may be gone before this process asks for its parent.
    """
    while os.getppid() == driver:
        time.sleep(_TICK)
    os._exit(0)


if __name__ == "__main__":
    main()
