"""A reader's schema: every type of the message in every type of the reader, or a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dataflow_assets.formats.avro import AvroFormat
from dataflow_assets.formats.schema_files import default_problem
from tests.formats.avro_messages import bodies, record, written

STATES = {"type": "enum", "name": "S", "symbols": ["A", "B", "C"]}
FEWER = {"type": "enum", "name": "S", "symbols": ["A", "X"], "default": "X"}
NODE = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "N"]}],
}
WIDER_NODE = json.loads(json.dumps(NODE).replace('"int"', '"double"'))


@pytest.mark.parametrize(
    ("one", "value", "other", "text"),
    [
        ("int", 5, "double", "5.0"),
        ("string", "é", "bytes", '"w6k="'),
        ("bytes", "é".encode(), "string", '"é"'),
        ("int", 5, ["null", "double", "long"], "5.0"),
        ("long", 5, ["null", "double", "long"], "5"),
        (["null", "long", "string"], "x", ["string", "null"], '"x"'),
        (["null", "long", "string"], None, ["string", "null"], "null"),
        (["int", "string"], 5, ["null", "string", "long"], "5"),
        (STATES, "C", FEWER, '"X"'),
        ({"type": "array", "items": "int"}, [1], {"type": "array", "items": "double"}, "[1.0]"),
        ({"type": "map", "values": "int"}, {"k": 1}, {"type": "map", "values": "double"},
         '{"k":1.0}'),
        (NODE, {"v": 1, "next": {"v": 2, "next": None}}, WIDER_NODE,
         '{"v":1.0,"next":{"v":2.0,"next":null}}'),
    ],
)  # fmt: skip
def test_a_value_as_the_reader_has_it(one: Any, value: Any, other: Any, text: str) -> None:
    schema = record(("a", one))
    avro = AvroFormat(schema, reader=record(("a", other)))
    found = avro.texts(bodies(written(schema, {"a": value})))
    assert found.refused == {}
    assert found.texts.to_pylist() == [f'{{"a":{text}}}'.encode()]


@pytest.mark.parametrize(
    ("one", "value", "other", "reason"),
    [
        ("double", 0.5, "long", "field a was written as double, which is not read as long"),
        (["null", "long"], None, "long", "field a was written as null, which is not read as long"),
        (STATES, "C", {**STATES, "name": "T"}, "the message's enum is S, the reader's T"),
        (STATES, "C", {**STATES, "symbols": ["A"]}, "the reader's enum has no C"),
        ("string", "x", ["int", "long"], "the reader's union has no type for string"),
        ("string", "x", ["null", "long"], "field a was written as string, which is not read as"),
    ],
)
def test_a_value_that_the_reader_cannot_have(one: Any, value: Any, other: Any, reason: str) -> None:
    schema = record(("a", one))
    avro = AvroFormat(schema, reader=record(("a", other)))
    assert reason in avro.columns(bodies(written(schema, {"a": value}))).refused[0]


def test_a_union_keeps_the_value_that_fits_beside_one_that_does_not() -> None:
    schema, reader = record(("a", ["null", "string"])), record(("a", ["null", "long"]))
    sent = bodies(written(schema, {"a": None}, {"a": "x"}))
    found = AvroFormat(schema, reader=reader).texts(sent)
    assert found.texts.to_pylist() == [b'{"a":null}', None]
    assert list(found.refused) == [1]


@pytest.mark.parametrize(
    ("kind", "default", "wrong"),
    [
        ({"type": "fixed", "name": "F", "size": 2}, "a", "field a: the default 'a' has 1 bytes"),
        ("bytes", "\u0100", "field a: the default 'Ā' is no bytes"),
        ("bytes", "\u00ff", ""),
        (["null", "long"], None, ""),
    ],
)
def test_a_default_is_judged_with_the_manifest(kind: Any, default: Any, wrong: str) -> None:
    fields = [{"name": "a", "type": kind, "default": default}]
    found = default_problem(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert found.startswith(wrong)
    assert bool(found) == bool(wrong)


def test_a_record_or_null_is_columns() -> None:
    """So Kafka Connect writes a value that may be null."""
    inner = json.loads(record(("a", "long"), ("at", {"type": "int", "logicalType": "date"})))
    schema = json.dumps(["null", inner])
    sent = bodies([b"\x02\x0e\x02", b"\x00", b"", b"\x04\x0e", b"\x00\x00", b"\x02\x10\x04"])
    found = AvroFormat(schema).columns(sent)
    nulls, records = found.groups
    assert (nulls.at.tolist(), nulls.rows.to_pylist()) == ([1], [b"null"])
    assert records.at.tolist() == [0, 5]
    assert records.rows.column("a").to_pylist() == [7, 8]
    assert list(found.refused) == [2, 3, 4]
    strict = AvroFormat(schema, reader=json.dumps(inner)).texts(sent)
    assert strict.texts.to_pylist()[0] == b'{"a":7,"at":"1970-01-02"}'
    assert strict.refused[1].endswith("null, which the reader's schema does not take")


def test_two_types_of_numbers_in_one_union_are_told_apart() -> None:
    day, moment = (
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-nanos"},
    )
    schema = record(("a", ["null", day, moment, "float", "double"]))
    sent = [b"\x02\x02", b"\x04\x02", b"\x06\xcd\xcc\xcc\x3d", b"\x08" + b"\x9a" + b"\x99" * 5]
    sent[3] += b"\xb9\x3f"
    assert AvroFormat(schema).texts(bodies(sent)).texts.to_pylist() == [
        b'{"a":"1970-01-02"}',
        b'{"a":"1970-01-01T00:00:00.000000001Z"}',
        b'{"a":0.1}',
        b'{"a":0.1}',
    ]
