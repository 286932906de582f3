"""A column of any kind into a column of any other one: as with steps between, or without loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow_assets.contracts import OFFSET, Note, kind_of
from dataflow_assets.formats.columns import conform
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.formats.rows import infinite, objects

UTC, NAIVE = pa.timestamp("us", "UTC"), pa.timestamp("us")
FINE = pa.timestamp("ns", "UTC")
POINT = pa.struct([("a", pa.int64()), ("b", pa.string())])
OTHER = pa.struct([("a", pa.string()), ("b", pa.string()), ("z", pa.int8())])
NAN, INF = float("nan"), float("inf")
ID = "0a1b2c3d-0000-0000-0000-000000000001"

WHOLE = [0, 1, -1, 127, 128, 255, -128, 2**24 + 1, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1]
WHOLE += [-(2**63), 1_700_000_000, 1_700_000_000_000, 2**64 - 1]
FRACTIONS = [0.0, -0.0, 1.0, 1.5, 0.1, 1e300, -1e300, 5e-324, 1e20, 2.0**53, 2.0**63, NAN, INF]
FRACTIONS += [-INF, 3.4e38]
TEXTS = ["", "0", "7", "-7", "+7", " 7", "07", "1.", ".5", "1.5", "1e3", "1e400", "1_000", "0x10"]
TEXTS += ["true", "t", "NaN", "nan", "Infinity", "-inf", "infinity", "null", "2026-01-01"]
TEXTS += ["2026-01-01T00:00:00Z", "2026-01-01 00:00:00", "2026-01-01T12:30:00+02:00", "12:30:00"]
TEXTS += ["24:00:00", "aGk=", "hi", ID, "[1]", '{"a":1}', '"x"', "é", "٣"]
JSON = ["1", "1.5", "true", '"x"', '"2026-01-01T00:00:00Z"', '"7"', "[1]", '{"a":1}', "null"]
JSON += ['"NaN"', '"aGk="', "1e400"]
MICROS = [0, 1, -1, 86_400_000_000, 1_500_000, 253_402_300_799_999_999, 253_402_300_800_000_000]
MICROS += [-62_135_596_800_000_000, -62_135_596_800_000_001, 2**63 - 1, -(2**63)]
DAYS = [0, 1, -1, 19_000, 2_932_896, 2_932_897, -719_162, -719_163, 2**31 - 1, -(2**31)]


@dataclass(frozen=True)
class Source:
    """A column of hostile values."""

    field: pa.Field
    column: pa.Array


def field(arrow: pa.DataType, kind: str | None = None) -> pa.Field:
    return pa.field("c", arrow, metadata={Note.KIND: kind.encode()} if kind else None)


def source(values: list[Any], arrow: pa.DataType, kind: str | None = None) -> Source:
    """All of the values, and a null; times are given as numbers."""
    if pa.types.is_temporal(arrow):
        whole = pa.int32() if pa.types.is_date(arrow) else pa.int64()
        return Source(field(arrow, kind), pa.array([*values, None], whole).cast(arrow))
    return Source(field(arrow, kind), pa.array([*values, None], arrow))


def decimals(*texts: str) -> list[Decimal]:
    return [Decimal(text) for text in texts]


def _whole(arrow: pa.DataType) -> Source:
    held = np.iinfo(arrow.to_pandas_dtype())
    return source([one for one in WHOLE if held.min <= one <= held.max], arrow)


SOURCES = [
    *map(_whole, (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *map(_whole, (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    source([True, False], pa.bool_()),
    source(FRACTIONS, pa.float64()),
    source([0.1, 1.0, 2.0**24, 3.4e38, NAN, INF], pa.float32()),
    source(
        decimals("0", "1", "1.5", "0.0001", "-" + "9" * 34 + ".9999", "9007199254740993"),
        pa.decimal128(38, 4),
    ),
    source(decimals("1", "9" * 76), pa.decimal256(76, 0)),
    *(source(TEXTS, pa.string(), kind) for kind in (None, "text")),
    source(
        ["0", "1.50", "NaN", "Infinity", "-Infinity", "1e400", "9" * 80], pa.string(), "numeric"
    ),
    source([ID], pa.string(), "uuid"),
    source(JSON, pa.string(), "json"),
    source([b"", b"hi", b"\xff\x00", b"7", b"\xd7\x6d\xf8"], pa.binary()),
    source(DAYS, pa.date32()),
    source([0, 1, 43_200_000_000, 86_399_999_999, 86_400_000_000], pa.time64("us")),
    *(source(MICROS, arrow) for arrow in (UTC, NAIVE)),
    source([0, 1, 1000, -1, 2**63 - 1, -(2**63)], FINE),
    source([[1], [], [None]], pa.list_(pa.int64())),
    source([[NAN], [0.5]], pa.list_(pa.float64())),
    source([[0]], pa.list_(UTC)),
    source([{"a": 1, "b": "x"}, {"a": None, "b": None}], POINT),
    source([], pa.null()),
]
SIMPLE = [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.bool_(), pa.float32()]
SIMPLE += [pa.float64(), pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal256(76, 10)]
SIMPLE += [pa.string(), pa.binary(), pa.date32(), pa.time64("us"), UTC, NAIVE, FINE]
NESTED = [pa.list_(pa.int64()), pa.list_(pa.string()), pa.list_(pa.float64()), pa.list_(UTC)]
NESTED += [POINT, OTHER, pa.map_(pa.string(), pa.int64())]
TARGETS = [field(arrow) for arrow in (*SIMPLE, *NESTED)]
TARGETS += [field(pa.string(), kind) for kind in ("text", "numeric", "uuid", "json")]

Found = dict[int, pa.Array]
"""By row the stored value, as a column of its own; a row that is not in it was refused."""


def endless(wanted: pa.Field) -> pa.Field:
    return wanted.with_metadata({**(wanted.metadata or {}), Note.INFINITE: b"1"})


def straight(given: Source, wanted: pa.Field) -> Found:
    rows = [given.column, pa.array(range(len(given.column)), pa.int64())]
    schema = pa.schema([given.field, pa.field(OFFSET, pa.int64())])
    batch = pa.RecordBatch.from_arrays(rows, schema=schema)
    return stored(conform(batch, pa.schema([endless(wanted)])).rows)


def by_records(given: Source, wanted: pa.Field) -> Found:
    batch = pa.RecordBatch.from_arrays([given.column], schema=pa.schema([given.field]))
    bodies = pa.array(objects(batch), pa.binary())
    decoder = JsonDecoder(pa.schema([endless(wanted)]))
    return stored(decoder.decode(bodies, pa.array(range(len(bodies)), pa.int64())).rows)


def stored(rows: pa.RecordBatch) -> Found:
    offsets = rows.column(OFFSET).to_pylist()
    return {at: rows.column("c").slice(row, 1) for row, at in enumerate(offsets)}


def differences(given: Source, wanted: pa.Field) -> Iterator[tuple[int, pa.Array, pa.Array]]:
    """Row, and what either path has stored there; None where it was refused."""
    ours, theirs = straight(given, wanted), by_records(given, wanted)
    for row in range(len(given.column)):
        one, other = ours.get(row), theirs.get(row)
        if not _equal(one, other):
            yield row, one, other


def _equal(one: pa.Array | None, other: pa.Array | None) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one.null_count and other.null_count) or str(one) == str(other)


def name(one: pa.Field) -> str:
    kind = kind_of(one)
    return f"{one.type}" + (f" ({kind})" if kind else "")


PAIRS = [
    pytest.param(given, wanted, id=f"{name(given.field)} to {name(wanted)}")
    for given, wanted in product(SOURCES, TARGETS)
]


@pytest.mark.parametrize(("given", "wanted"), PAIRS)
def test_a_value_is_stored_as_with_steps_between_or_without_loss(
    given: Source, wanted: pa.Field
) -> None:
    for row, ours, theirs in differences(given, wanted):
        value = given.column.slice(row, 1)
        shown = f"{value} is stored as {ours}, with steps as {theirs}"
        if ours is None:
            assert loses_with_steps(given.field, wanted), shown
        elif theirs is None:
            assert is_the_same(value, given.field, ours, wanted), shown
        else:
            assert is_narrower_in_json(value, given.field, ours, wanted), shown


def test_nothing_goes_into_a_null_but_a_null() -> None:
    for given, wanted in product(SOURCES, TARGETS):
        found = straight(given, wanted)
        assert found[len(given.column) - 1].null_count == 1, (given.field, wanted)
        for row, one in found.items():
            if one.null_count:
                assert given.column[row].as_py() in (None, "null")


def loses_with_steps(given: pa.Field, wanted: pa.Field) -> bool:
    """JSON's rules are wider: whole numbers are rounded, times cut, words are base64."""
    whole = pa.types.is_integer(given.type) and pa.types.is_floating(wanted.type)
    cut = given.type == FINE and pa.types.is_timestamp(wanted.type)
    words = pa.types.is_binary(wanted.type) and not pa.types.is_string(given.type)
    digits = pa.types.is_binary(given.type) and kind_of(wanted) == "numeric"
    return bool(whole or cut or words or digits)


