"""A demo from its start until Ctrl-C.

Everything it starts ends with it, also when it is killed: the servers, Spark, Dagster and its runs.
Data, logs and checkpoints stay in its folder, so that the next start continues where this one
stopped.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dataflow_assets.spark.process import ServerError
from devservers.demo.cdc import CdcDemo
from devservers.demo.demo import OFFSET, Demo, Say, printed
from devservers.demo.lake import LakeDemo
from devservers.demo.orders import OrdersDemo

DEMOS: Mapping[str, type[Demo]] = {"orders": OrdersDemo, "lake": LakeDemo, "cdc": CdcDemo}


def run(which: str, folder: Path | None = None, say: Say | None = None) -> int:
    """A demo until SIGINT or SIGTERM; 0 when it was ended that way. Raises ServerError.

    Args:
        which: a key of DEMOS.
        folder: of its data and logs; the default is in .data.
        say: takes each line about its progress; the default prints it with the seconds since start.
    """
    began = time.monotonic()
    say = say or (lambda text: printed(f"[{time.monotonic() - began:5.1f} s] {text}"))
    kind = DEMOS[which]
    folder = folder or Path(".data") / kind.name
    ended = threading.Event()
    with _stopped_by_signals(ended), _alone(folder), ExitStack() as stack:
        demo = kind(folder.absolute(), int(os.environ.get(OFFSET, "0")), say)
        demo.check()
        stack.callback(lambda: say(f"stopped; `make {demo.name}` goes on from here"))
        try:
            if demo.start(stack, ended):
                demo.show()
                return demo.watch(ended)
        finally:
            say("stopping")
    return 0


@contextmanager
def _stopped_by_signals(ended: threading.Event) -> Iterator[None]:
    """Both ask for the end; asking twice changes nothing, for half a stop leaves processes."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One demo at a time per folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerError(f"another demo runs in {folder}") from None
        yield
