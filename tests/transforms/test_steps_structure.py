"""Steps that change a record's structure or count: what one record in, one out cannot show."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import Record, parse, text
from dataflow_assets.records.step import Apply, Context, Step
from dataflow_assets.transforms.camel_case import CamelCase
from dataflow_assets.transforms.debezium_unwrap import DebeziumUnwrap
from dataflow_assets.transforms.dedupe import Dedupe
from dataflow_assets.transforms.flatten import Flatten
from dataflow_assets.transforms.hoist_field import HoistField
from dataflow_assets.transforms.json_string import JsonString
from dataflow_assets.transforms.snake_case import SnakeCase
from dataflow_assets.transforms.struct_flatten import StructFlatten
from dataflow_assets.transforms.validate import Validate


def compiled(step: type[Step], **config: Any) -> Apply:
    context = Context(datetime(2026, 7, 20, 10, tzinfo=UTC))
    return step.model_validate_json(_json(config)).compile(context)


def _json(config: dict[str, Any]) -> str:
    body = text(config)
    assert body is not None
    return body.decode()


def record(body: str, **metadata: Any) -> Record:
    return Record(parse(body.encode()), metadata, "a route")


def passed(apply: Apply, bodies: list[str]) -> list[str]:
    return [body for body in bodies if apply(record(body)) is not None]


def finding(step: type[Step], **config: Any) -> tuple[tuple[int | str, ...], str]:
    with pytest.raises(ValidationError) as raised:
        compiled(step, **config)
    [error] = raised.value.errors()
    return error["loc"], error["msg"]


@pytest.mark.parametrize(
    ("step", "config", "body"),
    [
        (Flatten, {"field": "xs"}, '{"xs":[{"v":1},2]}'),
        (StructFlatten, {}, '{"a":{"b":1}}'),
        (HoistField, {"field": "r"}, "1"),
        (DebeziumUnwrap, {}, '{"op":"c","after":{"a":1}}'),
    ],
)
def test_the_route_stays(step: type[Step], config: dict[str, Any], body: str) -> None:
    found = compiled(step, **config)(record(body))
    children = found if isinstance(found, list) else [found]
    assert {child.route for child in children if child} == {"a route"}


# dedupe


def test_of_records_with_one_key_the_first_stays() -> None:
    apply = compiled(Dedupe, key=["id"])
    bodies = ['{"id":1,"n":1}', '{"id":2}', '{"id":1,"n":2}', '{"id":1.0}', "{}", "{}"]
    assert passed(apply, bodies) == ['{"id":1,"n":1}', '{"id":2}', "{}", "{}"]


def test_keys_of_different_types_are_different_keys() -> None:
    bodies = ['{"id":1}', '{"id":"1"}', '{"id":true}', '{"id":"true"}', '{"id":[1]}', '{"id":""}']
    assert passed(compiled(Dedupe, key=["id"]), bodies) == bodies


def test_objects_are_one_key_in_any_order() -> None:
    bodies = ['{"id":{"a":1,"b":2}}', '{"id":{"b":2,"a":1}}']
    assert passed(compiled(Dedupe, key=["id"]), bodies) == bodies[:1]


def test_a_key_of_several_parts() -> None:
    bodies = ['{"a":1,"b":0}', '{"a":0,"b":1}', '{"a":1,"b":0,"c":1}', '{"a":1}', '{"a":1}']
    apply = compiled(Dedupe, key=["a", "$.b"])
    assert passed(apply, bodies) == [bodies[0], bodies[1], bodies[3], bodies[4]]


def test_the_key_of_the_message() -> None:
    apply = compiled(Dedupe, key=["metadata.key", "metadata.partition"])
    found = [apply(record("{}", key=key, partition=0)) for key in ("a", "a", "b", "", "")]
    assert [one is not None for one in found] == [True, False, True, True, True]
    assert Dedupe(key=("metadata.key", "id")).reads() == {"key"}


@pytest.mark.parametrize(
    ("step", "config", "says"),
    [
        (Dedupe, {"key": ["a"]}, "a: nested too deeply"),
        (SnakeCase, {"deep": True}, "nested too deeply"),
        (CamelCase, {"deep": True}, "nested too deeply"),
        (JsonString, {"fields": ["a"]}, "a: nested too deeply"),
    ],
)
def test_what_is_nested_too_deeply_is_rejected(
    step: type[Step], config: dict[str, Any], says: str
) -> None:
    deep: Any = {"bC": 1}
    for _ in range(3_000):
        deep = [deep]
    with pytest.raises(RejectedRecord, match=says):
        compiled(step, **config)(Record({"a": deep}, {}))


def test_each_compiled_step_begins_with_nothing_seen() -> None:
    step = Dedupe(key=("id",))
    context = Context(datetime(2026, 7, 20, 10, tzinfo=UTC))
    assert all(step.compile(context)(record('{"id":1}')) for _ in range(2))


# structFlatten


def test_nesting_of_64_levels_is_the_deepest() -> None:
    apply = compiled(StructFlatten)
    found = apply(record('{"a":' * 65 + "1" + "}" * 65))
    assert isinstance(found, Record)
    assert found.body == {".".join("a" * 65): 1}
    with pytest.raises(RejectedRecord, match="more than 64 levels"):
        apply(record('{"a":' * 66 + "1" + "}" * 66))


# validate


@pytest.mark.parametrize(
    ("schema", "place", "says"),
    [
        ({"properties": {"a": {"type": "intger"}}}, ("properties", "a", "type"), "not a type"),
        ({"items": {"pattern": "("}}, ("items", "pattern"), "not a regular expression"),
        ({"required": "id"}, ("required",), "breaks the rule type"),
        ({"allOf": [{"format": "int63"}]}, ("allOf", 0, "format"), "not a format"),
        ({"$ref": "http://127.0.0.1:9/x"}, ("$ref",), "nothing is fetched"),
        ({"$ref": "http://127.0.0.1:9/x#/a"}, ("$ref",), "nothing is fetched"),
        ({"not": {"$ref": "file:///etc/hostname"}}, ("not", "$ref"), "nothing is fetched"),
        (
            {"$defs": {"q": {}}, "oneOf": [{"$ref": "#/$defs/q"}, {"$ref": "#/$defs/qq"}]},
            ("oneOf", 1, "$ref"),
            "not part of this schema",
        ),
        ({"$schema": "http://127.0.0.1:9/x"}, ("$schema",), "not a known draft"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_finding_at_its_place(
    schema: dict[str, Any], place: tuple[int | str, ...], says: str
) -> None:
    loc, message = finding(Validate, schema=schema)
    assert loc == ("schema", *place)
    assert says in message


def test_a_reason_never_tells_a_value() -> None:
    apply = compiled(Validate, schema={"additionalProperties": False})
    with pytest.raises(RejectedRecord) as raised:
        apply(record('{"planted":"planted"}'))
    assert "planted" not in str(raised.value)


def test_a_body_nested_too_deeply_to_tell_where_is_rejected_all_the_same() -> None:
    deep = record("[" * 500 + "]" * 500)
    assert compiled(Validate, schema={"items": {"$ref": "#"}, "type": "array"})(deep) is deep
    with pytest.raises(RejectedRecord, match="breaks the schema, nested too deeply"):
        compiled(Validate, schema={"type": "object"})(deep)


@pytest.mark.parametrize("number", ["1e999999999", "1e-999999999", "9" * 4000])
def test_numbers_beyond_all_bounds_cost_no_time(number: str) -> None:
    apply = compiled(Validate, schema={"maximum": 1, "multipleOf": 0.01})
    with pytest.raises(RejectedRecord):
        apply(record(number))


# debeziumUnwrap


@pytest.mark.parametrize(
    "body",
    [
        '{"payload":{"a":1}}',
        '{"payload":{"op":""},"op":"c","after":{"a":1}}',
        '{"payload":null}',
        '{"op":"c","ts_ms":1}',
        '{"op":"c","before":null,"after":"text"}',
        '{"before":{},"after":{}}',
        "hello",
    ],
)
def test_what_is_no_change_event_passes_unchanged(body: str) -> None:
    given = record(body)
    assert compiled(DebeziumUnwrap)(given) is given


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("[1]", "must be an object"),
        ("null", "must be an object"),
        ('{"op":"add","before":null}', "op is none of"),
        ('{"payload":{"op":["c"]}}', "payload.op is none of"),
        ('{"payload":{"op":"u","after":[1]}}', "payload.after is not an object"),
    ],
)
def test_change_events_that_cannot_be_unwrapped(body: str, says: str) -> None:
    with pytest.raises(RejectedRecord, match=says):
        compiled(DebeziumUnwrap)(record(body))


@pytest.mark.parametrize("key", ["", "7", "{", '{"schema":{},"payload":7}', "\ud800"])
def test_a_tombstone_that_tells_no_row_is_rejected_only_where_deletes_are_inferred(
    key: str,
) -> None:
    tombstone = record(" ", key=key)
    assert compiled(DebeziumUnwrap)(tombstone) is None
    with pytest.raises(RejectedRecord, match="not a JSON object"):
        compiled(DebeziumUnwrap, inferDeleteFromTombstone=True)(tombstone)


DOCUMENT = (
    '{"_id":{"$oid":"6f"},"at":{"$date":1667304001123},"iso":{"$date":"2022-11-01T12:00:01Z"},'
    '"n":{"$numberLong":"9007199254740993"},"d":{"$numberDecimal":"1.10"},"nan":{"$numberDouble":'
    '"NaN"},"b":{"$binary":{"base64":"AP8=","subType":"00"}},"l":[{"o":{"$numberInt":"1"}}],'
    '"t":{"$timestamp":{"t":1,"i":2}}}'
)
PLAIN = (
    '{"_id":"6f","at":"2022-11-01T12:00:01.123Z","iso":"2022-11-01T12:00:01Z",'
    '"n":9007199254740993,"d":1.10,"nan":"NaN","b":"AP8=","l":[{"o":1}],'
    '"t":{"$timestamp":{"t":1,"i":2}}}'
)


def test_a_document_of_mongodb_is_an_object_of_plain_values() -> None:
    event = text({"op": "u", "before": None, "after": DOCUMENT})
    assert event is not None
    unwrapped = compiled(DebeziumUnwrap)(record(event.decode()))
    assert isinstance(unwrapped, Record)
    assert text(unwrapped.body) == PLAIN.encode()


@pytest.mark.parametrize(
    ("key", "row"),
    [
        ('{"id":"{\\"$oid\\":\\"6f\\"}"}', '{"_id":"6f"}'),
        ('{"schema":null,"payload":{"id":"{\\"$oid\\":\\"6f\\"}"}}', '{"_id":"6f"}'),
        ('{"id":5,"region":"eu"}', '{"id":5,"region":"eu"}'),
    ],
)
def test_a_delete_without_the_row_before_is_of_the_row_of_its_key(key: str, row: str) -> None:
    deleted = compiled(DebeziumUnwrap)(record('{"op":"d","before":null,"after":null}', key=key))
    assert isinstance(deleted, Record)
    assert text(deleted.body) == row.encode()
    assert deleted.metadata["operation"] == "delete"


@pytest.mark.parametrize(
    ("id_", "row"),
    [
        ('"abc"', '{"_id":"abc"}'),
        ("1004", '{"_id":1004}'),
        ('{"$oid":"6f"}', '{"_id":"6f"}'),
        ('{"$numberLong":"5"}', '{"_id":5}'),
    ],
)
def test_a_delete_of_mongodb_is_of_the_document_whose_id_its_key_writes(id_: str, row: str) -> None:
    """The key's id is a text of Extended JSON, whatever the type of the document's."""
    key = text({"id": id_})
    assert key is not None
    body = '{"op":"d","before":null,"after":null,"source":{"connector":"mongodb"}}'
    deleted = compiled(DebeziumUnwrap)(record(body, key=key.decode()))
    assert isinstance(deleted, Record)
    assert text(deleted.body) == row.encode()


def test_a_tombstone_that_may_be_of_mongodb_is_no_delete_of_another_row() -> None:
    """Nothing says whether the quotes are part of the id."""
    tombstone = record(" ", key='{"id":"\\"abc\\""}')
    with pytest.raises(RejectedRecord, match="may be that of a document of MongoDB"):
        compiled(DebeziumUnwrap, inferDeleteFromTombstone=True)(tombstone)


P = "__debezium_unavailable_value"
BYTES = list(P.encode())
DIGITS = [base64.b64encode(bytes([byte])).decode() for byte in BYTES]
NAME = str(uuid.UUID(bytes=hashlib.md5(P.encode(), usedforsecurity=False).digest(), version=3))
DAYS = {"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}}
DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (DAYS, BYTES),
        ({"type": "array", "items": {"type": "int64"}}, BYTES),
        ({"type": "array", "items": {"type": "double"}}, [float(byte) for byte in BYTES]),
        ({"type": "array", "items": DECIMAL}, DIGITS),
        ({"type": "array", "items": {"type": "string"}}, [NAME]),
        (DECIMAL, P),
        ({"type": "string", "name": "io.debezium.data.Json"}, f'{{"{P}":"{P}"}}'),
    ],
)
def test_a_placeholder_is_known_before_its_schema_is_asked(schema: Any, value: Any) -> None:
    fields = [{"field": "id", "type": "int32"}, {"field": "big", **schema}]
    after = {"field": "after", "type": "struct", "fields": fields}
    event = {
        "schema": {"type": "struct", "fields": [after]},
        "payload": {"op": "u", "after": {"id": 1, "big": value}},
    }
    updated = compiled(DebeziumUnwrap)(record(json.dumps(event)))
    assert isinstance(updated, Record)
    assert (updated.body, updated.metadata["unavailable"]) == ({"id": 1}, "big")


@pytest.mark.parametrize(
    "body",
    [
        '{"schema":{"type":"struct","fields":5},"payload":{"op":"c","after":{"id":1}}}',
        '{"schema":{"fields":[5,{"field":"after"}]},"payload":{"op":"c","after":{"id":1}}}',
    ],
)
def test_a_schema_that_is_none_says_nothing(body: str) -> None:
    unwrapped = compiled(DebeziumUnwrap)(record(body))
    assert isinstance(unwrapped, Record)
    assert unwrapped.body == {"id": 1}


@pytest.mark.parametrize(
    "value",
    [
        '"__debezium_unavailable_value"',
        '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="',
        '["__debezium_unavailable_value"]',
        '{"__debezium_unavailable_value":"__debezium_unavailable_value"}',
        str(list(b"__debezium_unavailable_value")),
    ],
)
def test_a_placeholder_of_any_kind_of_column_is_no_value(value: str) -> None:
    """Text, bytes, arrays of texts and of numbers, and maps have placeholders of their own."""
    event = f'{{"op":"u","after":{{"id":1,"big":{value}}}}}'
    updated = compiled(DebeziumUnwrap)(record(event))
    assert isinstance(updated, Record)
    assert (updated.body, updated.metadata["unavailable"]) == ({"id": 1}, "big")
    kept = compiled(DebeziumUnwrap, unavailableValuePlaceholder="")(record(event))
    assert isinstance(kept, Record)
    assert kept.body["big"] == parse(value.encode())


# Options that cannot work


@pytest.mark.parametrize(
    ("step", "config", "key", "says"),
    [
        (Dedupe, {"key": []}, "key", "at least 1"),
        (Dedupe, {"key": ["metadata."]}, "key", "needs a name"),
        (Dedupe, {"key": ["$"]}, "key", "is empty"),
        (HoistField, {"field": "a.b"}, "field", "single key"),
        (HoistField, {"field": " "}, "field", "single key"),
        (StructFlatten, {"delimiter": " "}, "delimiter", "is empty"),
        (DebeziumUnwrap, {"addSourceFields": [" "]}, "addSourceFields", "an empty entry"),
        (DebeziumUnwrap, {"snapshotOperation": "delete"}, "snapshotOperation", "insert"),
        (DebeziumUnwrap, {"fieldTypes": {"at": "Datum"}}, "fieldTypes", "Datum is none of Date"),
        (Validate, {"schema": {}}, "schema", "at least 1"),
    ],
)
def test_options_that_cannot_work(
    step: type[Step], config: dict[str, Any], key: str, says: str
) -> None:
    loc, message = finding(step, **config)
    assert loc[0] == key
    assert says in message
