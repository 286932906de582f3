"""A shop's order events, believable and endless: the demo's stream.

An order is placed, paid, shipped and delivered, or cancelled; each change is sent as the whole
order with its id as the key. Now and then comes a message that nobody can store. The same seed and
first number give the same orders.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec
from confluent_kafka import Producer

SEED = 20_261_121
BAD_EVERY = 400  # messages, on average
TICK = 0.05
# what follows a status: the next one and the seconds until then, on average
NEXT = {"placed": ("paid", 4.0), "paid": ("shipped", 15.0), "shipped": ("delivered", 40.0)}
CANCELLED = 0.04  # share of the orders that are never paid

NAMES = ("Ada", "Bao", "Chiara", "Dilan", "Emeka", "Freya", "Goran", "Hana", "Inés", "Jun", "Kofi")
SURNAMES = ("Adler", "Brandt", "Costa", "Duarte", "Eriksen", "Fekete", "García", "Haddad", "Ito")
CUSTOMERS = 5_000
COUNTRIES = ("DE", "FR", "ES", "PL", "IT", "NL", "SE", "AT")
GOODS = (
    ("TEA-100", "Green tea, 100 g", 640),
    ("TEA-250", "Black tea, 250 g", 1150),
    ("MUG-01", "Mug, stoneware", 1490),
    ("POT-07", "Teapot, cast iron", 5900),
    ("KET-02", "Kettle", 3450),
    ("BIS-12", "Shortbread, 12 pieces", 525),
    ("HON-50", "Honey, 500 g", 890),
)

Message = tuple[bytes, bytes]
"""Key and value."""
Order = dict[str, Any]


class Stream(Protocol):
    """What a `Sender` sends."""

    next: int
    """The number with which another start goes on."""

    def messages(self, now: float, new: int) -> Iterator[Message]:
        """What happens until this moment, with so many new things."""


@dataclass(frozen=True)
class Coding:
    """How an order becomes the value of a message."""

    encode: Callable[[Order], bytes]
    mistyped: Callable[[Order], bytes]
    """Of a program with a mistake: nobody can store it."""


JSON = Coding(msgspec.json.encode, lambda order: msgspec.json.encode({**order, "total": "free"}))


@dataclass
class Shop:
    """Orders from number `first` on; `messages` says what happens until a moment."""

    first: int = 1
    seed: int = SEED
    coding: Coding = JSON
    _due: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed + self.first)  # noqa: S311 (a shop, not a secret)
        self.next = self.first

    def messages(self, now: float, new: int) -> Iterator[Message]:
        """`new` orders placed now, and the changes that are due by now."""
        for _ in range(new):
            yield from self._sent(self._order(now), now)
        while self._due and self._due[0][0] <= now:
            _, _, order = heapq.heappop(self._due)
            yield from self._sent(order, now)

    def _order(self, now: float) -> Order:
        goods = self._random.sample(GOODS, self._random.randint(1, 4))
        lines = [(sku, name, self._random.randint(1, 3), cents) for sku, name, cents in goods]
        order = {
            "id": self.next,
            "status": "placed",
            "placed_at": _text(now),
            "changed_at": _text(now),
            "total": _euros(sum(quantity * cents for _, _, quantity, cents in lines)),
            "customer": customer(self._random.randrange(CUSTOMERS)),
            "lines": [
                {"sku": sku, "name": name, "quantity": quantity, "price": _euros(cents)}
                for sku, name, quantity, cents in lines
            ],
        }
        self.next += 1
        return order

    def _sent(self, order: Order, now: float) -> Iterator[Message]:
        """The order's message, its next change planned; sometimes a bad message before it."""
        key = str(order["id"]).encode()
        body = self.coding.encode(order)
        if self._random.randrange(BAD_EVERY) == 0:
            yield key, self._spoilt(order, body)
        yield key, body
        self._plan(order, now)

    def _spoilt(self, order: Order, body: bytes) -> bytes:
        """Cut off in the middle, or with a word where a number belongs."""
        if self._random.random() < 0.5:
            return body[: len(body) // 2]
        return self.coding.mistyped(order)

    def _plan(self, order: Order, now: float) -> None:
        if order["status"] not in NEXT:
            return
        status, seconds = NEXT[order["status"]]
        if status == "paid" and self._random.random() < CANCELLED:
            status = "cancelled"
        at = now + self._random.expovariate(1 / seconds)
        changed = {**order, "status": status, "changed_at": _text(at)}
        heapq.heappush(self._due, (at, order["id"], changed))


class Sender:
    """Sends what happens in a shop to a topic from a thread, until `stop`."""

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
        settings = {"linger.ms": 20, "acks": "all", "log_level": 0}  # silent while it is away
        self._producer = Producer({**broker, **settings})
        self._topic = topic
        self._memory = memory
        self._stream = begin(int(memory.read_text()) if memory.exists() else 1)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, per_second: float) -> None:
        """Begins to send, with so many new things a second."""
        self._thread = threading.Thread(
            target=self._run, args=(per_second,), name=f"shop {self._topic}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends; what was handed over is on the broker, and the next start goes on behind it."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(10)
        self._producer.flush(5)
        self._remember()

    def _run(self, rate: float) -> None:
        began, placed, remembered = time.monotonic(), 0, 0.0
        while not self._stopped.wait(TICK):
            elapsed = time.monotonic() - began
            new = int(elapsed * rate) - placed
            placed += new
            self._send(new)
            if elapsed - remembered >= 1:
                remembered = elapsed
                self._remember()

    def _send(self, new: int) -> None:
        for key, value in self._stream.messages(time.time(), new):
            try:
                self._producer.produce(self._topic, value, key)
            except BufferError:  # the broker is away: its queue is full
                self._producer.poll(0.5)
        self._producer.poll(0)

    def _remember(self) -> None:
        """The next number, so that another start places other orders."""
        scratch = self._memory.with_suffix(".new")
        scratch.write_text(str(self._stream.next))
        scratch.replace(self._memory)


def customer(number: int) -> dict[str, Any]:
    """The customer of a number below CUSTOMERS, always the same."""
    name, surname = NAMES[number % len(NAMES)], SURNAMES[number % len(SURNAMES)]
    return {
        "id": number,
        "name": f"{name} {surname}",
        "email": f"{name}.{surname}.{number}@example.com".lower(),
        "country": COUNTRIES[number % len(COUNTRIES)],
    }


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def _euros(cents: int) -> float:
    return cents / 100
