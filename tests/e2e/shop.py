"""A shop's change events, the manifest that takes them apart, and what must become of each.

`outcome` is written from the manifest by hand, in plain Python: none of the engine's code is in it.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

MANIFEST = """
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: {name}}}
spec:
  maxRecordsPerBatch: 150
  source:
    type: kafka
    config: {{brokers: ["{bootstrap}"], topic: {topic}, consumerGroup: {name}}}
  transformations:
    - {{type: debeziumUnwrap}}
    - {{type: filter, config: {{condition: "$.kind != 'heartbeat'"}}}}
    - {{type: snakeCase, config: {{deep: true}}}}
    - {{type: flatten, config: {{field: order_lines}}}}
    - type: insertField
      config: {{fields: {{partition: "${{metadata.partition}}", position: "${{metadata.offset}}"}}}}
    - type: cast
      config:
        spec: {{qty: int64, amount: float64, partition: int64, position: int64}}
        nullable: {nullable}
    - {{type: hash, config: {{fields: [customer.e_mail]}}}}
    - type: mask
      config: {{fields: [customer.phone]}}
      when: $.region == 'eu'
    - type: dedupe
      config: {{key: [seq, line]}}
      when: $.kind == 'order'
    - type: router
      config:
        routes:
          - condition: $.kind == 'payment' && metadata.operation != 'update'
            sink:
              type: postgresql
              config: {{connectionString: {payments_dsn}, table: {schema}.payments}}
          - condition: metadata.key =~ '^audit' || $.amount > 900
            sink:
              type: iceberg
              config:
                catalogURI: {uri}
                warehouse: {warehouse}
                namespace: {namespace}
                table: lake
                oauth2ClientID: {access_key}
                oauth2ClientSecret: {secret_key}
                s3Endpoint: {s3_endpoint}
                s3Region: us-east-1
                accessKey: {access_key}
                secretAccessKey: {secret_key}
    - type: select
      config:
        fields: [seq, id, line, kind, qty, amount, customer.e_mail, customer.phone, partition, position]
  sink:
    type: postgresql
    config:
      connectionString: {dsn}
      table: {schema}.orders
      upsertMode: true
      conflictKey: [id, line]
      deleteMode: hard
  errors:
    type: postgresql
    config: {{connectionString: {dsn}, table: {schema}.errors, autoCreateTable: true}}
"""  # noqa: E501 - a manifest

COLUMNS = ("seq", "id", "line", "kind", "qty", "amount", "e_mail", "phone", "partition", "position")
LARGEST = 2**31 - 1  # what the column `qty` holds before it is mended
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """One message, and where Kafka put it."""

    key: str
    body: bytes | None
    partition: int
    offset: int


@dataclass(frozen=True)
class Stored:
    """A row that belongs into a table; `deletes`: the row with this key has to go instead."""

    table: str
    row: Row
    deletes: bool = False


@dataclass(frozen=True)
class Refused:
    """An entry of the error sink: who refused which part of the message, and where."""

    table: str
    stage: str
    n: int = 0


class Shop:
    """Makes change events, one in twenty of them bad. The same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._seq = 0
        self._offsets = [0, 0]
        self.events: list[Event] = []

    def produce(self, bootstrap: str, topic: str, count: int) -> None:
        """Sends this many events and more: changes and repeats of them."""
        producer = Producer(
            {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True}
        )
        for key, body, partition in self._messages(count):
            event = Event(key, body, partition, self._offsets[partition])
            self._offsets[partition] += 1
            self.events.append(event)
            producer.produce(topic, event.body, key=event.key, partition=partition)
            producer.poll(0)
        assert producer.flush(60) == 0

    def _messages(self, count: int) -> Iterator[tuple[str, bytes | None, int]]:
        for _ in range(count):
            self._seq += 1
            key = f"audit-{self._seq}" if _audited(self._seq) else f"shop-{self._seq}"
            for body in self._bodies(self._seq):
                yield key, body, self._seq % 2

    def _bodies(self, number: int) -> Iterator[bytes | None]:
        """The messages about one thing, in order: they share a key and a partition."""
        what = self._chance.random()
        if what < 0.05:
            yield self._chance.choice([None, b"hello", _event("c", {"kind": "heartbeat"})])
        elif what < 0.35:
            yield self._payment(number)
        elif what < 0.40:
            yield self._bad_order(number)
        else:
            yield from self._order(number)

    def _payment(self, number: int) -> bytes:
        amount = f"{self._chance.randrange(1, 2_000)}.5"
        if self._chance.random() < 0.03:
            amount = f"-{amount}"
        lines = self._chance.choice([[], [{"line": 0, "qty": 1}]])
        return _event("r", self._row(number, "payment", amount, lines))

    def _order(self, number: int) -> Iterator[bytes]:
        """Some orders are changed, some deleted, and some messages come twice.

        A repeat at the border of a micro-batch passes `dedupe`: it may only come where rows have a
        key.
        """
        amount = self._chance.randrange(1, 1_000)
        lines = self._lines()
        row = self._row(number, "order", f"{amount}.25", lines)
        yield _event("c", row)
        if self._chance.random() < 0.1 and amount < 900 and not _audited(number):
            yield _event("c", row)
        if self._chance.random() < 0.1:
            more = [{**line, "qty": "77"} for line in lines]
            row = self._row(number, "order", f"{amount}.25", more, change=1)
            yield _event("u", row)
        if self._chance.random() < 0.1:
            yield _event("d", {**row, "seq": number * 10 + 2})

    def _bad_order(self, number: int) -> bytes:
        bad = self._chance.choice(["no number", "too large", "lone surrogate"])
        lines = self._lines()
        if bad == "no number":
            lines[-1]["qty"] = None
        elif bad == "too large":
            lines[-1]["qty"] = str(LARGEST + number)
        body = _event("c", self._row(number, "order", "5", lines))
        return body.replace(b'"eu"', b'"\\ud800"') if bad == "lone surrogate" else body

    def _row(
        self, number: int, kind: str, amount: str, lines: list[dict[str, Any]], change: int = 0
    ) -> dict[str, Any]:
        return {
            "seq": number * 10 + change,
            "id": number,
            "kind": kind,
            "amount": amount,
            "region": "eu" if number % 3 else "us",
            "customer": {"eMail": f"c{number}@example.org", "phone": f"+49 {number}"},
            "orderLines": lines,
        }

    def _lines(self) -> list[dict[str, Any]]:
        count = self._chance.randrange(1, 4)
        return [{"line": n, "qty": str(self._chance.randrange(1, 50))} for n in range(count)]


