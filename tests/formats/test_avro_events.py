"""Debezium's own types in Avro: read by `connect.name`, as JsonConverter's schema is read."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import msgspec
import pyarrow as pa

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.memory import MemorySliceSink
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.formats.avro import AvroFormat
from dataflow_assets.micro_batch.formatted import format_of
from dataflow_assets.records.chain import Transformation
from dataflow_assets.transforms.debezium_unwrap import DebeziumUnwrap


def debezium(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "connect.version": 1, "connect.name": f"io.debezium.{name}", **more}


DECIMAL = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
LENGTH = {"connect.parameters": {"length": "3"}}
UNAVAILABLE = "__debezium_unavailable_value"
COLUMNS: dict[str, tuple[Any, Any, Any]] = {
    "id": ("long", 1, 1),
    "day": (debezium("int", "time.Date"), 20_484, "2026-01-31"),
    "clock": (debezium("long", "time.MicroTime"), 3_723_000_001, "01:02:03.000001"),
    "fine": (debezium("long", "time.NanoTime"), 1, "00:00:00.000000001"),
    "at": (debezium("long", "time.MicroTimestamp"), 1_500_000, "1970-01-01T00:00:01.5Z"),
    "end": (debezium("long", "time.Timestamp"), 9223372036825200000, "infinity"),
    "took": (debezium("long", "time.MicroDuration"), 2_500_000, "PT2.5S"),
    "amount": (DECIMAL, {"scale": 2, "value": b"\x04\xd2"}, 12.34),
    "bits": (
        debezium("bytes", "data.Bits", **{"connect.parameters": {"length": "3"}}),
        b"\5",
        "101",
    ),
    "doc": (debezium("string", "data.Json"), '{"a": [1]}', {"a": [1]}),
    "gone": (
        debezium("string", "data.Json"),
        "__debezium_unavailable_value",
        "__debezium_unavailable_value",
    ),
    "days": ({"type": "array", "items": debezium("int", "time.Date")}, [95, 95], [95, 95]),
    "plain": ("int", 7, 7),
}
ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.orders",
    "fields": [{"name": name, "type": ["null", kind]} for name, (kind, *_) in COLUMNS.items()],
}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "connect.name": "shop.orders.Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "shop.orders.Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "made", "type": debezium("long", "time.Timestamp")},
    ],
}
SENT = {name: sent for name, (_, sent, _) in COLUMNS.items()}
READ = {name: read for name, (_, _, read) in COLUMNS.items()}
FORM = AvroFormat(json.dumps(EVENT))


def encoded(schema: Any, value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return data.getvalue()


def event(**row: Any) -> bytes:
    after = {**SENT, **row}
    return encoded(EVENT, {"before": None, "after": after, "op": "c", "made": 5})


def texts(form: Any, *bodies: bytes | None) -> tuple[list[Any], dict[int, str]]:
    found = form.texts(pa.array(bodies, pa.binary()))
    return [one and msgspec.json.decode(one) for one in found.texts.to_pylist()], found.refused


def test_the_values_of_rows_are_what_their_types_say() -> None:
    found, refused = texts(FORM.of_events(frozenset()), event(), None)
    assert refused == {}
    assert found == [{"before": None, "after": READ, "op": "c", "made": 5}, None]


def test_no_step_that_reads_events_leaves_all_as_it_is() -> None:
    (found,), _ = texts(FORM, event())
    assert (found["after"]["day"], found["after"]["at"]) == (20_484, 1_500_000)


def test_fields_that_the_manifest_names_are_left_to_the_step() -> None:
    (found,), _ = texts(FORM.of_events(frozenset({"at", "day"})), event())
    assert found["after"] == {**READ, "at": 1_500_000, "day": 20_484}


def test_keys_have_the_values_that_rows_have() -> None:
    key = AvroFormat(json.dumps(ROW), of_keys=True).of_events(frozenset({"at"}))
    (found,), _ = texts(key, encoded(ROW, SENT))
    assert found == {**READ, "at": 1_500_000}


def test_a_value_that_is_none_costs_its_own_message() -> None:
    found, refused = texts(FORM.of_events(frozenset()), event(id=1), event(day=2**31 - 1), event())
    assert [one is not None for one in found] == [True, False, True]
    assert refused == {1: "after.day: lies outside the years 1 to 9999"}


def test_other_records_are_no_events() -> None:
    row = AvroFormat(json.dumps(ROW)).of_events(frozenset())
    (found,), _ = texts(row, encoded(ROW, {**SENT, "doc": None}))
    assert (found["day"], found["doc"]) == (20_484, None)


def test_a_flow_with_the_step_reads_events_and_one_without_does_not() -> None:
    source = KafkaSource(
        brokers=("b:9092",), topic="t", format="avro", avro_schema=json.dumps(EVENT)
    )
    step = Transformation(DebeziumUnwrap(field_types={"at": "text"}))
    branches = (Branch(MemorySliceSink(store="s", table="t")),)
    for steps, but in (((), None), ((step,), frozenset({"at"}))):
        form = format_of(Flow("default", "f", source, branches, transformations=steps))
        assert isinstance(form, AvroFormat)
        assert form.but == but
