"""Typed rows: into other columns without loss, and as JSON."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.contracts import ABSENT, OFFSET, Note
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.columns import conform
from dataflow_assets.formats.rows import moments, objects, values
from dataflow_assets.micro_batch.message_metadata import as_messages

UTC = pa.timestamp("us", "UTC")
NAIVE = pa.timestamp("us")
ENDLESS = [2**63 - 1, -(2**63)]


def kind(name: str) -> dict[bytes, bytes]:
    return {Note.KIND: name.encode()}


def field(arrow: pa.DataType, of: str | None = None, **options: Any) -> pa.Field:
    return pa.field("c", arrow, metadata=kind(of) if of else None, **options)


def batch(column: pa.Array, given: pa.Field) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column], schema=pa.schema([given]))


NUMERIC = field(pa.string(), "numeric")
JSON = field(pa.string(), "json")
TEXT = field(pa.string())
UUID = field(pa.string(), "uuid")
POINT = pa.struct([("x", pa.int64()), ("y", pa.string())])
WIDE = pa.struct([("x", pa.float64()), ("y", pa.string()), ("z", pa.int8())])

FITS: list[tuple[pa.Field, Any, pa.Field, Any]] = [
    (field(pa.int16()), 7, field(pa.int64()), 7),
    (field(pa.int64()), 7, field(pa.uint8()), 7),
    (field(pa.int64()), 7, field(pa.decimal128(10, 2)), 7),
    (field(pa.int64()), 7, NUMERIC, "7"),
    (field(pa.uint64()), 2**64 - 1, NUMERIC, str(2**64 - 1)),
    (field(pa.decimal128(5, 2)), 1, NUMERIC, "1.00"),
    (field(pa.float64()), 0.1, NUMERIC, "0.1"),
    (field(pa.float64()), float("inf"), NUMERIC, "Infinity"),
    (
        NUMERIC,
        "12345678901234567890.5",
        field(pa.decimal256(40, 3)),
        Decimal("12345678901234567890.5"),
    ),
    (NUMERIC, "7", field(pa.int32()), 7),
    (NUMERIC, "0.5", field(pa.float64()), 0.5),
    (NUMERIC, "NaN", TEXT, "NaN"),
    (TEXT, "7", field(pa.int32()), 7),
    (TEXT, 'say "hi"', JSON, '"say \\"hi\\""'),
    (JSON, '{"a": 1}', TEXT, '{"a": 1}'),
    (field(pa.int64()), 7, JSON, "7"),
    (field(pa.list_(pa.int64())), [1, None], JSON, "[1,null]"),
    (field(pa.list_(pa.int64())), [1, None], TEXT, "[1,null]"),
    (field(pa.list_(pa.int16())), [1, None], field(pa.list_(pa.int64())), [1, None]),
    (field(POINT), {"x": 1, "y": "a"}, field(WIDE), {"x": 1.0, "y": "a", "z": None}),
    (field(pa.bool_()), True, TEXT, "true"),
    (field(pa.binary()), b"\x00\xff", TEXT, "AP8="),
    (field(pa.date32()), 1, field(UTC), 86_400_000_000),
    (field(NAIVE), 1_500_000, field(UTC), 1_500_000),
    (field(UTC), 1_500_000, field(NAIVE), 1_500_000),
    (field(UTC), 1_500_000, field(pa.timestamp("ns", "UTC")), 1_500_000_000),
    (field(UTC), 1_500_000, TEXT, "1970-01-01T00:00:01.5Z"),
    (field(NAIVE), 0, JSON, '"1970-01-01T00:00:00Z"'),
    (field(pa.time64("us")), 1_000_000, TEXT, "00:00:01"),
    (TEXT, "0A1B2C3D-0000-0000-0000-000000000001", UUID, "0A1B2C3D-0000-0000-0000-000000000001"),
]


@pytest.mark.parametrize(("given", "value", "wanted", "stored"), FITS)
def test_values_that_fit(given: pa.Field, value: Any, wanted: pa.Field, stored: Any) -> None:
    conformed = conform(batch(pa.array([value, None], given.type), given), pa.schema([wanted]))
    assert conformed.refused == {}
    expected = pa.array([stored, None], wanted.type)
    assert conformed.rows.column("c").equals(expected), conformed.rows.column("c")


LOSES: list[tuple[pa.Field, Any, pa.Field, str]] = [
    (field(pa.int64()), 300, field(pa.int8()), "300 is not a valid int8"),
    (field(pa.int64()), -1, field(pa.uint64()), "-1 is not a valid uint64"),
    (field(pa.float64()), 1.5, field(pa.int64()), "1.5 is not a valid int64"),
    (field(pa.int64()), 2**60 + 1, field(pa.float64()), "is not a valid double"),
    (NUMERIC, "1.25", field(pa.decimal128(5, 1)), "1.25 is not a valid decimal128"),
    (NUMERIC, "NaN", field(pa.decimal128(5, 1)), "NaN is not a valid decimal128"),
    (TEXT, "x", NUMERIC, "expected a number"),
    (TEXT, "x", UUID, "expected a UUID"),
    (field(pa.timestamp("ns")), 1, field(NAIVE), "is not a valid timestamp"),
    (field(UTC), 1, field(pa.date32()), "a time of day would be lost"),
    (field(WIDE), {"x": 1.0}, field(POINT), "no field z"),
    (field(pa.string()), None, field(pa.string(), nullable=False), "must not be null"),
    (TEXT, "long", pa.field("c", pa.string(), metadata={Note.MAX_LENGTH: b"3"}), "longer than 3"),
    (field(UTC), ENDLESS[0], field(UTC), "infinity cannot be stored"),
    (field(pa.date32()), -(2**31), field(pa.date32()), "-infinity cannot be stored"),
]


@pytest.mark.parametrize(("given", "value", "wanted", "reason"), LOSES)
def test_a_value_that_does_not_fit_costs_its_row_alone(
    given: pa.Field, value: Any, wanted: pa.Field, reason: str
) -> None:
    good = {"int64": 1, "double": 2.0, "string": "1", "struct": {"x": 1.0}}.get(str(given.type), 0)
    if wanted is UUID:
        good = "00000000-0000-0000-0000-000000000000"
    if pa.types.is_struct(given.type):
        conformed = conform(batch(pa.array([value], given.type), given), pa.schema([wanted]))
        assert list(conformed.refused) == [0]
    else:
        rows = pa.array([good, value, good], given.type)
        conformed = conform(batch(rows, given), pa.schema([wanted]))
        assert list(conformed.refused) == [1]
        assert conformed.rows.num_rows == 2
    assert reason in next(iter(conformed.refused.values()))
    assert conformed.rows.schema.field("c") == wanted


def test_infinity_is_kept_where_the_sink_holds_it() -> None:
    schema = pa.schema([field(UTC).with_metadata({Note.INFINITE: b"1"})])
    given = batch(pa.array(ENDLESS, pa.int64()).cast(UTC), field(UTC))
    assert conform(given, schema).rows.column("c").cast(pa.int64()).to_pylist() == ENDLESS


def test_text_with_nul_is_refused_where_the_sink_cannot_hold_it() -> None:
    rows = batch(pa.array(["a", "b\0", None]), TEXT)
    assert conform(rows, pa.schema([TEXT])).refused == {}
    refused = conform(rows, pa.schema([TEXT], {Note.NO_NUL: b"1"})).refused
    assert refused == {1: "column c: holds the character NUL"}


def test_columns_by_name_and_what_is_missing() -> None:
    given = pa.RecordBatch.from_pydict({"b": [1], "@id": [9], OFFSET: [4]})
    marked = given.schema.field("@id").with_metadata({Note.METADATA: b"id"})
    given = given.cast(given.schema.set(1, marked))
    schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
    rows = conform(given, schema).rows
    assert rows.to_pylist() == [{"a": None, "b": 1, OFFSET: 4, ABSENT: b"\x01"}]
    with pytest.raises(PermanentError, match="the target lacks: b; the target has a: add them"):
        conform(given, schema.remove(1))
    assert conform(given, schema.remove(1), "ignore").rows.column("a").to_pylist() == [None]
    required = schema.set(0, pa.field("a", pa.string(), nullable=False))
    with pytest.raises(PermanentError, match="a must be filled, and the source has no such"):
        conform(given, required)


def test_rows_as_json() -> None:
    fields = {
        "n": (pa.array(["1.50", "NaN", None]), kind("numeric")),
        "j": (pa.array(['{"b":[1.0]}', "null", None]), kind("json")),
        "f": (pa.array([0.1, float("nan"), float("-inf")], pa.float32()), None),
        "t": (pa.array([1_500_000, *ENDLESS], pa.int64()).cast(UTC), None),
        "d": (pa.array([0, 2**31 - 1, None], pa.int32()).cast(pa.date32()), None),
        "b": (pa.array([b"\xff", b"", None]), None),
        "l": (pa.array([[1, None], [], None]), None),
        "s": (pa.array([{"x": 1, "y": "é"}, None, {"x": None, "y": None}], POINT), None),
        "u": (pa.array([2**64 - 1, 0, None], pa.uint64()), None),
    }
    schema = pa.schema([pa.field(n, a.type, metadata=m) for n, (a, m) in fields.items()])
    rows = pa.RecordBatch.from_arrays([array for array, _ in fields.values()], schema=schema)
    first, second, third = objects(rows)
    assert (
        first
        == (
            '{"n":1.50,"j":{"b":[1.0]},"f":0.1,"t":"1970-01-01T00:00:01.5Z","d":"1970-01-01",'
            '"b":"/w==","l":[1,null],"s":{"x":1,"y":"é"},"u":18446744073709551615}'
        ).encode()
    )
    assert json.loads(second) == {
        "n": "NaN",
        "j": None,
        "f": "NaN",
        "t": "infinity",
        "d": "infinity",
        "b": "",
        "l": [],
        "s": None,
        "u": 0,
    }
    assert json.loads(third)["t"] == "-infinity"
    assert json.loads(third)["f"] == "-Infinity"


def test_moments_that_few_calendars_have() -> None:
    def said(arrow: pa.DataType, whole: pa.DataType, *values: int) -> list[str | None]:
        return moments(pa.array(values, whole).cast(arrow))

    assert said(pa.time64("us"), pa.int64(), 86_400_000_000, 1) == ["24:00:00", "00:00:00.000001"]
    dates = said(pa.date32(), pa.int32(), 10**8, -(10**8))
    assert dates == ["275760-09-13", "-271821-04-20"]
    far = [9 * 10**18, 253_402_300_800_000_000]
    assert said(UTC, pa.int64(), *far) == ["287168-08-24T16:00:00Z", "10000-01-01T00:00:00Z"]


def test_metadata_columns_are_no_part_of_the_body() -> None:
    schema = pa.schema(
        [("id", pa.int64()), pa.field("@id", pa.int64(), metadata={Note.METADATA: b"id"})]
    )
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([1, 2])], schema=schema)
    (message,) = as_messages([rows], 1, 2)
    assert message.column("body").to_pylist() == [b'{"id":1}', b'{"id":2}']
    assert values(message.column("@id"), message.schema.field("@id")) == [1, 2]
    assert message.column("_at").to_pylist() == [1, 3]
