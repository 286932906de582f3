"""Avro messages as columns and as JSON: every type, every way to be wrong."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow_assets.contracts import kind_of
from dataflow_assets.formats.avro import AvroFormat
from dataflow_assets.formats.avro_schema import AvroSchema
from dataflow_assets.formats.message_format import Grouped, StoredSchema
from tests.examples import examples
from tests.formats.avro_messages import ORDER, Known, bodies, headed, record, written

ID = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 3, 1, 12, 0, 0, 500_000, UTC)


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, **more}


DECIMAL = {"precision": 9, "scale": 2}
LIST = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "at", "type": logical("long", "timestamp-millis")},
        {"name": "next", "type": ["null", "Node"]},
    ],
}
CELLS: list[tuple[str, Any, Any, pa.DataType, Any, str]] = [
    # Avro type, value as fastavro writes it, the column's type, its value, its JSON
    ("null", "null", None, pa.null(), None, "null"),
    ("boolean", "boolean", True, pa.bool_(), True, "true"),
    ("int", "int", -(2**31), pa.int32(), -(2**31), "-2147483648"),
    ("long", "long", 2**63 - 1, pa.int64(), 2**63 - 1, "9223372036854775807"),
    ("float", "float", 0.5, pa.float32(), 0.5, "0.5"),
    ("double", "double", 0.1, pa.float64(), 0.1, "0.1"),
    ("endless", "double", float("inf"), pa.float64(), float("inf"), '"Infinity"'),
    ("string", "string", "zwölf", pa.string(), "zwölf", '"zwölf"'),
    ("bytes", "bytes", b"\x00\xff", pa.binary(), b"\x00\xff", '"AP8="'),
    ("enum", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B", '"B"'),
    ("fixed", fixed(2), b"ab", pa.binary(), b"ab", '"YWI="'),
    ("array", {"type": "array", "items": "int"}, [1, 2], pa.list_(pa.int32()), [1, 2], "[1,2]"),
    ("empty", {"type": "array", "items": "int"}, [], pa.list_(pa.int32()), [], "[]"),
    ("optional", ["null", "long"], 7, pa.int64(), 7, "7"),
    ("absent", ["null", "long"], None, pa.int64(), None, "null"),
    ("last null", ["string", "null"], "x", pa.string(), "x", '"x"'),
    ("lone", ["long"], 7, pa.int64(), 7, "7"),
    ("map", {"type": "map", "values": "long"}, {"a": 1}, pa.string(), '{"a":1}', '{"a":1}'),
    ("union", ["null", "long", "string"], "x", pa.string(), '"x"', '"x"'),
    ("union of numbers", ["int", "string"], 5, pa.string(), "5", "5"),
    (
        "union with a time",
        ["null", logical("long", "timestamp-millis"), "string"],
        NOON, pa.string(), '"2026-03-01T12:00:00.5Z"', '"2026-03-01T12:00:00.5Z"',
    ),
    (
        "map of decimals",
        {"type": "map", "values": logical("bytes", "decimal", **DECIMAL)},
        {"a": Decimal("1.50")}, pa.string(), '{"a":1.50}', '{"a":1.50}',
    ),
    (
        "decimal", logical("bytes", "decimal", **DECIMAL), Decimal("-12.34"),
        pa.decimal128(9, 2), Decimal("-12.34"), "-12.34",
    ),
    (
        "fixed decimal", fixed(9, logicalType="decimal", **DECIMAL), Decimal("1.00"),
        pa.decimal128(9, 2), Decimal("1.00"), "1.00",
    ),
    (
        "wide decimal", logical("bytes", "decimal", precision=60, scale=10),
        Decimal("1" * 45 + ".5"), pa.decimal256(60, 10),
        Decimal("1" * 45 + ".5000000000"), "1" * 45 + ".5000000000",
    ),
    (
        "date", logical("int", "date"), date(2026, 3, 1),
        pa.date32(), date(2026, 3, 1), '"2026-03-01"',
    ),
    (
        "time-millis", logical("int", "time-millis"), time(1, 2, 3, 4000),
        pa.time64("us"), time(1, 2, 3, 4000), '"01:02:03.004"',
    ),
    (
        "time-micros", logical("long", "time-micros"), time(23, 59, 59),
        pa.time64("us"), time(23, 59, 59), '"23:59:59"',
    ),
    (
        "timestamp-millis", logical("long", "timestamp-millis"), NOON,
        pa.timestamp("us", "UTC"), NOON, '"2026-03-01T12:00:00.5Z"',
    ),
    (
        "timestamp-micros", logical("long", "timestamp-micros"), NOON,
        pa.timestamp("us", "UTC"), NOON, '"2026-03-01T12:00:00.5Z"',
    ),
    (
        "local-timestamp-micros", logical("long", "local-timestamp-micros"),
        NOON.replace(tzinfo=None), pa.timestamp("us"), NOON.replace(tzinfo=None),
        '"2026-03-01T12:00:00.5Z"',
    ),
    ("uuid", logical("string", "uuid"), ID, pa.string(), str(ID), f'"{ID}"'),
    (
        "duration", fixed(12, logicalType="duration"),
        (1).to_bytes(4, "little") + (2).to_bytes(4, "little") + (3500).to_bytes(4, "little"),
        pa.string(), "P1M2DT3.500S", '"P1M2DT3.500S"',
    ),
    ("unfit logical type", logical("string", "date"), "x", pa.string(), "x", '"x"'),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "arrow", "stored", "text"),
                         [cell[1:] for cell in CELLS], ids=[cell[0] for cell in CELLS])  # fmt: skip
def test_a_type_as_a_column_and_as_json(
    kind: Any, value: Any, arrow: pa.DataType, stored: Any, text: str
) -> None:
    schema = record(("a", kind))
    avro = AvroFormat(schema)
    sent = bodies(written(schema, {"a": value}))
    (group,) = avro.columns(sent).groups
    assert group.rows.schema.field("a").type == arrow
    assert group.rows.column("a").to_pylist() == [stored]
    assert avro.texts(sent).texts.to_pylist() == [f'{{"a":{text}}}'.encode()]


def test_a_decimal_that_cannot_be_one_is_bytes() -> None:
    schema = record(("a", logical("bytes", "decimal", precision=2, scale=5)))
    assert AvroFormat(schema).texts(bodies([b"\x02a"])).texts.to_pylist() == [b'{"a":"YQ=="}']


def test_a_record_inside_a_record_is_a_struct() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "b", "type": ["null", "int"]}]}
    schema = record(
        ("a", inner), ("again", ["null", "I"]), ("many", {"type": "array", "items": "I"})
    )
    rows = [
        {"a": {"b": 1}, "again": None, "many": []},
        {"a": {"b": None}, "again": {"b": 2}, "many": [{"b": 3}, {"b": None}]},
    ]
    (group,) = AvroFormat(schema).columns(bodies(written(schema, *rows))).groups
    assert group.rows.to_pylist() == rows
    assert group.rows.schema.field("a").type == pa.struct([("b", pa.int32())])


def test_a_record_of_its_own_kind_is_json_and_keeps_its_times() -> None:
    schema = json.dumps(LIST)
    value = {"at": NOON, "next": {"at": NOON, "next": None}}
    (group,) = AvroFormat(schema).columns(bodies(written(schema, value))).groups
    assert group.rows.column("at").to_pylist() == [NOON]
    assert kind_of(group.rows.schema.field("next")) == "json"
    at = "2026-03-01T12:00:00.5Z"
    assert json.loads(group.rows.column("next")[0].as_py()) == {"at": at, "next": None}


def test_a_type_that_is_json_in_one_place_and_a_column_in_another() -> None:
    inner = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "on", "type": logical("int", "date")}],
    }
    schema = record(("many", {"type": "map", "values": inner}), ("one", "I"))
    value = {"many": {"x": {"on": date(2026, 3, 1)}}, "one": {"on": date(2026, 3, 2)}}
    (group,) = AvroFormat(schema).columns(bodies(written(schema, value))).groups
    assert group.rows.column("many").to_pylist() == ['{"x":{"on":"2026-03-01"}}']
    assert group.rows.column("one").to_pylist() == [{"on": date(2026, 3, 2)}]


def test_many_messages_keep_their_order_and_values() -> None:
    rows = [
        {"id": n, "name": f"n{n}", "price": Decimal(n).scaleb(-2), "at": NOON, "note": None}
        for n in range(1000)
    ]
    sent: list[bytes | None] = list(written(ORDER, *rows))
    sent.insert(500, None)
    (group,) = AvroFormat(json.dumps(ORDER)).columns(bodies(sent)).groups
    assert group.at.tolist() == [n for n in range(1001) if n != 500]
    assert group.rows.column("id").to_pylist() == list(range(1000))
    assert group.rows.column("price").to_pylist() == [row["price"] for row in rows]


# Wrong messages


def reasons(avro: AvroFormat, *sent: bytes | None) -> dict[int, str]:
    return dict(avro.columns(bodies(sent)).refused)


def test_a_bad_message_costs_itself_alone() -> None:
    schema = record(("id", "long"), ("name", "string"))
    good = written(schema, *({"id": n, "name": "x" * n} for n in range(50)))
    umlaut = written(schema, {"id": 1, "name": "ä"})[0]
    bad = [b"", good[3] + b"\0", good[9][:-1], b"\xff" * 20, umlaut[:-1]]
    mixed = [one for pair in zip(good, bad * 10, strict=True) for one in pair]
    found = AvroFormat(schema).columns(bodies(mixed))
    assert sorted(found.refused) == list(range(1, 100, 2))
    (group,) = found.groups
    assert group.at.tolist() == list(range(0, 100, 2))
    assert group.rows.column("name").to_pylist() == ["x" * n for n in range(50)]
    assert set(found.refused.values()) <= {
        "the Avro schema: the message ends before the value does",
        "the Avro schema: 1 more bytes behind the end of the value",
    }


def test_a_message_that_goes_on_behind_its_value_takes_nothing_from_the_next() -> None:
    """Two misfits that make up for each other's bytes are told apart by the mark between them."""
    schema = record(("a", "long"))
    assert sorted(reasons(AvroFormat(schema), b"\x02\x04", b"", b"\x06")) == [0, 1]


