"""Values and messages at the edge: none ends a task, and none is stored as another one."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.contracts import Kind
from dataflow_assets.errors import PermanentError, RejectedRecord
from dataflow_assets.formats import protobuf_schema, registry_client
from dataflow_assets.formats.avro import AvroFormat
from dataflow_assets.formats.avro_encoder import AvroEncoder
from dataflow_assets.formats.columns import conform
from dataflow_assets.formats.message_format import StoredSchema
from dataflow_assets.formats.protobuf import ProtobufFormat
from dataflow_assets.formats.registry_client import RegistryClient
from tests.formats.avro_messages import Known, bodies, headed, record, written
from tests.formats.registry_front import Front, front

TREE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "long"}, {"name": "next", "type": ["null", "Node"]}],
}
HOLDER = {"type": "record", "name": "A", "fields": [{"name": "node", "type": TREE}]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}


ONE = {"node": {"v": 1, "next": None}}
TWO = {"node": {"v": 1, "next": {"v": 2, "next": None}}}
ONE_TEXT = '{"node":{"v":1,"next":null}}'
TWO_TEXT = '{"node":{"v":1,"next":{"v":2,"next":null}}}'


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (HOLDER, TWO, TWO_TEXT),
        ({"type": "array", "items": HOLDER}, [ONE, TWO], f"[{ONE_TEXT},{TWO_TEXT}]"),
        (["null", HOLDER], ONE, ONE_TEXT),
    ],
)
def test_a_record_that_holds_a_recursive_one(kind: Any, value: Any, text: str) -> None:
    schema = record(("a", kind))
    found = AvroFormat(schema).texts(bodies(written(schema, {"a": value})))
    assert found.refused == {}
    assert found.texts.to_pylist() == [f'{{"a":{text}}}'.encode()]


@pytest.mark.parametrize(
    "kind", [MONEY, {"type": "fixed", "name": "F", "size": 9, **MONEY} | {"type": "fixed"}]
)
def test_an_empty_array_of_decimals_is_an_array(kind: Any) -> None:
    """Whether other messages of the block have items must not matter."""
    schema = record(("c", {"type": "array", "items": kind}))
    sent = bodies(written(schema, {"c": []}))
    (group,) = AvroFormat(schema).columns(sent).groups
    assert group.rows.column("c").to_pylist() == [[]]


STRUCT = """
syntax = "proto3";
import "google/protobuf/struct.proto";
message M {
  google.protobuf.Struct one = 1;
  repeated google.protobuf.Struct many = 2;
  map<string, google.protobuf.Struct> named = 3;
  oneof way { google.protobuf.Struct other = 4; }
  google.protobuf.Value value = 5;
  google.protobuf.ListValue list = 6;
}
"""


def test_a_struct_of_protobuf_is_an_object_wherever_it_is() -> None:
    from google.protobuf.message_factory import GetMessageClass

    made = GetMessageClass(protobuf_schema.compile_schema(STRUCT).message_types_by_name["M"])()
    made.one["a"] = 1
    made.many.add()["b"] = "x"
    made.named["n"]["c"] = True
    made.other["d"] = None
    made.value.number_value = 2
    made.list.append("y")
    (sent,) = headed(1, [b"\0" + made.SerializeToString()])
    found = ProtobufFormat(Known({1: StoredSchema("PROTOBUF", STRUCT)})).texts(bodies([sent]))
    (text,) = found.texts.to_pylist()
    assert json.loads(text) == {
        "one": {"a": 1.0},
        "many": [{"b": "x"}],
        "named": {"n": {"c": True}},
        "other": {"d": None},
        "value": 2.0,
        "list": ["y"],
    }


def test_text_of_proto2_that_is_not_utf_8_is_refused() -> None:
    schema = StoredSchema("PROTOBUF", 'syntax = "proto2"; message M { optional string s = 1; }')
    (sent,) = headed(1, [b"\0\x0a\x01\xff"])
    found = ProtobufFormat(Known({1: schema})).texts(bodies([sent]))
    assert "utf-8" in found.refused[0]


def test_protoc_is_asked_once_about_a_schema_that_it_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each message would start a process otherwise."""
    text = 'syntax = "proto3";\nimport "shop/once.proto";\nmessage Once {}'
    asked: list[str] = []
    build = protobuf_schema._build

    def counted(text: str, references: tuple[tuple[str, str], ...]) -> Any:
        asked.append(text)
        return build(text, references)

    monkeypatch.setattr(protobuf_schema, "_build", counted)
    sent = headed(1, [b"\0"]) * 5
    found = ProtobufFormat(Known({1: StoredSchema("PROTOBUF", text)})).texts(bodies(sent))
    assert len(found.refused) == 5
    assert "shop/once.proto" in found.refused[0]
    assert len(asked) == 1


def test_a_number_that_no_schema_can_have_is_not_asked_for() -> None:
    """A message of another kind that begins with a zero must not stop the flow."""
    client = RegistryClient("http://127.0.0.1:9")
    with pytest.raises(RejectedRecord, match="there can be no schema of the id 4294901760"):
        client.by_id(0xFFFF0000)


