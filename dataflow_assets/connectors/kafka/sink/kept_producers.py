"""The producers of a process's drivers that were used last; the others are made again when needed.

Each has threads and descriptors of its own. Two hundred open sessions write a head now and then:
whoever writes takes its producer out, so that nobody closes it meanwhile, and puts it back.
"""

from __future__ import annotations

import os
import threading

from dataflow_assets.connectors.kafka.producer import Transaction

MOST = 8
_lock = threading.Lock()
_kept: dict[tuple[int, object], Transaction] = {}  # the one used last comes last


def take(session: object) -> Transaction | None:
    """The session's producer, if it is still there."""
    with _lock:
        return _kept.pop((os.getpid(), session), None)


def give(session: object, producer: Transaction) -> None:
    """Keeps it for the session's next write, and closes the one that waits longest."""
    with _lock:
        _kept[os.getpid(), session] = producer
        mine = [key for key in _kept if key[0] == os.getpid()]  # a fork cannot end its parent's
        unused = [_kept.pop(key) for key in mine[:-MOST]]
    for one in unused:
        one.close()
