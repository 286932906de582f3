"""JSON bodies as Avro values: what is read is written back, and what does not fit is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.avro import AvroFormat
from dataflow_assets.formats.avro_encoder import AvroEncoder
from tests.examples import examples
from tests.formats.avro_messages import bodies, record
from tests.formats.test_avro import CELLS, EVERYTHING, LIST, fixed, logical


@pytest.mark.parametrize(
    ("kind", "text"), [(cell[1], cell[5]) for cell in CELLS], ids=[cell[0] for cell in CELLS]
)
def test_every_type_is_written_as_it_is_read(kind: Any, text: str) -> None:
    schema, body = record(("a", kind)), f'{{"a":{text}}}'.encode()
    value = AvroEncoder(schema)(body)
    assert AvroFormat(schema).texts(bodies([value])).texts.to_pylist() == [body]


def test_records_of_their_own_kind() -> None:
    schema = json.dumps(LIST)
    inner = b'{"at":"2026-03-01T12:00:00Z","next":null}'
    body = b'{"at":"2026-03-01T12:00:00.5Z","next":' + inner + b"}"
    value = AvroEncoder(schema)(body)
    (text,) = AvroFormat(schema).texts(bodies([value])).texts.to_pylist()
    assert json.loads(text) == json.loads(body)


@pytest.mark.parametrize(
    ("kind", "more", "text"),
    [
        (["null", "long"], {}, "null"),
        (["long", "null"], {}, "null"),
        ("long", {"default": 7}, "7"),
        ("double", {"default": 0.5}, "0.5"),
        ("bytes", {"default": "\xff"}, '"/w=="'),
        (logical("bytes", "decimal", precision=4, scale=2), {"default": "\x01"}, "0.01"),
        ({"type": "array", "items": "long"}, {"default": []}, "[]"),
    ],
)
def test_an_absent_member(kind: Any, more: dict[str, Any], text: str) -> None:
    field = {"name": "a", "type": kind, **more}
    schema = json.dumps({"type": "record", "name": "R", "fields": [field]})
    value = AvroEncoder(schema)(b"{}")
    found = AvroFormat(schema).texts(bodies([value])).texts.to_pylist()
    assert found == [f'{{"a":{text}}}'.encode()]


NESTED = {"type": "record", "name": "I", "fields": [{"name": "b", "type": "int"}]}
DECIMAL = logical("bytes", "decimal", precision=4, scale=2)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("int", "2147483648", "a: a number beyond the range of int"),
        ("long", "1.0", "a: expected a whole number"),
        ("long", "true", "a: expected a whole number"),
        ("float", "1e39", "a: a number beyond the range of float"),
        ("double", "1e400", "a: a number beyond the range of double"),
        ("boolean", "1", "a: expected true or false"),
        ("string", "1", "a: expected text"),
        ("string", "null", "a: expected text"),
        ("bytes", '"*"', "a: expected base64 text"),
        (fixed(3), '"YQ=="', "a: expected 3 bytes, got 1"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, '"C"', "a: expected one of A, B"),
        ({"type": "array", "items": "int"}, "{}", "a: expected an array"),
        ({"type": "array", "items": "int"}, '[1,"x"]', "a[1]: expected a whole number"),
        ({"type": "map", "values": "int"}, '{"k":"x"}', "a.k: expected a whole number"),
        (NESTED, '{"b":"x"}', "a.b: expected a whole number"),
        (NESTED, '{"b":1,"c":2}', "a: the schema has no field c"),
        (NESTED, "{}", "a.b: is missing, and the field has no default"),
        (["null", "int"], '"x"', "a: expected a whole number"),
        (["int", "boolean"], '"x"', "a: no type of the union takes the value"),
        (DECIMAL, "123.45", "a: more than 4 digits"),
        (DECIMAL, "1.234", "a: more than 2 digits behind the point"),
        (DECIMAL, '"x"', "a: expected a number"),
        (DECIMAL, '"NaN"', "a: expected a finite number"),
        (logical("int", "date"), '"2026-02-30"', "a: expected a date, like 2026-01-31"),
        (logical("int", "time-millis"), '"01:02:03.0004"', "a: more than 3 digits of a second"),
        (logical("int", "time-millis"), '"25:00:00"', "a: expected a time, like 23:59:59.5"),
        (logical("long", "timestamp-millis"), '"soon"', "a: expected a time, like 2026-01-31T23"),
        (
            logical("long", "timestamp-millis"),
            '"2026-01-31T00:00:00.0001Z"',
            "a: more than 3 digits of a second",
        ),
        (logical("string", "uuid"), '"x"', "a: expected a UUID"),
    ],
)
def test_what_does_not_fit_is_told_by_its_place(kind: Any, text: str, reason: str) -> None:
    with pytest.raises(RejectedRecord) as caught:
        AvroEncoder(record(("a", kind)))(f'{{"a":{text}}}'.encode())
    assert caught.value.reason.startswith(reason)
    assert caught.value.stage == "encode"


@pytest.mark.parametrize("body", [b"hello", b"", b"5", b"[]"])
def test_what_is_no_object_is_no_record(body: bytes) -> None:
    with pytest.raises(RejectedRecord):
        AvroEncoder(record(("a", "int")))(body)


def test_unknown_members_can_be_left_out() -> None:
    schema = record(("a", "int"))
    assert AvroEncoder(schema, ignore_unknown=True)(b'{"a":1,"b":2}') == b"\x02"
    with pytest.raises(RejectedRecord, match="the schema has no field b"):
        AvroEncoder(schema)(b'{"a":1,"b":2}')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
OPTIONAL = json.loads(EVERYTHING)
for field in OPTIONAL["fields"]:
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    field["type"] = ["null", *(kind for kind in kinds if kind != "null")]
FIELDS = st.dictionaries(
    st.sampled_from([field["name"] for field in OPTIONAL["fields"]]), JSON, max_size=2
)
EVERY = AvroEncoder(json.dumps(OPTIONAL), ignore_unknown=True)


@settings(max_examples=examples(150), deadline=None)
@given(FIELDS | JSON)
def test_any_body_is_written_or_rejected(body: Any) -> None:
    """What is written can be read."""
    try:
        value = EVERY(json.dumps(body).encode())
    except RejectedRecord:
        return
    assert AvroFormat(json.dumps(OPTIONAL)).texts(bodies([value])).refused == {}


@pytest.mark.parametrize("number", [-(2**63), 2**62, 10**18 + 2**10])
def test_of_a_union_the_type_is_taken_whose_text_is_the_same(number: int) -> None:
    """A double holds these numbers, but is written with 17 digits at most."""
    schema, body = record(("a", ["double", "long"])), f'{{"a":{number}}}'.encode()
    value = AvroEncoder(schema)(body)
    assert AvroFormat(schema).texts(bodies([value])).texts.to_pylist() == [body]


def test_numbers_of_times_are_taken_as_they_are() -> None:
    schema = record(("a", logical("long", "timestamp-millis")))
    assert AvroEncoder(schema)(b'{"a":1}') == b"\x02"