@pytest.mark.parametrize(
    ("kind", "raw", "reason"),
    [
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x08", "symbol that the schema"),
        (["null", "long"], b"\x08", "number of a type or symbol"),
        (logical("int", "time-millis"), b"\x01", "a time outside the day"),
        (logical("bytes", "decimal", precision=2, scale=0), b"\x04\x10\x00", "more than 2 digits"),
        (logical("string", "uuid"), b"\x02x", "no UUID"),
        (logical("long", "timestamp-millis"), b"\xff" * 9 + b"\x01", "overflow"),
    ],
)
def test_values_that_the_type_does_not_allow(kind: Any, raw: bytes, reason: str) -> None:
    assert reason in reasons(AvroFormat(record(("a", kind))), raw)[0]


def test_a_message_nested_a_million_levels_deep_is_rejected_and_does_no_harm() -> None:
    schema = json.dumps({"type": "record", "name": "N", "fields": [
        {"name": "next", "type": ["null", "N"]}]})  # fmt: skip
    found = reasons(AvroFormat(schema), b"\x02" * 1_000_000 + b"\0", b"\x02" * 40 + b"\0")
    assert found == {0: "the Avro schema: nested more than 200 levels deep"}


def test_items_without_bytes_would_fill_the_memory() -> None:
    with pytest.raises(ValueError, match="items have no bytes"):
        AvroSchema(record(("a", {"type": "array", "items": "null"})))


