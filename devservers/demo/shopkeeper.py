"""Who has things happen in a shop all the time, and who sends them to a topic."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from confluent_kafka import Producer
from typing_extensions import override

from devservers.demo.shop import Message

TICK = 0.05


class Shopkeeper(ABC):
    """Has things happen from a thread, from `start` until `stop`."""

    def __init__(self, name: str) -> None:
        """Nothing happens yet; `name` is that of the thread."""
        self._name = name
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def happen(self, new: int) -> None:
        """What happens until this moment, with so many new things."""

    @abstractmethod
    def remember(self) -> None:
        """Called once a second: stores with which number another start goes on."""

    def start(self, per_second: float) -> None:
        """Begins, with so many new things a second."""
        self._thread = threading.Thread(
            target=self._run, args=(per_second,), name=self._name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends; the next start goes on behind what has happened."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(10)

    def _run(self, rate: float) -> None:
        began, placed, remembered = time.monotonic(), 0, 0.0
        while not self._stopped.wait(TICK):
            elapsed = time.monotonic() - began
            new = int(elapsed * rate) - placed
            placed += new
            self.happen(new)
            if elapsed - remembered >= 1:
                remembered = elapsed
                self.remember()


class Stream(Protocol):
    """What a `Sender` sends."""

    next: int
    """The number with which another start goes on."""

    def messages(self, now: float, new: int) -> Iterator[Message]:
        """What happens until this moment, with so many new things."""


class Sender(Shopkeeper):
    """Sends what happens in a shop to a topic."""

    def __init__(
        self, broker: Mapping[str, str], topic: str, memory: Path, begin: Callable[[int], Stream]
    ) -> None:
        """Nothing is sent yet.

        Args:
            broker: settings of librdkafka that say where the broker is, and who we are.
            topic: which exists.
            memory: a file that keeps the number with which the next start goes on.
            begin: makes the stream from that number on; 1 at first.
        """
        super().__init__(f"shop {topic}")
        settings = {"linger.ms": 20, "acks": "all", "log_level": 0}  # silent while it is away
        self._producer = Producer({**broker, **settings})
        self._topic = topic
        self._memory = memory
        self._stream = begin(int(memory.read_text()) if memory.exists() else 1)

    @override
    def stop(self) -> None:
        """What was handed over is on the broker."""
        super().stop()
        self._producer.flush(5)
        self.remember()

    @override
    def happen(self, new: int) -> None:
        for key, value in self._stream.messages(time.time(), new):
            try:
                self._producer.produce(self._topic, value, key)
            except BufferError:  # the broker is away: its queue is full
                self._producer.poll(0.5)
        self._producer.poll(0)

    @override
    def remember(self) -> None:
        """The next number, so that another start places other orders."""
        scratch = self._memory.with_suffix(".new")
        scratch.write_text(str(self._stream.next))
        scratch.replace(self._memory)