def is_narrower_in_json(value: pa.Array, given: pa.Field, ours: pa.Array, wanted: pa.Field) -> bool:
    """A float of 32 bits is its shortest decimal in JSON, and JSON's null in a document is none."""
    if given.type == pa.float32() and wanted.type == pa.float64():
        return bool(ours.equals(value.cast(pa.float64())))
    return kind_of(wanted) == "json" and bool(ours[0].as_py() == value[0].as_py() == "null")


def is_the_same(value: pa.Array, given: pa.Field, ours: pa.Array, wanted: pa.Field) -> bool:
    """Whether the value can be told from what was stored, in a way that JSON does not take."""
    if pa.types.is_string(wanted.type):
        return True  # the written form, which the types' page has
    if pa.types.is_nested(wanted.type):
        return pa.types.is_nested(given.type) and wanted.type in (OTHER, pa.list_(pa.string()))
    if _counts(given) and _counts(wanted):
        if pa.types.is_integer(wanted.type) and pa.types.is_floating(given.type):
            return bool(int(value[0].as_py()) == ours[0].as_py())
        return _number(value) == _number(ours)
    if pa.types.is_time(wanted.type):
        return bool(given.type == wanted.type and ours.equals(value))
    if not (_is_moment(given.type) and _is_moment(wanted.type)):
        return False
    if infinite(value) or infinite(ours):
        return bool(infinite(value) == infinite(ours))
    return _nanoseconds(value) == _nanoseconds(ours)


def _counts(one: pa.Field) -> bool:
    text = pa.types.is_string(one.type) and kind_of(one) in (None, "text", "numeric")
    floating = pa.types.is_floating(one.type) or pa.types.is_decimal(one.type)
    return bool(text or floating or pa.types.is_integer(one.type))


def _number(one: pa.Array) -> Decimal | str:
    found = one[0].as_py()
    if isinstance(found, float):
        found = repr(float(str(np.float32(found))) if one.type == pa.float32() else found)
    number = Decimal(found)
    return number if number.is_finite() else str(number)


def _is_moment(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_date(arrow) or pa.types.is_timestamp(arrow))


def _nanoseconds(one: pa.Array) -> int:
    if pa.types.is_date(one.type):
        return int(one.view(pa.int32())[0].as_py()) * 86_400 * 10**9
    return int(one.view(pa.int64())[0].as_py()) * (1 if one.type.unit == "ns" else 1000)
