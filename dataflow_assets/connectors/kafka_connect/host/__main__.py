"""The host's own loop: opens the spool, starts the connector, watches its tasks."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import IO

from dataflow_assets import failpoints
from dataflow_assets.connectors.kafka_connect.host.protocol import Event, Order, decode, encode
from dataflow_assets.connectors.kafka_connect.spool import Spool, State, other_spool
from dataflow_assets.errors import DataflowError, PermanentError

_LOCKED = 60.0  # seconds in which the host of an older run has ended


class Host:
    """One connector; `say` tells the driver."""

    def __init__(self, order: Order, say: Callable[[Event], None]) -> None:
        self._order, self._say = order, say
        self._spool = Spool(order.spool)

    def run(self) -> None:
        """Until an error; the process ends with its input."""
        with self._spool.locked(_LOCKED):
            state = self._opened()
            self._say(Event("opened", spool=state.id))
            from dataflow_assets.connectors.kafka_connect.host.running import Running

            running = Running(self._order, self._spool, state, self._say)
            while True:
                running.start()
                running.watch()
                running.stop()

    def _opened(self) -> State:
        """The spool as the flow knows it; a new one where the flow begins."""
        self._spool.clear()
        state, wanted = self._spool.state(), self._order.spool_id
        if wanted:
            if state is None or state.id != wanted:
                raise PermanentError(other_spool(self._order.spool))
            return state
        if state is None:
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
    """The program."""
    events = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # connectors may print
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    failpoints.arm(failpoints.from_environment())
    order = decode(sys.stdin.buffer.readline(), Order)
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    lock = threading.Lock()

    def say(event: Event) -> None:
        with lock:
            events.write(encode(event))

    try:
        Host(order, say).run()
    except DataflowError as error:
        say(Event("failed", message=str(error), lasting=isinstance(error, PermanentError)))
    except BaseException as error:  # noqa: BLE001 - whatever Java throws
        say(Event("failed", message=f"{type(error).__name__}: {error}"))
    os._exit(1)


def _end_with(source: IO[bytes]) -> None:
    """The driver is gone, or wants no more: what is not sealed was never delivered."""
    while source.read(1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
