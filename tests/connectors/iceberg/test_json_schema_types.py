"""Properties of a JSON Schema as Iceberg columns, and versions of a schema as one table's."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.types import IntegerType, NestedField, StringType

from dataflow_assets.connectors.iceberg.json_schema_types import columns
from dataflow_assets.connectors.iceberg.options import OWN_IDS, Registered
from dataflow_assets.connectors.iceberg.table.registered import (
    _columns,
    _SchemaMerge,
    merge_versions,
)
from dataflow_assets.connectors.iceberg.types import row_schema
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.formats.json_schema_document import document
from dataflow_assets.formats.message_format import StoredSchema

POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
STRING = {"type": "string"}
ROW: dict[str, Any] = {"type": "object", "properties": {"u": STRING}}
MOMENT = {"type": "string", "format": "date-time"}
LONG: dict[str, Any] = {"name": "dropped", "required": False, "type": "long"}
JSON = "JSON text"


def of(*properties: Any, references: Sequence[tuple[str, str]] = (), **more: Any) -> Any:
    """The columns of an object with properties a, b, ..., all of them required."""
    named = dict(zip("abc", properties, strict=False))
    root = {"type": "object", "properties": named, "required": [*named], **more}
    return columns(document(json.dumps(root), references))


@pytest.mark.parametrize(
    ("kind", "expected", "doc", "required"),
    [
        ({"type": "boolean"}, "boolean", None, True),
        ({"type": "integer", "minimum": 0}, "long", None, True),
        ({"type": "number"}, "double", None, True),
        ({"type": ["integer", "number"]}, "double", None, True),
        (STRING, "string", None, True),
        ({"type": "string", "format": "date"}, "date", None, True),
        ({"type": "string", "format": "date-time"}, "timestamptz", None, True),
        ({"type": "string", "format": "email"}, "string", None, True),
        ({"type": ["null", "integer"]}, "long", None, False),
        ({"oneOf": [{"type": "null"}, POINT]}, "struct<0: x: required double>", None, False),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, "double", None, True),
        ({"anyOf": [STRING, {"type": "integer"}]}, "string", JSON, True),
        ({"oneOf": [POINT, POINT]}, "string", JSON, True),
        ({"type": ["string", "integer", "null"]}, "string", JSON, False),
        ({"type": "null"}, "string", JSON, False),
        ({}, "string", JSON, False),
        (True, "string", JSON, False),
        ({"enum": ["A", "B"]}, "string", None, True),
        ({"enum": [1, None]}, "long", None, False),
        ({"const": True}, "boolean", None, True),
        (POINT, "struct<0: x: required double>", None, True),
        ({"properties": {"x": STRING}}, "struct<0: x: optional string>", None, True),
        ({"type": "object"}, "string", JSON, True),
        ({"type": "object", "additionalProperties": STRING}, "map<string, string>", None, True),
        ({"type": "object", "additionalProperties": {}}, "string", JSON, True),
        ({"type": "array", "items": POINT}, "list<struct<0: x: required double>>", None, True),
        ({"type": "array", "items": {"type": ["null", "integer"]}}, "list<long>", None, True),
        ({"type": "array"}, "string", JSON, True),
        ({"type": "array", "items": [STRING]}, "string", JSON, True),
        ({"type": "array", "items": {}}, "string", JSON, True),
        ({"allOf": [STRING], "description": "text"}, "string", None, True),
        ({"type": "string", "not": {"const": "x"}}, "string", None, True),
    ],
)
def test_the_column_of_a_property(
    kind: Any, expected: str, doc: str | None, required: bool
) -> None:
    draft: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#"}
    (column,) = of(kind, **draft)
    assert (str(column.field_type), column.doc, column.required) == (expected, doc, required)


@pytest.mark.parametrize(
    "more",
    [
        {"anyOf": [{"required": ["u"]}, {"properties": {"u": {"const": "x"}}}]},
        {"if": {"properties": {"u": {"const": "x"}}}, "then": {"required": ["u"]}, "else": False},
        {"dependentRequired": {"u": ["u"]}},
    ],
)
def test_what_only_narrows_the_listed_properties_adds_none(more: Any) -> None:
    (column,) = of(ROW | more)
    assert str(column.field_type) == "struct<0: u: optional string>"


def test_a_property_that_may_be_missing_is_optional() -> None:
    found = of(STRING, STRING, required=["b"])
    assert [(one.name, one.required) for one in found] == [("a", False), ("b", True)]


def test_references_are_followed_in_the_schema_and_to_others() -> None:
    address = {"type": "object", "properties": {"zip": {"$ref": "#/definitions/zip"}},
               "definitions": {"zip": {"type": "integer"}}}  # fmt: skip
    others = [("address.json", json.dumps(address))]
    found = of(
        {"$ref": "#/$defs/p"},
        {"$ref": "address.json"},
        {"$ref": "address.json#/definitions/zip"},
        references=others,
        **{"$defs": {"p": POINT}},
    )
    assert [str(one.field_type) for one in found] == [
        "struct<0: x: required double>", "struct<0: zip: optional long>", "long",
    ]  # fmt: skip
    (with_address,) = of({"$ref": "address.json"}, references=others, **{"$id": "http://a/b.json"})
    assert str(with_address.field_type) == "struct<0: zip: optional long>"


@pytest.mark.parametrize(
    ("reference", "name", "own"),
    [
        ("A%20v1", "A v1", {}),
        ("A%20v1", "A%20v1", {}),
        ("%C3%A4.json", "ä.json", {}),
        ("http://x/a", "A v1", {"$id": "http://x/a"}),
        ("urn:example:a", "urn:example:a", {}),
        ("urn:example:a", "a.json", {"$id": "urn:example:a"}),
    ],
)
def test_references_of_any_name_are_found(reference: str, name: str, own: Any) -> None:
    others = [(name, json.dumps({"type": "integer"} | own))]
    for more in ({}, {"$id": "urn:example:root"} if ":" in reference else {}):
        (column,) = of({"$ref": reference}, references=others, **more)
        assert str(column.field_type) == "long"


@pytest.mark.parametrize(
    ("reference", "more", "message"),
    [
        ("A v1", {}, "Invalid URI reference 'A v1': unexpected character at index 1"),
        ("a.json", {"$id": "urn:example:root"}, "Failed to resolve 'a.json' against 'urn:example"),
    ],
)
def test_what_is_no_reference_is_refused_by_its_text(
    reference: str, more: Any, message: str
) -> None:
    others = [(reference, json.dumps({"type": "integer"}))]
    with pytest.raises(ValueError, match=re.escape(message)):
        of({"$ref": reference}, references=others, **more)


def test_an_object_that_holds_its_own_kind_is_json_text() -> None:
    tree = {"type": "object", "properties": {"name": STRING, "child": {"$ref": "#/$defs/tree"}}}
    defs: dict[str, Any] = {"$defs": {"tree": tree}}
    (column,) = of({"$ref": "#/$defs/tree"}, **defs)
    members = {one.name: (str(one.field_type), one.doc) for one in column.field_type.fields}
    assert members == {"name": ("string", None), "child": ("string", JSON)}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"allOf": [POINT, POINT]}, "property a: allOf has no columns: list all properties"),
        ({"type": "object", "patternProperties": {"x": {}}}, "property a: patternProperties has"),
        ({"type": "object", "properties": {"u": {"allOf": [{}, {}]}}}, "property a.u: allOf has"),
        ({"type": "array", "items": {"allOf": [{}, {}]}}, "property a.element: allOf has"),
        (ROW | {"oneOf": [{}, {"properties": {"y": {}}}]}, "property a: oneOf adds y, which gets"),
        (ROW | {"anyOf": [POINT, ROW]}, "property a: anyOf adds x, which gets no column"),
        (ROW | {"if": {}, "then": {"oneOf": [POINT]}}, "property a: then adds x, which gets"),
        (ROW | {"dependentSchemas": {"u": POINT}}, "property a: dependentSchemas adds x, which"),
        ({"anyOf": [ROW, {"type": "null"}], "oneOf": [POINT]}, "property a: oneOf adds x, which"),
        ({"$ref": "#/properties/b", "properties": {}}, "property a: properties beside $ref has"),
        ({"allOf": [ROW], "patternProperties": {"x": {}}}, "property a: allOf has no columns"),
        (False, "property a: the schema false allows no value"),
        ({"$ref": "#/$defs/none"}, "property a: $ref #/$defs/none: Pointer"),
        ({"$ref": "#/properties/a"}, "property a: a $ref refers to itself"),
        (
            {"anyOf": [{"$ref": "#/properties/a"}, {"type": "null"}]},
            "property a: anyOf leads back to the schema that it is in: take the $ref",
        ),
        ({"oneOf": [{"anyOf": [{"$ref": "#/properties/a"}]}]}, "property a: oneOf leads back to"),
        (ROW | {"anyOf": [{"$ref": "#/properties/a"}]}, "property a: anyOf leads back to the"),
        (ROW | {"then": {"if": {"$ref": "#/properties/a"}}}, "property a: then leads back to"),
        ({"$ref": "http://localhost/x.json"}, "must be among the references of the schema"),
        ({"type": "object", "properties": {"u.v": {}}}, "property a.u.v: the name of a column has"),
        ({"type": "file"}, 'no JSON Schema that can be used: "file" is not valid'),
    ],
)
def test_what_has_no_column_is_refused_by_name(kind: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".+") as refused:
        of(kind)
    assert message in str(refused.value)


def _both(reference: Any) -> list[Any]:
    return [
        {"type": "object", "properties": {"x": reference, "y": reference}},
        {"anyOf": [reference, reference]},
    ]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("which", [0, 1], ids=["properties", "anyOf"])
def test_references_that_multiply_are_refused_by_name(which: int) -> None:
    """Forty levels, each of which uses the next one twice, are a trillion columns from 4 KB."""
    levels = {f"p{n}": _both({"$ref": f"#/$defs/p{n + 1}"})[which] for n in range(40)}
    more: dict[str, Any] = {"$defs": levels | {"p40": STRING}}
    with pytest.raises(ValueError, match=r"property a.*: the schema has more than 20000 parts"):
        of({"$ref": "#/$defs/p0"}, **more)


def test_a_schema_of_many_properties_is_no_such() -> None:
    many = {"properties": {f"p{n}": {"anyOf": [STRING, {"type": "null"}]} for n in range(5000)}}
    assert len(of(many)[0].field_type.fields) == 5000


@pytest.mark.parametrize(
    "text", ["{}", "true", '{"type": "array", "items": {}}', '{"type": "object"}', "[]", "{"]
)
def test_what_is_no_object_with_properties_has_no_columns(text: str) -> None:
    with pytest.raises(ValueError, match=r"not the schema of an object|no JSON"):
        columns(document(text))


def test_columns_grow_with_their_versions() -> None:
    """As those of Avro do, from which they differ by where they come from only."""
    first = of({"type": "integer"}, {"type": "array", "items": STRING})
    second = of({"type": ["null", "integer"]}, {"type": "array", "items": STRING}, POINT)
    known, ids = None, count(1)
    for version in (first, second, of({"type": "integer"})):
        merge = _SchemaMerge(ids, "a version")
        known = merge.fields(known, version, "")
        assert merge.differences == []
    schema = Schema(*known or [])
    found = {name: schema.find_field(name) for name in ("a", "b", "b.element", "c", "c.x")}
    assert [one.field_id for one in found.values()] == [1, 2, 3, 4, 5]
    assert [one.required for one in schema.fields] == [False, False, False]
    merge = _SchemaMerge(ids, "version 4")
    merge.fields(known, of({"type": "number"}), "")
    (wrong,) = merge.differences
    assert wrong.message.startswith("a is long in the table, and double in version 4")


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ({"type": "number"}, "9007199254740993", 9007199254740992.0),
        ({"type": "number"}, "9007199254740992", 9007199254740992.0),
        ({"type": "integer"}, "9007199254740993", 9007199254740993),
        ({}, "9007199254740993", "9007199254740993"),
        ({"type": "integer"}, "1.0", None),
        ({"type": "integer"}, "1e2", None),
        ({"type": "integer"}, "9223372036854775808", None),
        (MOMENT, '"2026-11-21T10:00:00.123456789Z"', datetime(2026, 11, 21, 10, 0, 0, 123457, UTC)),
        (MOMENT, '"2026-11-21T23:59:60Z"', None),
    ],
)
def test_what_becomes_of_numbers_and_moments_at_their_limits(
    kind: Any, value: str, stored: Any
) -> None:
    """As the guarantees say it; None: the record is rejected."""
    known = _SchemaMerge(count(1), "version 1").fields(None, of(kind), "")
    body = pa.array([f'{{"a":{value}}}'], pa.string()).cast(pa.binary())
    found = JsonDecoder(row_schema(Schema(*known)), "reject").decode(body, pa.array([0]))
    assert [row["a"] for row in found.rows.to_pylist()] == ([] if stored is None else [stored])
    assert len(found.rejected) == (stored is None)


def test_a_comment_on_a_column_is_no_difference() -> None:
    """Spark's ALTER TABLE sets one; that of a column of JSON says how it is decoded."""
    merge = _SchemaMerge(count(4), "version 2")
    comment = "what customers see"
    known = [
        NestedField(1, "a", StringType(), doc=comment, required=False),
        NestedField(2, "b", IntegerType(), doc=comment, required=False),
        NestedField(3, "c", StringType(), doc=comment, required=False),
    ]
    found = merge.fields(known, of(STRING, {"type": "integer"}, {}), "")
    assert [(str(one.field_type), one.doc) for one in found[:2]] == [
        ("string", comment),
        ("long", comment),
    ]
    (wrong,) = merge.differences
    assert wrong.message.startswith(f"c is string ({comment}) in the table, and string ({JSON})")


