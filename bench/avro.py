"""The same messages as Avro: made, decoded by fastavro alone, and read by a flow."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from bench import messages
from bench.bounds import side_by_side
from bench.messages import PARTITIONS, values
from bench.places import Places
from bench.topics import bodies
from dataflow_assets.connectors.kafka import KafkaSource

SCHEMA = """
{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"},
  {"name": "customer", "type": "string"},
  {"name": "amount", "type": "double"},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
  {"name": "quantity", "type": "int"},
  {"name": "address", "type": {"type": "record", "name": "Address", "fields": [
    {"name": "city", "type": "string"}, {"name": "zip", "type": "string"}]}}
]}
"""
# A partition in a process of its own, as a user's program would be.
DECODE = "from bench.avro import decode; import sys; decode(*sys.argv[1:])"
BATCH = 50_000
_BEGIN = int(datetime(2026, 11, 21, 10, tzinfo=UTC).timestamp())


@cache
def _parsed(text: str) -> Any:
    return parse_schema(json.loads(text))


@cache
def _raw() -> Any:
    """Times as the numbers that they are written as."""
    return _parsed(SCHEMA.replace(', "logicalType": "timestamp-millis"', ""))


def body(number: int) -> bytes:
    """Message `number`."""
    id_, customer, whole, cents, minute, second, quantity, zip_ = values(number)
    found = {
        "id": id_,
        "customer": f"c-{customer}",
        "amount": whole + cents / 100,
        "at": 1000 * (_BEGIN + 60 * minute + second),
        "quantity": quantity,
        "address": {"city": "Berlin", "zip": f"{zip_:05}"},
    }
    out = BytesIO()
    schemaless_writer(out, _raw(), found)
    return out.getvalue()


def topic(count: int) -> str:
    """The name of the topic with so many."""
    return f"bench-avro-{count}"


def filled(places: Places, count: int) -> None:
    """Makes the topic, unless it is there."""
    messages.filled(places.bootstrap, topic(count), count, body)


def source(places: Places, count: int) -> KafkaSource:
    """The topic from its beginning."""
    return KafkaSource(
        brokers=(places.bootstrap,),
        topic=topic(count),
        consumer_group="bench",
        starting_offsets="earliest",
        format="avro",
        avro_schema=SCHEMA,
    )


def decode_all(places: Places, count: int) -> None:
    """Consumed by the plain client and decoded one by one, each partition by its own process."""
    programs = [[DECODE, places.bootstrap, topic(count), str(n)] for n in range(PARTITIONS)]
    side_by_side(programs)


def decode(bootstrap: str, topic: str, partition: str) -> None:
    """One partition; records are made and forgotten."""
    schema = _parsed(SCHEMA)
    for found in bodies(bootstrap, topic, int(partition), BATCH):
        for each in found:
            schemaless_reader(BytesIO(each), schema, None)
