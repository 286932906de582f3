"""Values and messages at the edge: none ends a task, and none is stored as another one."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.contracts import KIND, StoredSchema
from dataflow_assets.errors import PermanentError, RejectedRecord
from dataflow_assets.formats import protobuf_schema, registry_client
from dataflow_assets.formats.avro import AvroFormat
from dataflow_assets.formats.columns import conform
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

    made = GetMessageClass(protobuf_schema.compiled(STRUCT).message_types_by_name["M"])()
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
    text = 'syntax = "proto3";\nimport "confluent/meta.proto";\nmessage Once {}'
    asked: list[str] = []
    build = protobuf_schema._built

    def counted(text: str, references: tuple[tuple[str, str], ...]) -> Any:
        asked.append(text)
        return build(text, references)

    monkeypatch.setattr(protobuf_schema, "_built", counted)
    sent = headed(1, [b"\0"]) * 5
    found = ProtobufFormat(Known({1: StoredSchema("PROTOBUF", text)})).texts(bodies(sent))
    assert len(found.refused) == 5
    assert "confluent/meta.proto" in found.refused[0]
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
    json = pa.schema([pa.field("a", pa.string(), metadata={KIND: b"json"})])
    given = pa.record_batch([pa.array(['"x"', "5", None, '{"b":"y"}'])], schema=json)
    found = conform(given, pa.schema([("a", pa.string())]))
    assert found.rows.column("a").to_pylist() == ["x", "5", None, '{"b":"y"}']