def test_a_schema_that_is_not_there_is_asked_for_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with front("") as registry:
        monkeypatch.setattr(Front, "answer", lambda self, request, _: _absent(self, request.path))
        client = RegistryClient(registry.url())
        for _ in range(3):
            with pytest.raises(RejectedRecord, match="has no schema of the id 7"):
                client.by_id(7)
        assert len(registry.asked) == 1
        monkeypatch.setattr(registry_client, "_absent", {})
        with pytest.raises(RejectedRecord):
            client.by_id(7)
        assert len(registry.asked) == 2


def _absent(registry: Front, path: str) -> tuple[int, bytes]:
    registry.asked.append(path)
    return 404, b'{"error_code": 40403, "message": "Schema not found"}'


def test_an_answer_that_is_no_schema_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a page of health, or of a login, that is JSON."""
    with front("") as registry:
        monkeypatch.setattr(Front, "answer", lambda *_: (200, b'{"status": "ok"}'))
        client = RegistryClient(registry.url())
        with pytest.raises(PermanentError, match="an answer without `schema`; url must be"):
            client.by_id(1)
        with pytest.raises(PermanentError, match="an answer without `id`; url must be"):
            client.register("s", "AVRO", '"string"')


@pytest.mark.parametrize("wanted", [pa.bool_(), pa.float64(), pa.list_(pa.int64())])
def test_a_far_date_where_none_can_be_is_rejected_alone(wanted: pa.DataType) -> None:
    """Python has no such date: that must not end the task."""
    schema = record(("d", {"type": "int", "logicalType": "date"}))
    (group,) = AvroFormat(schema).columns(bodies(written(schema, {"d": 5_000_000}))).groups
    found = conform(group.rows, pa.schema([("d", wanted)]))
    assert "column d: 15659-07-15" in str(found)


def test_a_decimal_becomes_the_nearest_fraction() -> None:
    given = pa.record_batch([pa.array([Decimal("1.2345")])], names=["a"])
    found = conform(given, pa.schema([("a", pa.float64())]))
    assert found.rows.column("a").to_pylist() == [1.2345]


def test_a_lone_text_of_a_union_goes_into_a_text_column_as_itself() -> None:
    json = pa.schema([Kind.JSON.field("a")])
    given = pa.record_batch([pa.array(['"x"', "5", None, '{"b":"y"}'])], schema=json)
    found = conform(given, pa.schema([("a", pa.string())]))
    assert found.rows.column("a").to_pylist() == ["x", "5", None, '{"b":"y"}']


UNION_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
DURATION = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
ID = {"type": "fixed", "name": "I", "size": 16, "logicalType": "uuid"}
SPAN = b"\1\0\0\0\2\0\0\0\xac\x0d\0\0"


@pytest.mark.parametrize(
    ("kind", "bare", "value", "text"),
    [
        (NANOS, "long", 1_001_234_567, '"1970-01-01T00:00:01.001234567Z"'),
        (DURATION, {"type": "fixed", "name": "D", "size": 12}, SPAN, '"P1M2DT3.500S"'),
        (ID, {"type": "fixed", "name": "I", "size": 16}, bytes(range(16)),
         '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        ("float", "float", 0.1, "0.1"),
        (UNION_DECIMAL, "bytes", b"\x04\xd2", "12.34"),
    ],
)  # fmt: skip
def test_a_value_has_one_form_wherever_it_is(kind: Any, bare: Any, value: Any, text: str) -> None:
    """Alone, in a union of several types, in a map, and as the whole of a message."""
    again = kind["name"] if isinstance(kind, dict) and "name" in kind else kind
    plain = bare["name"] if isinstance(bare, dict) else bare
    schemas = [
        record(
            ("e", one),
            ("d", ["null", two, "string"]),
            ("m", {"type": "map", "values": two}),
        )
        for one, two in ((kind, again), (bare, plain))
    ]
    (sent,) = written(schemas[1], {"e": value, "d": (plain, value), "m": {"k": value}})
    found = AvroFormat(schemas[0]).texts(bodies([sent]))
    assert found.refused == {}
    assert found.texts.to_pylist() == [f'{{"e":{text},"d":{text},"m":{{"k":{text}}}}}'.encode()]
    (alone,) = written(bare if isinstance(bare, dict) else {"type": bare}, value)
    root = json.dumps(kind if isinstance(kind, dict) else {"type": kind})
    assert AvroFormat(root).texts(bodies([alone])).texts.to_pylist() == [text.encode()]


VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "price", "type": UNION_DECIMAL},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "f", "type": "float"},
    ],
}


def test_a_root_that_is_no_record_has_the_same_forms() -> None:
    sent = {"price": Decimal("12.34"), "at": 1000, "f": 0.1}
    text = '{"price":12.34,"at":"1970-01-01T00:00:01Z","f":0.1}'
    for schema, value, wanted in (
        (VALUE, sent, text),
        (["null", VALUE], sent, text),
        ({"type": "array", "items": VALUE}, [sent], f"[{text}]"),
    ):
        (body,) = written(schema, value)  # type: ignore[arg-type]
        found = AvroFormat(json.dumps(schema)).texts(bodies([body]))
        assert found.texts.to_pylist() == [wanted.encode()]


def test_a_decimal_of_too_many_digits_is_refused_in_json_too() -> None:
    """It is never rounded: producers do not check the precision."""
    schema = record(("d", ["null", UNION_DECIMAL, "string"]))
    found = AvroFormat(schema).texts(bodies([b"\x02\x08\x07\x5b\xcd\x15"]))
    assert "a decimal of more than 4 digits" in found.refused[0]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (UNION_DECIMAL, UNION_DECIMAL | {"scale": 1},
         "decimal(4, 2), and would be read as decimal(4, 1)"),
        (MILLIS, NANOS, "timestamp-millis, and would be read as timestamp-nanos"),
    ],
)  # fmt: skip
def test_a_readers_schema_does_not_bend_values(one: Any, other: Any, said: str) -> None:
    value = b"\x02" if one is MILLIS else b"\x02\x02"
    for make, arm in ((lambda kind: kind, b""), (lambda kind: ["null", kind], b"\x02")):
        written_, wanted = (record(("a", make(kind))) for kind in (one, other))
        found = AvroFormat(written_, reader=wanted).texts(bodies([arm + value]))
        assert found.refused[0].startswith("the Avro schema")
        assert found.refused[0].endswith(f"field a was written as {said}")
    plain = record(("a", "long"))
    readers = record(("a", {"type": "long", "logicalType": "timestamp-millis"}))
    found = AvroFormat(plain, reader=readers).texts(bodies([b"\x02"]))
    assert found.texts.to_pylist() == [b'{"a":"1970-01-01T00:00:00.001Z"}']


def test_defaults_of_a_readers_schema_are_bytes_where_the_type_is() -> None:
    inner = {"type": "record", "name": "N", "fields": [{"name": "b", "type": "bytes"}]}
    pair = {"type": "fixed", "name": "F", "size": 2}
    wanted = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "a", "type": "long"},
                {"name": "d", "type": "bytes", "default": "\u00ff"},
                {"name": "g", "type": pair, "default": "\u00ff\u0001"},
                {"name": "p", "type": UNION_DECIMAL, "default": "\u0001\u0000"},
                {"name": "u", "type": [UNION_DECIMAL, "string"], "default": "\u0001\u0000"},
                {"name": "n", "type": inner, "default": {"b": "\u00ff"}},
            ],
        }
    )  # fmt: skip
    found = AvroFormat(record(("a", "long")), reader=wanted).texts(bodies([b"\x02"]))
    assert found.refused == {}
    (text,) = found.texts.to_pylist()
    assert json.loads(text) == {
        "a": 1, "d": "/w==", "g": "/wE=", "p": 2.56, "u": 2.56, "n": {"b": "/w=="},
    }  # fmt: skip


OPTIONAL = {"name": "a", "type": ["null", "long"], "default": None}
X = {"type": "record", "name": "X", "fields": [OPTIONAL]}
Y = {"type": "record", "name": "Y", "fields": [{"name": "b", "type": "long"}]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (["null", "float", "double"], 0.12345678901234),
        (["null", "float", "double"], 0.5),
        (["null", "bytes", "string"], "abcd"),
        (["null", X, Y], {"b": 5}),
        (["null", X, Y], {"a": 5}),
    ],
)
def test_a_union_takes_the_type_that_loses_nothing(kind: Any, value: Any) -> None:
    schema = record(("a", kind))
    sent = json.dumps({"a": value}).encode()
    body = AvroEncoder(schema, ignore_unknown=True)(sent)
    (text,) = AvroFormat(schema).texts(bodies([body])).texts.to_pylist()
    assert json.loads(text) == {"a": value}


def test_what_avro_reads_is_written_back() -> None:
    schema = record(("a", DURATION))
    body = AvroEncoder(schema)(b'{"a":"P1M2DT3.500S"}')
    assert body == SPAN
    with pytest.raises(RejectedRecord, match="beyond the range of float"):
        AvroEncoder(record(("a", "float")))(b'{"a":3.40282363e38}')


def test_defaults_inside_defaults_are_values() -> None:
    numbers, named = {"type": "array", "items": "double"}, {"type": "map", "values": "bytes"}
    fields = [
        {"name": "u", "type": numbers, "default": [1.5]},
        {"name": "z", "type": named, "default": {"k": "\u00ff"}},
    ]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    body = AvroEncoder(schema)(b"{}")
    (text,) = AvroFormat(schema).texts(bodies([body])).texts.to_pylist()
    assert json.loads(text) == {"u": [1.5], "z": {"k": "/w=="}}
