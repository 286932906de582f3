"""Avro records as Iceberg columns, and versions of a schema as one table's columns."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from pyiceberg.schema import Schema

from dataflow_assets.connectors.iceberg.avro_types import columns
from dataflow_assets.connectors.iceberg.table.registered import _SchemaMerge
from dataflow_assets.formats.avro_schema import AvroSchema

INNER = {"type": "record", "name": "i", "fields": [{"name": "u", "type": "string"}]}
LOOP = {"type": "record", "name": "l", "fields": [{"name": "next", "type": ["null", "l"]}]}


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def found(kind: Any) -> Any:
    """The one column of a record with a field of this type."""
    fields = [{"name": "a", "type": kind}]
    text = json.dumps({"type": "record", "name": "r", "fields": fields})
    return columns(AvroSchema(text))


@pytest.mark.parametrize(
    ("kind", "expected", "doc"),
    [
        ("int", "int", None),
        ("bytes", "binary", None),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "string", None),
        ({"type": "fixed", "name": "f", "size": 4}, "fixed[4]", None),
        (INNER, "struct<0: u: required string>", None),
        ({"type": "array", "items": INNER}, "list<struct<0: u: required string>>", None),
        ({"type": "map", "values": ["null", "long"]}, "map<string, long>", None),
        ({"type": "map", "values": ["int", "string"]}, "string", "JSON text"),
        ({"type": "array", "items": LOOP}, "string", "JSON text"),
        ({"type": "record", "name": "n", "fields": []}, "string", "JSON text"),
        (["long", "string"], "string", "JSON text"),
        (logical("bytes", "decimal", precision=9, scale=2), "decimal(9, 2)", None),
        (logical("bytes", "decimal", precision=39, scale=2), "string", "Digits of a number"),
        (logical("string", "uuid"), "uuid", None),
        ({"type": "array", "items": logical("string", "uuid")}, "list<string>", None),
        (logical("int", "date"), "date", None),
        (logical("int", "time-millis"), "time", None),
        (logical("long", "timestamp-micros"), "timestamptz", None),
        (logical("long", "local-timestamp-millis"), "timestamp", None),
        (logical("long", "timestamp-nanos"), "string", None),
    ],
)
def test_the_column_of_a_type(kind: Any, expected: str, doc: str | None) -> None:
    (column,) = found(kind)
    shown = str(column.field_type).replace("required ", "required ")
    assert (shown, column.doc, column.required) == (expected, doc, True)
    (column,) = found(["null", kind] if not isinstance(kind, list) else ["null", *kind])
    assert (column.doc, column.required) == (doc, False)


def test_what_is_no_record_has_no_columns() -> None:
    with pytest.raises(ValueError, match="not the schema of a record with fields"):
        columns(AvroSchema('{"type": "array", "items": "long"}'))
    optional = columns(AvroSchema(json.dumps(["null", INNER])))
    assert [one.name for one in optional] == ["u"]


def merged(*kinds: Any) -> tuple[Schema, list[str]]:
    """The columns after versions whose one field is of these types."""
    known, ids, wrong = None, count(1), []
    for number, kind in enumerate(kinds, 1):
        merge = _SchemaMerge(ids, f"version {number}")
        known = merge.fields(known, found(kind), "")
        wrong += [one.message for one in merge.differences]
    return Schema(*known or []), wrong


def items(kind: Any) -> dict[str, Any]:
    return {"type": "array", "items": kind}


def values(kind: Any) -> dict[str, Any]:
    return {"type": "map", "values": kind}


def fields(*names: str) -> dict[str, Any]:
    inner = [{"name": name, "type": "int"} for name in names]
    return {"type": "record", "name": "x", "fields": inner}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("int", "long", "int"), "long"),
        (("float", "double"), "double"),
        ((items("int"), items("long")), "list<long>"),
        ((items("long"), items("int")), "list<long>"),
        ((values(items("int")), values(items("long"))), "map<string, list<long>>"),
        (
            (items(fields("u")), items(fields("v", "u"))),
            "list<struct<3: u: required int, 4: v: optional int>>",
        ),
        (
            tuple(logical("bytes", "decimal", precision=p, scale=2) for p in (9, 7)),
            "decimal(9, 2)",
        ),
    ],
)
def test_a_column_grows_with_its_versions(kinds: tuple[Any, ...], expected: str) -> None:
    schema, wrong = merged(*kinds)
    assert (str(schema.fields[0].field_type), wrong) == (expected, [])
    assert schema.fields[0].field_id == 1


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("long", "string", "a is long in the table, and string in version 2"),
        (items("int"), items("string"), "a.element is int in the table, and string in version 2"),
        (values("int"), items("int"), "a is map in the table, and list in version 2"),
        ("string", ["int", "string"], "a is string in the table, and string (JSON text) in"),
        ("long", "double", "a is long in the table, and double in version 2"),
    ],
)
def test_what_a_column_cannot_become(first: Any, second: Any, message: str) -> None:
    _, (wrong,) = merged(first, second)
    assert wrong.startswith(message)


def test_an_element_that_may_be_null_is_optional_from_then_on() -> None:
    schema, wrong = merged(items("int"), items(["null", "int"]))
    assert wrong == []
    assert not schema.find_field("a.element").required
