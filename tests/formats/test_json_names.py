"""Keys of JSON that no struct can name: quotation marks, backslashes, control characters."""

from __future__ import annotations

import json
from typing import Any, Literal

import pyarrow as pa
import pytest

from dataflow_assets.contracts import DELETE, OP, Kind, Note
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.column_names import ColumnNames
from dataflow_assets.formats.json import Decoded, JsonDecoder
from dataflow_assets.formats.json_tombstones import Tombstones
from dataflow_assets.languages.justone.messages.column_reader import JustoneReader

DIGITS = Kind.NUMERIC.field("n")
INNER = pa.struct([pa.field('a"b', pa.int64()), DIGITS, pa.field("\x01", pa.date32())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field('x"y', pa.int64()),
        pa.field("\\", pa.string()),
        pa.field("t\t", pa.timestamp("us", "UTC")),
        pa.field("one", INNER),
        pa.field("many", pa.list_(INNER)),
        pa.field("map", pa.map_(pa.string(), INNER)),
        pa.field("deep", pa.struct([pa.field("in", INNER, nullable=False)])),
    ],
    {Note.NO_NUL: b"1"},
)


def decoded(*bodies: dict[str, Any] | bytes, schema: pa.Schema = SCHEMA) -> Decoded:
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in bodies]
    return JsonDecoder(schema).decode(pa.array(texts, pa.binary()), pa.array(range(len(texts))))


def test_columns_and_members_of_any_name_are_filled() -> None:
    inner = {'a"b': 1, "n": 1.5, "\x01": "2026-01-31"}
    whole = {
        "id": 1,
        'x"y': 2,
        "\\": "z",
        "t\t": "2026-01-31T12:00:00Z",
        "one": inner,
        "many": [inner, None],
        "map": {"k": inner, "none": None},
        "deep": {"in": inner},
    }
    found = decoded(whole, {"id": 2}, {"id": 3, "one": None, 'x"y': None, "deep": None})
    assert not found.rejected
    first, second, third = found.rows.select(SCHEMA.names).to_pylist()
    stored = {**inner, "n": "1.5", "\x01": first["one"]["\x01"]}
    assert str(first["one"]["\x01"]) == "2026-01-31"
    assert (first['x"y'], first["\\"], str(first["t\t"])) == (2, "z", "2026-01-31 12:00:00+00:00")
    assert first["one"] == first["deep"]["in"] == stored
    assert (first["many"], first["map"]) == ([stored, None], [("k", stored), ("none", None)])
    assert {*second.values()} == {2, None}
    assert {*third.values()} == {3, None}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({'x"y': 1}, "Object missing required field `id`"),
        ({"id": 1, 'x"y': "s"}, 'Expected `int | null`, got `str` - at `$.x"y`'),
        ({"id": 1, 'x"': 1}, 'Object contains unknown field `x"`'),
        ({"id": 1, "one": {'a"b': "s"}}, 'Expected `int | null`, got `str` - at `$.a"b`'),
        ({"id": 1, "one": {"z": 1}}, "column one: Object contains unknown field `z`"),
        ({"id": 1, "many": [{'a"b': []}]}, "column many: Expected `int | null`, got `array`"),
        ({"id": 1, "deep": {"in": None}}, "column deep: Expected `object`, got `null`"),
        ({"id": 1, "t\t": "noon"}, "expected a time with a timezone"),
        (b'{"id":1,"x\\"y":1,"x\\"y":2}', "the key 'x\"y' is a duplicate in one object"),
        (b'{"id":1,"one":{"n":1,"n":2}}', "the key 'n' is a duplicate in one object"),
        (b'{"id":1,"one":{"a\\"b":1,"a\\u0022b":2}}', "the key 'a\"b' is a duplicate in one"),
        (b'{"id":1,"\\\\":"\\u0000"}', "holds the character NUL"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"x", "JSON is malformed"),
    ],
)
def test_what_does_not_fit_is_named_and_costs_no_other(
    body: dict[str, Any] | bytes, reason: str
) -> None:
    found = decoded({"id": 1, 'x"y': 1}, body, {"id": 2})
    assert found.rows.column("id").to_pylist() == [1, 2]
    ((offset, said),) = [(one.offset, one.reason) for one in found.rejected]
    assert offset == 1
    assert reason in said


def test_fields_that_are_ignored_are() -> None:
    decoder = JsonDecoder(SCHEMA, "ignore")
    found = decoder.decode(pa.array([b'{"id":1,"z\\"":2,"x\\"y":3}']), pa.array([0]))
    assert found.rows.column('x"y').to_pylist() == [3]


def test_a_key_of_such_a_name_deletes_its_row() -> None:
    tombstones = Tombstones("delete", ('x"y',))
    decoder = JsonDecoder(SCHEMA, tombstones=tombstones)
    nothing, keys = pa.nulls(2, pa.binary()), pa.array([b'{"x\\"y":7}', b"8"], pa.binary())
    found = decoder.decode(nothing, pa.array([0, 1]), keys)
    assert not found.rejected
    assert found.rows.column('x"y').to_pylist() == [7, 8]
    assert found.rows.column(OP).to_pylist() == [DELETE, DELETE]


