"""A shop's orders, believable and endless: what happens in every demo.

An order is placed, paid, shipped and delivered, or cancelled. As messages each change is the whole
order with its id as the key, and now and then comes a message that nobody can store. The same seed
and first number give the same orders.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

SEED = 20_261_121
BAD_EVERY = 400  # messages, on average
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


@dataclass(frozen=True)
class Coding:
    """How an order becomes the value of a message."""

    encode: Callable[[Order], bytes]
    mistyped: Callable[[Order], bytes]
    """Of a program with a mistake: nobody can store it."""


JSON = Coding(msgspec.json.encode, lambda order: msgspec.json.encode({**order, "total": "free"}))


@dataclass
class Shop:
    """Orders from number `first` on; `changes` and `messages` say what happens until a moment."""

    first: int = 1
    seed: int = SEED
    coding: Coding = JSON
    _due: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed + self.first)  # noqa: S311 (a shop, not a secret)
        self.next = self.first

    def changes(self, now: float, new: int) -> Iterator[Order]:
        """`new` orders placed now, and those whose status changes by now."""
        for _ in range(new):
            yield self._planned(self._order(now), now)
        while self._due and self._due[0][0] <= now:
            _, _, order = heapq.heappop(self._due)
            yield self._planned(order, now)

    def messages(self, now: float, new: int) -> Iterator[Message]:
        """The same as messages; sometimes a bad one before an order's own."""
        for order in self.changes(now, new):
            key, body = str(order["id"]).encode(), self.coding.encode(order)
            if self._random.randrange(BAD_EVERY) == 0:
                yield key, self._spoilt(order, body)
            yield key, body

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

    def _spoilt(self, order: Order, body: bytes) -> bytes:
        """Cut off in the middle, or with a word where a number belongs."""
        if self._random.random() < 0.5:
            return body[: len(body) // 2]
        return self.coding.mistyped(order)

    def _planned(self, order: Order, now: float) -> Order:
        """The same order; what happens to it next is due at some moment to come."""
        if order["status"] not in NEXT:
            return order
        status, seconds = NEXT[order["status"]]
        if status == "paid" and self._random.random() < CANCELLED:
            status = "cancelled"
        at = now + self._random.expovariate(1 / seconds)
        changed = {**order, "status": status, "changed_at": _text(at)}
        heapq.heappush(self._due, (at, order["id"], changed))
        return order


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