# The registry's messages


def test_each_message_is_read_by_the_schema_that_it_names() -> None:
    first, second = record(("a", "long")), record(("a", "string"), ("b", "long"))
    known = Known({1: StoredSchema("AVRO", first), 2: StoredSchema("AVRO", second)})
    sent = [
        *headed(1, written(first, {"a": 1})),
        *headed(2, written(second, {"a": "x", "b": 2})),
        *headed(1, written(first, {"a": 3})),
        *headed(9, [b"\0"]),
        b"\0\0\0",
        b"{}",
        b"",
    ]
    found = AvroFormat(schemas=known).columns(bodies(sent))
    assert [(g.at.tolist(), g.rows.to_pylist()) for g in found.groups] == [
        ([0, 2], [{"a": 1}, {"a": 3}]),
        ([1], [{"a": "x", "b": 2}]),
    ]
    assert known.asked == [1, 2, 9]  # once a batch, however many messages name it
    assert found.refused == {
        3: "no schema of the id 9",
        4: "only 3 bytes: no number of a schema and value behind the byte 0",
        5: "begins with the byte 123 and not with the byte 0 and the number of a schema, and there "
        "is no avroSchema for messages without a number",
        6: "begins with nothing and not with the byte 0 and the number of a schema, and there is "
        "no avroSchema for messages without a number",
    }


