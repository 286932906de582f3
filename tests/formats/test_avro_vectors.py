"""A field of all values at a time gives what fastavro gives, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow_assets.formats.avro_cursor import Block
from dataflow_assets.formats.avro_decoder import AvroDecoder
from dataflow_assets.formats.avro_schema import AvroSchema
from dataflow_assets.formats.avro_vectors import Vectors
from tests.examples import examples
from tests.formats.avro_messages import bodies, record, written

INNER = {
    "type": "record",
    "name": "I",
    "fields": [
        {"name": "on", "type": "boolean"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "n", "type": "int"},
    ],
}
SCHEMA = record(
    ("id", "long"),
    ("small", "int"),
    ("ok", "boolean"),
    ("half", "float"),
    ("amount", "double"),
    ("text", "string"),
    ("raw", "bytes"),
    ("fixed", {"type": "fixed", "name": "F", "size": 3}),
    ("enum", {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("on", ["null", {"type": "int", "logicalType": "date"}]),
    ("optional", ["string", "null"]),
    ("price", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]),
    ("inner", INNER),
    ("maybe", ["null", "I"]),
)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-200, 200)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=90)
INNERS = st.fixed_dictionaries({"on": st.booleans(), "text": st.none() | TEXTS, "n": INTS})
VALUES = st.fixed_dictionaries(
    {
        "id": LONGS,
        "small": INTS,
        "ok": st.booleans(),
        "half": st.floats(width=32),
        "amount": st.floats(),
        "text": TEXTS,
        "raw": st.binary(max_size=90),
        "fixed": st.binary(min_size=3, max_size=3),
        "enum": st.sampled_from("ABC"),
        "at": st.integers(-(2**55), 2**55),
        "on": st.none() | st.integers(-100_000, 100_000),
        "optional": st.none() | TEXTS,
        "price": st.none() | st.integers(-(10**9) + 1, 10**9 - 1).map(
            lambda n: n.to_bytes(8, "big", signed=True)
        ),
        "inner": INNERS,
        "maybe": st.none() | INNERS,
    }
)  # fmt: skip
AS_JSON = frozenset({"inner", "maybe", "text"})
DECODERS = {
    names: AvroDecoder("s", AvroSchema(SCHEMA), None, names)
    for names in (AS_JSON, frozenset[str]())
}
PLAIN = json.dumps(AvroSchema(SCHEMA).bare)


def both(values: list[bytes], as_json: frozenset[str]) -> tuple[pa.RecordBatch | None, Any]:
    decoder = DECODERS[as_json]
    return decoder.at_once(Block.of(bodies(values))), lambda: decoder(values)


def texts(rows: pa.RecordBatch) -> list[str]:
    """Every value as text: NaN is no NaN's equal, and Python has no times of far years."""
    return [column.to_string(window=1000) for column in rows.columns]


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=8), st.booleans())
def test_values_are_those_of_fastavro(rows: list[dict[str, Any]], as_json: bool) -> None:
    names = AS_JSON if as_json else frozenset[str]()
    found, expected = both(written(PLAIN, *rows), names)
    assert found is not None
    assert found.schema == expected().schema
    assert texts(found) == texts(expected())


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3), st.data())
def test_bytes_that_were_changed_give_the_same_or_nothing(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    values = written(PLAIN, *rows)
    at = data.draw(st.integers(0, len(values) - 1))
    place = data.draw(st.integers(0, len(values[at]) - 1))
    byte = bytes([data.draw(st.integers(0, 255))])
    values[at] = data.draw(
        st.sampled_from(
            [
                values[at][:place] + byte + values[at][place + 1 :],
                values[at][:place],
                values[at] + byte,
            ]
        )
    )
    found, expected = both(values, frozenset())
    if found is not None:
        assert texts(found) == texts(expected())


def test_a_slice_of_a_longer_array() -> None:
    schema = record(("a", "string"))
    sent = bodies([*written(schema, {"a": "x"}, {"a": "yy"}, {"a": "zzz"})])[1:]
    vectors = Vectors.of(AvroSchema(schema))
    assert vectors is not None
    assert vectors(Block.of(sent)).to_pylist() == [{"a": "yy"}, {"a": "zzz"}]


@pytest.mark.parametrize(
    "kind", [{"type": "array", "items": "int"}, {"type": "map", "values": "int"}, ["int", "string"]]
)
def test_other_types_are_left_to_fastavro(kind: Any) -> None:
    assert Vectors.of(AvroSchema(record(("a", kind)))) is None
