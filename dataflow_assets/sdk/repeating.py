"""Something that is done again and again beside a block, whatever the block waits for.

In `sdk`, because the runs of Dagster (`assets.heartbeat`) and a connector (the states of Kafka
Connect) give signs of life in the same way, and do not know each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeat(act: Callable[[], None], seconds: float, name: str) -> Iterator[None]:
    """Acts once, and then again and again until the block ends.

    Called on the driver, and by processes beside it, for signs of life: a thread of its own acts,
    so that they come while the block waits for somebody else.

    Args:
        act: raises nothing; nobody would see it.
        seconds: between two times.
        name: of the thread.
    """
    act()
    ended = threading.Event()

    def act_on() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=act_on, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
