"""JSON to columns: every value is stored exactly, or rejected alone with the reason."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from dataflow_assets.contracts import (
    ABSENT,
    OFFSET,
    OP,
    Kind,
    Note,
)
from dataflow_assets.formats.json import Decoded, JsonDecoder, Tombstones
from dataflow_assets.formats.json_types import infer
from tests.examples import examples

ID = pa.field("id", pa.int64(), nullable=False)
SCHEMA = pa.schema(
    [
        ID,
        pa.field("name", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("at", pa.timestamp("us", "UTC")),
        Kind.JSON.field("data"),
        Kind.NUMERIC.field("price"),
    ],
    metadata={Note.NO_NUL: b"1"},
)
DEEP = b'{"id": 1, "data": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"


def decode(*bodies: bytes | None, schema: pa.Schema = SCHEMA, **options: Any) -> Decoded:
    decoder = JsonDecoder(schema, **options)
    offsets = pa.array(range(100, 100 + len(bodies)), pa.int64())
    return decoder.decode(pa.array(bodies, pa.binary()), offsets)


def value(field: pa.Field, text: str) -> Any:
    decoded = decode(f'{{"x": {text}}}'.encode(), schema=pa.schema([field]))
    assert not decoded.rejected, decoded.rejected[0].reason
    return decoded.rows.column(0)[0].as_py()


REFUSED = {
    "empty": (b"", "empty value"),
    "blank": (b" \n", "empty value"),
    "no object": (b"[1]", "Expected `object`, got `array`"),
    "null": (b"null", "got `null`"),
    "text": (b"not json", "malformed"),
    "trailing": (b'{"id": 1} x', "trailing characters"),
    "cut": (b'{"id": 1', "truncated"),
    "missing key": (b"{}", "missing required field `id`"),
    "null key": (b'{"id": null}', "got `null` - at `$.id`"),
    "fraction": (b'{"id": 1.5}', "got `float` - at `$.id`"),
    "wrong type": (b'{"id": "1"}', "got `str` - at `$.id`"),
    "beyond 64 bits": (b'{"id": 9223372036854775808}', "<= 9223372036854775807"),
    "unknown key": (b'{"id": 1, "zzz": 2}', "unknown field `zzz`"),
    "twice": (b'{"id": 1, "id": 2}', "'id' is a duplicate"),
    "twice, spaced": (b'{ "id" : 1 , "name":"a", "name" : "b" }', "'name' is a duplicate"),
    "twice, escaped": (b'{"id": 1, "n\\u0061me": "a", "name": "b"}', "'name' is a duplicate"),
    "twice, null": (b'{"id":1,"name":null,"name":"b"}', "'name' is a duplicate"),
    "not UTF-8": (b'{"id": 1, "name": "\xff"}', "invalid UTF-8 at byte 19"),
    "not UTF-8 in json": (b'{"id": 1, "data": {"a": "\xff"}}', "invalid UTF-8"),
    "NUL": (b'{"id": 1, "name": "a\\u0000b"}', "character NUL"),
    "NUL in json": (b'{"id": 1, "data": {"a": "\\u0000"}}', "character NUL"),
    "lone surrogate": (b'{"id": 1, "name": "\\ud800"}', "half of a surrogate pair"),
    "cut short": (b'{"id": 1, "name": "a', "truncated"),
    "huge float": (b'{"id": 1, "amount": 1e999}', "out of range"),
    "no zone": (b'{"id": 1, "at": "2026-01-01T00:00:00"}', "timezone"),
    "epoch": (b'{"id": 1, "at": 1700000000}', "Expected `datetime"),
    "not a number": (b'{"id": 1, "price": "many"}', "column price: expected a number"),
    "deep": (DEEP, "nested too deeply"),
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused_alone_with_origin_and_reason(body: bytes, reason: str) -> None:
    good = b'{"id": 7, "name": "ok"}'
    decoded = decode(good, body, good)
    assert [(r.offset, r.stage, r.body) for r in decoded.rejected] == [(101, "decode", body)]
    assert reason in decoded.rejected[0].reason
    assert decoded.rows.column(OFFSET).to_pylist() == [100, 102]
    assert decoded.rows.column("id").to_pylist() == [7, 7]


TWICE = {
    "decimal": ('{"x":1.5,"x":2.5}', pa.decimal128(10, 2), "'x' is a duplicate"),
    "struct": ('{"x":{"a":1,"a":2}}', pa.struct([("a", pa.int64())]), "'a' is a duplicate"),
    "decimal in a struct": (
        '{"x":{"a":1.5,"a":2.5}}',
        pa.struct([("a", pa.decimal128(10, 2))]),
        "'a' is a duplicate",
    ),
    "list": (
        '{"x":[{"a":1,"a":2}]}',
        pa.list_(pa.struct([("a", pa.int64())])),
        "'a' is a duplicate",
    ),
    "map": ('{"x":{"a":1,"a":2}}', pa.map_(pa.string(), pa.int64()), "'a' is a duplicate"),
}


@pytest.mark.parametrize(("body", "kind", "reason"), TWICE.values(), ids=TWICE)
def test_a_key_that_stands_twice_is_never_dropped(
    body: str, kind: pa.DataType, reason: str
) -> None:
    decoded = decode(body.encode(), schema=pa.schema([pa.field("x", kind)]))
    assert [reason in rejection.reason for rejection in decoded.rejected] == [True]


def test_inside_a_json_column_the_target_decides_whatever_the_neighbours_hold() -> None:
    twice = b'{ "id": 1, "data": {"a": 1, "a": 2} }'
    decoded = decode(twice, b'{"id": 2, "name": "\\n"}')
    assert not decoded.rejected
    assert decoded.rows.column("data")[0].as_py() == '{"a": 1, "a": 2}'


@pytest.mark.parametrize(
    ("kind", "key", "reason"),
    [
        (pa.int64(), b'{"other": 1}', "column id is missing"),
        (pa.string(), b"abc", "column id: expected a number"),
    ],
)
def test_a_deletion_whose_key_does_not_fit_is_rejected_alone(
    kind: pa.DataType, key: bytes, reason: str
) -> None:
    metadata = {Note.HAS_DEFAULT: b"1"} | ({Note.KIND: b"numeric"} if kind == pa.string() else {})
    schema = pa.schema([pa.field("id", kind, nullable=False, metadata=metadata)])
    decoder = JsonDecoder(schema, tombstones=Tombstones("delete", ("id",)))
    decoded = decoder.decode(
        pa.array([None, None], pa.binary()), pa.array([5, 6]), pa.array([key, b"7"], pa.binary())
    )
    assert [(r.offset, reason in r.reason) for r in decoded.rejected] == [(5, True)]
    assert decoded.rows.column(OFFSET).to_pylist() == [6]


NUMERIC = Kind.NUMERIC.field("x")
JSON = Kind.JSON.field("x")
NESTED = pa.field("x", pa.struct([("a", pa.struct([("b", pa.string())]))]))
STORED = {
    "quoted quote": ('"a\\"b"', pa.field("x", pa.string()), 'a"b'),
    "escaped backslash": ('"a\\\\u0000b"', pa.field("x", pa.string()), "a\\u0000b"),
    "emoji": ('"\\ud83d\\ude00"', pa.field("x", pa.string()), "\U0001f600"),
    "int64 low": ("-9223372036854775808", pa.field("x", pa.int64()), -(2**63)),
    "int16": ("-32768", pa.field("x", pa.int16()), -32768),
    "bool": ("true", pa.field("x", pa.bool_()), True),
    "date": ('"2026-02-28"', pa.field("x", pa.date32()), dt.date(2026, 2, 28)),
    "digits": ("12345678901234567890.10", NUMERIC, "12345678901234567890.10"),
    "digits in a string": ('"1.50"', NUMERIC, "1.50"),
    "json as sent": ('{"b": [1,  2.0]}', JSON, '{"b": [1,  2.0]}'),
    "json null": ("null", JSON, None),
    "list": ("[1, null]", pa.field("x", pa.list_(pa.int64())), [1, None]),
    "struct": ('{"a": {"b": "c"}}', NESTED, {"a": {"b": "c"}}),
}


@pytest.mark.parametrize(("text", "field", "expected"), STORED.values(), ids=STORED)
def test_stored_exactly(text: str, field: pa.Field, expected: object) -> None:
    assert value(field, text) == expected


def test_text_longer_than_the_column_is_refused() -> None:
    field = pa.field("x", pa.string(), metadata={Note.MAX_LENGTH: b"3"})
    decoded = decode(b'{"x": "abc"}', b'{"x": "abcd"}', schema=pa.schema([field]))
    assert [r.offset for r in decoded.rejected] == [101]


def test_absent_is_not_null() -> None:
    decoded = decode(b'{"id": 1}', b'{"id": 2, "name": null, "data": null}')
    name, data = SCHEMA.get_field_index("name"), SCHEMA.get_field_index("data")
    masks = [int.from_bytes(mask, "little") for mask in decoded.rows.column(ABSENT).to_pylist()]
    assert masks[0] & (1 << name)
    assert masks[0] & (1 << data)
    assert not masks[1] & (1 << name)
    assert not masks[1] & (1 << data)


def test_no_absent_column_where_nothing_is_absent() -> None:
    schema = pa.schema([ID, pa.field("name", pa.string())])
    decoded = decode(b'{"id": 1, "name": null}', schema=schema)
    assert ABSENT not in decoded.rows.schema.names


def test_unknown_keys_may_be_left_out() -> None:
    schema = pa.schema([ID])
    bodies = (b'{"id": 1, "zzz": {"id": 3}}', b'{"id": 1, "id": 2, "zzz": 1}')
    decoded = decode(*bodies, schema=schema, unknown_fields="ignore")
    assert decoded.rows.column("id").to_pylist() == [1]
    assert [r.offset for r in decoded.rejected] == [101]


@pytest.mark.parametrize(
    ("mode", "rejected", "deleted"), [("reject", 1, 0), ("skip", 0, 0), ("delete", 0, 1)]
)
def test_null_messages(mode: Any, rejected: int, deleted: int) -> None:
    schema = pa.schema([ID, pa.field("name", pa.string())])
    decoder = JsonDecoder(schema, tombstones=Tombstones(mode, ("id",)))
    bodies = pa.array([b'{"id": 1, "name": "a"}', None], pa.binary())
    keys = pa.array([b"1", b'{"id": 2}'], pa.binary())
    decoded = decoder.decode(bodies, pa.array([5, 6], pa.int64()), keys)
    assert len(decoded.rejected) == rejected
    assert decoded.rows.num_rows == 1 + deleted
    if deleted:
        assert decoded.rows.column(OP).to_pylist() == [0, 2]
        assert decoded.rows.column("id").to_pylist() == [1, 2]


def test_a_null_message_without_key_says_so() -> None:
    decoder = JsonDecoder(pa.schema([ID]), tombstones=Tombstones("delete", ("id",)))
    decoded = decoder.decode(pa.array([None], pa.binary()), pa.array([1], pa.int64()), None)
    assert "without a key" in decoded.rejected[0].reason


def test_sample_widens() -> None:
    found = infer([b'{"a": 1, "b": null, "c": {"x": 1}, "d": [1], "e": 1}', b"broken", None,
                   b'{"a": 1.5, "b": "t", "c": {"y": true}, "d": [2.5], "e": "x"}'])  # fmt: skip
    assert found.field("a").type == pa.float64()
    assert found.field("b").type == pa.string()
    assert found.field("c").type == pa.struct([("x", pa.int64()), ("y", pa.bool_())])
    assert found.field("d").type == pa.list_(pa.float64())
    assert found.field("e").type == pa.json_()


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"id": st.integers(-(2**63), 2**63 - 1)},
            optional={
                "name": st.none() | TEXTS,
                "amount": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "data": st.recursive(st.integers() | TEXTS | st.booleans(), lambda x: st.lists(x)
                                     | st.dictionaries(TEXTS, x), max_leaves=5),
            },
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)  # fmt: skip
def test_what_is_stored_equals_what_was_sent(
    records: list[dict[str, Any]], ascii_only: bool
) -> None:
    bodies = [json.dumps(record, ensure_ascii=ascii_only).encode() for record in records]
    decoded = decode(*bodies)
    assert not decoded.rejected
    for row, record in zip(decoded.rows.to_pylist(), records, strict=True):
        assert row["id"] == record["id"]
        assert row["name"] == record.get("name")
        assert row["amount"] == record.get("amount")
        assert (
            row["data"] is None
            if "data" not in record
            else json.loads(row["data"]) == record["data"]
        )


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.binary(max_size=40) | st.sampled_from([b'{"id": 1}']), max_size=8))
def test_every_body_is_accounted_for(bodies: list[bytes]) -> None:
    decoded = decode(*bodies)
    assert decoded.rows.num_rows + len(decoded.rejected) == len(bodies)


ZONED = pa.field("x", pa.timestamp("us", "UTC"))
NAIVE = pa.field("x", pa.timestamp("us"))
LIKE_TIMES = st.from_regex(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,9})?)?"
    r"([Zz]|[+-][0-2][0-9](:?[0-6][0-9])?)?",
    fullmatch=True,
)
TIMES = st.one_of(
    st.none(),
    st.datetimes().map(dt.datetime.isoformat),
    st.datetimes(timezones=st.timezones()).map(dt.datetime.isoformat),
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.from_regex(r"[12][0-9]{3}-[01][0-9]-[0-2][0-9]T[01][0-9]:[0-5][0-9]:[0-5][0-9]Z"),
    LIKE_TIMES,
)


SHORT_OFFSET = re.compile(r"(:\d\d(?:\.\d+)?[+-]\d\d)(\d\d)?$", re.ASCII)


def time_as_decoded(text: str | None, field: pa.Field) -> list[dt.datetime | None]:
    """The one value that msgspec reads, or none when it refuses it; its offsets have a colon."""
    if text is not None:
        text = SHORT_OFFSET.sub(lambda found: f"{found[1]}:{found[2] or '00'}", text)
    kind: Any = Annotated[dt.datetime, Meta(tz=True)] if field.type.tz else dt.datetime
    try:
        found = msgspec.json.decode(json.dumps(text), type=kind | None)
    except msgspec.ValidationError:
        return []
    try:
        return list(pa.array([found], field.type).to_pylist())
    except OverflowError:  # the last hours of the year 9999
        return []


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=5), st.sampled_from([ZONED, NAIVE]))
def test_timestamps_are_read_as_a_decoder_of_single_ones_reads_them(
    texts: list[str | None], field: pa.Field
) -> None:
    for few in (texts, *([text] for text in texts)):
        decoded = decode(*(msgspec.json.encode({"x": t}) for t in few), schema=pa.schema([field]))
        expected = [found for text in few for found in time_as_decoded(text, field)]
        assert decoded.rows.column(0).to_pylist() == expected
        assert len(decoded.rejected) == len(few) - len(expected)


TEMPLATES = ("-", "Z", "+02:00", ".5Z", ".1234567Z", ".123456-11:59", " ")


@pytest.mark.parametrize("zone", TEMPLATES)
@pytest.mark.parametrize("day", ["2026-11-21", "2026-02-29", "2024-02-29", "0000-01-01"])
def test_timestamps_of_all_forms(zone: str, day: str) -> None:
    text = f"{day}T10:11:12{zone}"
    for field in (ZONED, NAIVE):
        decoded = decode(msgspec.json.encode({"x": text}), schema=pa.schema([field]))
        assert decoded.rows.column(0).to_pylist() == time_as_decoded(text, field)


EVERY = pa.schema(
    [
        pa.field(str(number), kind, metadata=metadata)
        for number, (kind, metadata) in enumerate(
            [
                *((kind, {}) for kind in (pa.int16(), pa.int64(), pa.float32(), pa.float64())),
                *((kind, {}) for kind in (pa.bool_(), pa.string(), pa.date32(), pa.binary())),
                *((kind, {}) for kind in (pa.time64("us"), pa.decimal128(9, 2), ZONED.type)),
                *((kind, {}) for kind in (pa.timestamp("us"), NESTED.type, pa.list_(pa.int64()))),
                (pa.map_(pa.string(), pa.int64()), {}),
                *((pa.string(), {Note.KIND: kind}) for kind in (b"json", b"numeric")),
            ]
        )
    ]
)


def test_what_is_absent_is_found_in_every_kind_of_column() -> None:
    null = msgspec.json.encode(dict.fromkeys(EVERY.names))
    decoded = decode(null, b"{}", null, schema=EVERY)
    assert not decoded.rejected
    masks = decoded.rows.column(ABSENT).to_pylist()
    assert [int.from_bytes(mask, "little").bit_count() for mask in masks] == [0, len(EVERY), 0]
    assert all(column.null_count == 3 for column in decoded.rows.columns[: len(EVERY)])