@dataclass(frozen=True)
class Subject:
    """A registry's only subject, with one version."""

    text: str

    def client(self) -> Subject:
        return self

    def versions(self, _: str) -> tuple[int, ...]:
        return (1,)

    def version(self, *_: Any) -> StoredSchema:
        return StoredSchema("JSON", self.text)


def test_the_id_of_a_column_that_was_dropped_is_not_given_again() -> None:
    """Files have values of another type under that id."""
    before = {"type": "struct", "fields": [LONG | {"id": 1, "name": "a"}, LONG | {"id": 7}]}
    own = LONG | {"id": OWN_IDS, "name": "_record_timestamp", "type": "timestamptz"}
    metadata = TableMetadataV2.model_validate(
        {
            "location": "s3://a/b",
            "last-column-id": OWN_IDS,
            "schemas": [
                before | {"schema-id": 0},
                {"type": "struct", "schema-id": 1, "fields": [before["fields"][0], own]},
            ],
            "current-schema-id": 1,
            "partition-specs": [UNPARTITIONED_PARTITION_SPEC],
        }
    )
    table = Table(("a", "b"), metadata, "", PyArrowFileIO(), NoopCatalog("none"))
    root = {"type": "object", "properties": {"a": {"type": "integer"}, "c": STRING}}
    registry: Any = Subject(json.dumps(root))
    schema, differences = merge_versions(Registered(registry, "subject", "JSON"), table)
    assert differences == []
    assert [(one.field_id, one.name) for one in schema.fields] == [(1, "a"), (8, "c")]


def test_a_schema_that_is_nested_too_deeply_is_refused_with_a_sentence() -> None:
    """Not with the words of the interpreter."""
    text = '{"properties": {"a":' * 5_000 + "{}" + "}}" * 5_000
    with pytest.raises(PermanentError, match=r"version 1 cannot be .* it is nested too deeply"):
        _columns(StoredSchema("JSON", text), "JSON", "version 1")