def _audited(number: int) -> bool:
    return number % 10 == 7


def _event(op: str, row: dict[str, Any]) -> bytes:
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({"payload": {"op": op, **sides}}).encode()


def outcome(event: Event) -> list[Stored | Refused]:
    """What the manifest does with one message; nothing where it is filtered."""
    if event.body is not None and b"\\ud800" in event.body:
        return [Refused("orders", "decode")]
    if event.body is None or event.body == b"hello":
        return []
    payload = json.loads(event.body)["payload"]
    row = payload["before"] if payload["op"] == "d" else payload["after"]
    if row["kind"] == "heartbeat":
        return []
    lines = row["orderLines"] or [{}]
    if any("qty" in line and line["qty"] is None for line in lines):
        return [Refused("orders", "step")]
    return [_line(event, payload["op"], row, line, n) for n, line in enumerate(lines)]


def _line(
    event: Event, op: str, row: dict[str, Any], line: dict[str, Any], n: int
) -> Stored | Refused:
    table = _table(event, op, row)
    qty = int(line["qty"]) if "qty" in line else None
    if qty is not None and qty > LARGEST:
        return Refused(table, "encode", n)
    if table == "payments" and float(row["amount"]) < 0:
        return Refused(table, "sink", n)
    return Stored(table, stored_row(event, row, line, qty), deletes=op == "d" and table == "orders")


def _table(event: Event, op: str, row: dict[str, Any]) -> str:
    if row["kind"] == "payment" and op != "u":
        return "payments"
    return "lake" if event.key.startswith("audit") or float(row["amount"]) > 900 else "orders"


def stored_row(event: Event, row: dict[str, Any], line: dict[str, Any], qty: int | None) -> Row:
    """In the order of COLUMNS."""
    mail = hashlib.sha256(row["customer"]["eMail"].encode()).hexdigest()
    phone = "***" if row["region"] == "eu" else row["customer"]["phone"]
    place = (event.partition, event.offset)
    named = (row["seq"], row["id"], line.get("line"), row["kind"], qty, float(row["amount"]))
    return (*named, mail, phone, *place)


def mended(event: Event) -> list[Stored]:
    """What a replay stores once null is allowed, `qty` is wide, and amounts may be negative."""
    refused = [one for one in outcome(event) if isinstance(one, Refused)]
    if not refused or event.body is None or refused[0].stage == "decode":
        return []
    payload = json.loads(event.body)["payload"]
    row, found = payload["after"], []
    for n, line in enumerate(row["orderLines"] or [{}]):
        if refused[0].stage == "step" or n in {one.n for one in refused}:
            qty = int(line["qty"]) if line.get("qty") else None
            values = stored_row(event, row, line, qty)
            found.append(Stored(_table(event, payload["op"], row), values))
    return found


def grown(found: Iterable[Stored], table: str) -> list[Row]:
    """What belongs into a table that only grows."""
    return sorted((one.row for one in found if one.table == table), key=repr)


def latest(found: Iterable[Stored], table: str) -> dict[Row, set[Row]]:
    """What belongs into the table with a key: of a message that came twice one row or the other."""
    rows: dict[Row, set[Row]] = {}
    for one in found:
        key = one.row[1:3]
        if one.table != table:
            continue
        before = rows.pop(key, set())
        if not one.deletes:
            rows[key] = {row for row in before if row[:-1] == one.row[:-1]} | {one.row}
    return rows
