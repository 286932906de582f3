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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dataflow_assets.spark.process import ServerError
from devservers.demo.demo import OFFSET, Demo, Say, printed
from devservers.demo.lake import LakeDemo
from devservers.demo.orders import OrdersDemo

FOLDERS = {False: Path(".data/demo"), True: Path(".data/demo-lake")}
"""Where data and logs are unless a folder is given; True: of the demo with the lake."""


def run(folder: Path | None = None, *, lake: bool = False, say: Say | None = None) -> int:
    """A demo until SIGINT or SIGTERM; 0 when it was ended that way. Raises ServerError."""
    began = time.monotonic()
    say = say or (lambda text: printed(f"[{time.monotonic() - began:5.1f} s] {text}"))
    folder = folder or FOLDERS[lake]
    kind: type[Demo] = LakeDemo if lake else OrdersDemo
    ended = threading.Event()
    with _stopped_by_signals(ended), _alone(folder), ExitStack() as stack:
        demo = kind(folder.absolute(), int(os.environ.get(OFFSET, "0")), say)
        demo.check()
        stack.callback(lambda: say(f"stopped; `{demo.again}` goes on from here"))
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