def test_digits_inside_lists_and_maps_are_kept() -> None:
    schema = pa.schema([("l", pa.list_(DIGITS)), ("m", pa.map_(pa.string(), DIGITS))])
    found = decoded(b'{"l":[1.50,null,"3"],"m":{"k":1e400}}', schema=schema)
    assert not found.rejected
    assert found.rows.column("l").to_pylist() == [["1.50", None, "3"]]
    assert found.rows.column("m").to_pylist() == [[("k", "1e400")]]


def test_parse_paths_lead_through_any_key() -> None:
    reader = JustoneReader([('a"b', "\\"), ("plain",), ("list", 1)])
    bodies = [b'{"a\\"b":{"\\\\":1},"plain":"x","list":[1,2]}', b"{}", b"nope", b"[1]"]
    cells, refused = reader.columns(bodies)
    assert [[str(bytes(one), "utf-8") for one in each[:2]] for each in cells] == [  # type: ignore[arg-type]
        ["1", "null"],
        ['"x"', "null"],
        ["2", "null"],
    ]
    assert [*refused] == [2]


CASES = pa.schema(
    [("id", pa.int64()), ("vbeln", pa.string()), ("A", pa.int64()), ("a", pa.int64())]
)


def ignoring(*bodies: bytes, unknown: Literal["reject", "ignore"] = "reject") -> Decoded:
    decoder = JsonDecoder(CASES, unknown, ignore_case=True)
    return decoder.decode(pa.array(bodies, pa.binary()), pa.array(range(len(bodies))))


def test_a_key_finds_the_one_column_that_differs_in_case_alone() -> None:
    bodies = [b'{"ID":1,"VBELN":"x"}', b'{"id":2,"Vbeln":"y"}', b'{"Id":3,"A":1,"a":2}', b"{}"]
    found = ignoring(*bodies, *bodies)
    assert not found.rejected
    assert found.rows.column("id").to_pylist() == [1, 2, 3, None] * 2
    assert found.rows.column("vbeln").to_pylist() == ["x", "y", None, None] * 2
    assert found.rows.column("A").to_pylist() == [None, None, 1, None] * 2
    assert found.rows.column("a").to_pylist() == [None, None, 2, None] * 2


@pytest.mark.parametrize(
    ("columns", "body", "reason"),
    [
        (CASES, b'{"ID":1,"id":2}', "the keys 'ID' and 'id' both mean the column id"),
        (CASES, b'{"Id":1,"ID":2}', "the keys 'Id' and 'ID' both mean the column id"),
        (CASES, b'{"ID":1,"ID":2}', "the key 'ID' is a duplicate in one object"),
        (CASES, b'{"ID":"x"}', "Expected `int | null`, got `str` - at `$.id`"),
        (CASES, b'{"iDs":1}', "Object contains unknown field `iDs`"),
        (
            pa.schema([("Ab", pa.int64()), ("aB", pa.int64())]),
            b'{"AB":1}',
            "the key 'AB' may mean the columns Ab and aB, which differ in case alone",
        ),
    ],
)
def test_what_could_mean_several_columns_is_rejected(
    columns: pa.Schema, body: bytes, reason: str
) -> None:
    decoder = JsonDecoder(columns, ignore_case=True)
    found = decoder.decode(pa.array([b"{}", body, b"{}"], pa.binary()), pa.array([0, 1, 2]))
    ((offset, said),) = [(one.offset, one.reason) for one in found.rejected]
    assert offset == 1
    assert reason in said


def test_a_field_that_is_ignored_hides_no_column() -> None:
    found = ignoring(b'{"ID":1,"other":2}', b'{"id":2,"VBELN":"x","z":1}', unknown="ignore")
    assert found.rows.select(["id", "vbeln"]).to_pylist() == [
        {"id": 1, "vbeln": None},
        {"id": 2, "vbeln": "x"},
    ]


def test_a_deleted_row_is_named_in_any_case() -> None:
    decoder = JsonDecoder(CASES, tombstones=Tombstones("delete", ("id",)), ignore_case=True)
    keys = pa.array([b'{"ID":7}', b'{"id":8}'], pa.binary())
    found = decoder.decode(pa.nulls(2, pa.binary()), pa.array([0, 1]), keys)
    assert found.rows.column("id").to_pylist() == [7, 8]


def test_typed_columns_are_named_for_those_that_they_mean() -> None:
    names = ColumnNames(["id", "n", "A", "a"])
    batch = pa.record_batch({"ID": [1], "N": [2], "a": [3], "other": [4]})
    assert names.rename(batch).schema.names == ["id", "n", "a", "other"]
    with pytest.raises(PermanentError, match="ID and Id both mean the column id"):
        names.rename(pa.record_batch({"ID": [1], "Id": [2]}))
    with pytest.raises(PermanentError, match=r"'Ab' may mean the columns AB and ab"):
        ColumnNames(["AB", "ab"]).rename(pa.record_batch({"Ab": [1]}))