def test_messages_without_a_number_have_the_schema_of_the_manifest() -> None:
    static, registered = record(("a", "string")), record(("b", "long"))
    avro = AvroFormat(static, Known({1: StoredSchema("AVRO", registered)}))
    sent = [*written(static, {"a": "x"}), *headed(1, written(registered, {"b": 2}))]
    assert avro.texts(bodies(sent)).texts.to_pylist() == [b'{"a":"x"}', b'{"b":2}']


def test_without_a_registry_a_first_byte_0_is_part_of_the_value() -> None:
    schema = record(("a", "long"), ("b", "string"))
    sent = bodies(written(schema, {"a": 0, "b": "long enough"}))
    assert AvroFormat(schema).texts(sent).texts.to_pylist() == [b'{"a":0,"b":"long enough"}']


def test_numbers_of_schemas_can_be_stripped_and_ignored() -> None:
    schema = record(("a", "long"))
    avro = AvroFormat(schema, head_ignored=True)
    sent = bodies([*headed(77, written(schema, {"a": 5})), *written(schema, {"a": 6})])
    assert avro.texts(sent).texts.to_pylist() == [b'{"a":5}', b'{"a":6}']


def test_a_value_that_begins_with_0_keeps_its_first_bytes() -> None:
    """Decided by which of the two readings uses every byte; where both do, the head is removed."""
    schema = record(("a", "long"), ("b", "string"))
    avro = AvroFormat(schema, head_ignored=True)
    plain = written(schema, {"a": 0, "b": "long enough"}, {"a": 0, "b": ""}, {"a": 7, "b": "x"})
    both = b"\0\x0e\0\0\x01" + b"\2\4hi"
    rest = written(schema, {"a": 0, "b": "other"})
    sent = [*plain, *headed(9, rest), b"\0\0\0\0\x01broken", both]
    found = avro.texts(bodies(sent))
    assert found.texts.to_pylist() == [
        b'{"a":0,"b":"long enough"}', b'{"a":0,"b":""}', b'{"a":7,"b":"x"}',
        b'{"a":0,"b":"other"}', None, b'{"a":1,"b":"hi"}',
    ]  # fmt: skip
    assert list(found.refused) == [4]


def test_schemas_that_build_on_others() -> None:
    inner = '{"type": "enum", "name": "shop.State", "symbols": ["NEW", "PAID"]}'
    outer = record(("state", "shop.State"), ("before", ["null", "shop.State"]))
    known = Known({1: StoredSchema("AVRO", outer, (("state", inner),))})
    found = AvroFormat(schemas=known).texts(bodies(headed(1, [b"\x02\x02\x00"])))
    assert found.texts.to_pylist() == [b'{"state":"PAID","before":"NEW"}']


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (StoredSchema("PROTOBUF", "message M {}"), "schema 1 of the registry is of type PROTOBUF"),
        (StoredSchema("AVRO", "nonsense"), "cannot be used: line 1, column 1: no JSON"),
        (StoredSchema("AVRO", record(("a", "Nobody"))), "cannot be used: unknown type Nobody"),
    ],
)
def test_a_schema_that_cannot_be_used_rejects_its_messages(
    schema: StoredSchema, reason: str
) -> None:
    assert reason in reasons(AvroFormat(schemas=Known({1: schema})), b"\0\0\0\0\x01abc")[0]


