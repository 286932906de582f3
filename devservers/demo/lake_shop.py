"""The messages of the demo with the lake: orders and customers in Avro, by a registry."""

from __future__ import annotations

import io
import json
import random
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro

from devservers.demo.shop import CUSTOMERS, SEED, Coding, Message, Order, customer

_MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
_MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
STATUSES = ("placed", "paid", "shipped", "delivered", "cancelled")
TIERS = ("standard", "silver", "gold")
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": _MONEY},
    ],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": [*STATUSES]}},
        {"name": "placed_at", "type": _MOMENT},
        {"name": "changed_at", "type": _MOMENT},
        {"name": "total", "type": _MONEY},
        {"name": "customer", "type": "long"},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
    ],
}
CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "email", "type": "string"},
        {"name": "country", "type": "string"},
        {"name": "tier", "type": {"type": "enum", "name": "Tier", "symbols": [*TIERS]}},
        {"name": "changed_at", "type": _MOMENT},
    ],
}


def register(registry: str, topic: str, schema: dict[str, Any]) -> Callable[[Any], bytes]:
    """Registers the schema of a topic's values; what makes such a value of a record.

    Args:
        registry: where Confluent's API is.
        topic: by which the schema's subject is named.
        schema: of Avro.
    """
    request = urllib.request.Request(  # noqa: S310 (ours)
        f"{registry}/subjects/{topic}-value/versions",
        json.dumps({"schema": json.dumps(schema)}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 (ours)
        number = int(json.load(answer)["id"])
    parsed, head = fastavro.parse_schema(schema), b"\0" + number.to_bytes(4, "big")

    def encode(record: Any) -> bytes:
        body = io.BytesIO(head)
        body.seek(len(head))
        fastavro.schemaless_writer(body, parsed, record)
        return body.getvalue()

    return encode


def coding(encode: Callable[[Any], bytes]) -> Coding:
    """How orders become messages: a mistyped one names a schema that nobody has registered."""
    return Coding(
        lambda order: encode(_order(order)),
        lambda order: b"\0" + (999_999).to_bytes(4, "big") + encode(_order(order))[5:],
    )


def _order(order: Order) -> dict[str, Any]:
    """As the schema has it: the customer by its number."""
    return {
        **order,
        "placed_at": datetime.fromisoformat(order["placed_at"]),
        "changed_at": datetime.fromisoformat(order["changed_at"]),
        "total": _money(order["total"]),
        "customer": order["customer"]["id"],
        "lines": [{**line, "price": _money(line["price"])} for line in order["lines"]],
    }


def _money(euros: float) -> Decimal:
    return Decimal(f"{euros:.2f}")


@dataclass
class Customers:
    """All customers once; later the tier of one of them changes now and then."""

    next: int
    encode: Callable[[Any], bytes]

    def __post_init__(self) -> None:
        self._random = random.Random(SEED + self.next)  # noqa: S311 (a shop, not a secret)

    def messages(self, now: float, new: int) -> Iterator[Message]:
        """Everybody at the first start, and so many customers whose tier is another one."""
        if self.next == 1:
            for number in range(CUSTOMERS):
                yield self._message(number, "standard", now)
            self.next += CUSTOMERS
        for _ in range(new):
            number, tier = self._random.randrange(CUSTOMERS), self._random.choice(TIERS)
            self.next += 1
            yield self._message(number, tier, now)

    def _message(self, number: int, tier: str, now: float) -> Message:
        record = customer(number) | {"tier": tier, "changed_at": datetime.fromtimestamp(now, UTC)}
        return str(number).encode(), self.encode(record)