# Schema resolution


def test_a_readers_schema_has_the_last_word() -> None:
    old = record(("id", "int"), ("gone", "string"), ("kept", "string"))
    new = json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "long"},
        {"name": "renamed", "aliases": ["kept"], "type": "string"},
        {"name": "added", "type": "string", "default": "-"},
        {"name": "on", "type": ["null", logical("int", "date")], "default": None},
    ]})  # fmt: skip
    sent = written(old, *({"id": n, "gone": "x", "kept": f"k{n}"} for n in range(3)))
    (group,) = AvroFormat(old, reader=new).columns(bodies(sent)).groups
    assert group.rows.to_pylist() == [
        {"id": n, "renamed": f"k{n}", "added": "-", "on": None} for n in range(3)
    ]
    assert group.rows.schema.types == [pa.int64(), pa.string(), pa.string(), pa.date32()]


def test_schemas_that_do_not_fit_reject_their_messages() -> None:
    old, new = record(("a", "string")), record(("a", "long"))
    assert reasons(AvroFormat(old, reader=new), *written(old, {"a": "x"})) != {}


def test_what_is_no_record_is_json() -> None:
    sent = bodies(written('"string"', "x"))
    assert AvroFormat('"string"').texts(sent).texts.to_pylist() == [b'"x"']
    kind = '{"type": "map", "values": "long"}'
    assert AvroFormat(kind).texts(bodies(written(kind, {"a": 1}))).texts.to_pylist() == [b'{"a":1}']


def test_fields_named_as_our_own_columns_once_were_are_columns() -> None:
    schema = record(("_op", "int"), ("a", "int"))
    (group,) = AvroFormat(schema).columns(bodies(written(schema, {"_op": 2, "a": 1}))).groups
    assert group.rows.to_pylist() == [{"_op": 2, "a": 1}]


def test_it_travels_to_tasks() -> None:
    avro = AvroFormat(json.dumps(ORDER))
    assert pickle.loads(pickle.dumps(avro)) == avro  # noqa: S301


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{", "line 1, column 2: no JSON"),
        ('{\n "type": "record",\n oops}', "line 3, column 2: no JSON"),
        ('"strnig"', "unknown type strnig"),
        ("5", "no Avro schema"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_schema(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        AvroSchema(text)


# Any bytes at all

EVERYTHING = json.dumps({
    "type": "record", "name": "All", "fields": [
        {"name": f"f{at}", "type": cell[1] if not isinstance(cell[1], dict) or "name" not in cell[1]
            else {**cell[1], "name": f"N{at}"}}
        for at, cell in enumerate(CELLS)
    ] + [{"name": "list", "type": ["null", LIST]}],
})  # fmt: skip


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=60), st.none()), max_size=6), st.booleans())
def test_no_bytes_break_the_decoder(sent: list[bytes | None], small: bool) -> None:
    schema = (
        record(("a", ["null", "string", {"type": "array", "items": "long"}]))
        if small
        else EVERYTHING
    )
    avro = AvroFormat(schema, Known({0: StoredSchema("AVRO", schema)}))
    found: Grouped = avro.columns(bodies(sent))
    rows = sorted([*found.refused, *(row for group in found.groups for row in group.at.tolist())])
    assert rows == [row for row, body in enumerate(sent) if body is not None]
    texts = avro.texts(bodies(sent))
    for row, text in enumerate(texts.texts.to_pylist()):
        assert (text is None) == (sent[row] is None or row in texts.refused)
        assert text is None or isinstance(json.loads(text), dict)
