"""Spellings of dates, times of day and timestamps in messages: the same in every column."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.contracts import Note
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats import json_times
from dataflow_assets.formats.columns import conform
from dataflow_assets.formats.json import Decoded, JsonDecoder, Tombstones

ZONED, NAIVE, FINE = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "UTC")
DATE, TIME = pa.date32(), pa.time64("us")
DAY = 86_400_000_000
WHEN = "2023-01-28 10:11:12"
ENDLESS = {Note.INFINITE: b"1"}
LISTED = pa.list_(ZONED)
STRUCT = pa.struct([pa.field("t", ZONED)])


def decoded(kind: pa.DataType, *values: Any, metadata: dict[Note, bytes] | None = None) -> Decoded:
    schema = pa.schema([pa.field("x", kind, metadata=metadata)])
    bodies = [json.dumps({"x": value}).encode() for value in values]
    return JsonDecoder(schema).decode(pa.array(bodies, pa.binary()), pa.array(range(len(bodies))))


def numbers(found: Decoded, kind: pa.DataType) -> list[int | None]:
    whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
    result: list[int | None] = found.rows.column("x").view(whole).to_pylist()
    return result


SPELLINGS = {
    "2023-01-28T10:11:12Z": 0,
    "2023-01-28t10:11:12z": 0,
    "2023-01-28 10:11:12Z": 0,
    "2023-01-28 10:11:12+00": 0,
    "2023-01-28T12:11:12+02": 120,
    "2023-01-28T12:11:12.5+02": 120,
    "2023-01-28T15:41:12+0530": 330,
    "2023-01-28 15:41:12.000001+0530": 330,
    "2023-01-28T15:41:12+05:30": 330,
    "2023-01-28T06:41:12-0330": -210,
    "20230128T101112Z": 0,
    "20230128T101112+0000": 0,
}


@pytest.mark.parametrize("kind", [ZONED, NAIVE, FINE, LISTED, STRUCT], ids=str)
def test_every_spelling_of_an_offset_is_the_same_moment(kind: pa.DataType) -> None:
    wrapped = {LISTED: lambda text: [text], STRUCT: lambda text: {"t": text}}
    wrap = wrapped.get(kind, lambda text: text)
    for texts in (list(SPELLINGS), *([text] for text in SPELLINGS)):
        found = decoded(kind, *map(wrap, texts))
        assert found.rejected == []
        values = found.rows.column("x")
        if kind == LISTED:
            values = values.flatten()
        if kind == STRUCT:
            values = values.field(0)
        plain = values.cast(pa.timestamp(kind.unit if kind == FINE else "us"))
        assert [str(one)[:19].replace("T", " ") for one in plain.to_pylist()] == [WHEN] * len(texts)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (ZONED, "2023-01-28T10:11:12", "column x: expected a time with a timezone"),
        (ZONED, "20230128", "expected a time with a timezone"),
        (ZONED, "2023-01-28T10:11:12+2", "expected a time with a timezone"),
        (ZONED, "2023-01-28T10:11:12+24", "expected a time with a timezone"),
        (ZONED, "infinity", "expected a time with a timezone"),
        (ZONED, 1674900672, "Expected `datetime | null`, got `int`"),
        (LISTED, [1674900672], "Expected `datetime"),
        (NAIVE, "now", "column x: expected a time, like"),
        (NAIVE, "2026-02-30T00:00:00", "expected a time, like"),
        (DATE, "2026-02-30", "column x: expected a date, like 2026-01-31"),
        (DATE, "0000-01-01", "expected a date"),
        (DATE, "2023128", "expected a date"),
        (DATE, "2023-01-28T00:00:00", "expected a date"),
        (DATE, "28/01/2023", "expected a date"),
        (DATE, "infinity", "expected a date"),
        (DATE, 20230128, "Expected `date | null`, got `int`"),
        (TIME, "24:00:00", "24:00:00 cannot be stored"),
        (TIME, "23:59:59.9999996", "24:00:00 cannot be stored"),
        (TIME, "24:00:01", "column x: expected a time of day"),
        (TIME, "10:60:00", "expected a time of day"),
        (TIME, "10:00", "expected a time of day"),
        (TIME, "10:00:00+02:00", "expected a time of day without a zone"),
        (TIME, "now", "expected a time of day"),
    ],
)
def test_what_is_no_such_time_is_refused_in_words(
    kind: pa.DataType, value: Any, reason: str
) -> None:
    found = decoded(kind, value, None)
    assert [one.offset for one in found.rejected] == [0]
    assert reason in found.rejected[0].reason
    assert found.rows.column("x").to_pylist() == [None]


def test_a_date_may_lack_its_dashes() -> None:
    found = decoded(DATE, "20230128", "2023-01-28", None, "9999-12-31", "99991231")
    day, last = dt.date(2023, 1, 28), dt.date(9999, 12, 31)
    assert found.rows.column("x").to_pylist() == [day, day, None, last, last]


def test_the_end_of_a_day_is_not_its_beginning() -> None:
    texts = ["23:59:59.9999996", "24:00:00", "24:00:00.0000001", "23:59:59.9999994", "00:00:00"]
    texts += ["10:00:00Z", "10:00:00.1234565"]
    found = decoded(TIME, *texts, "24:00:00.000001", metadata=ENDLESS)
    assert numbers(found, TIME) == [
        *(DAY, DAY, DAY, DAY - 1, 0),
        *(36_000_000_000, 36_000_123_457),
    ]
    assert [one.offset for one in found.rejected] == [7]


@pytest.mark.parametrize(
    ("kind", "limits"), [(DATE, 2**31), (NAIVE, 2**63), (ZONED, 2**63)], ids=str
)
def test_a_moment_may_be_infinite_where_the_column_has_that(kind: pa.DataType, limits: int) -> None:
    usual = "2023-01-28" if kind == DATE else "2023-01-28T00:00:00Z"
    for texts in ((usual, "infinity", None, "-Infinity"), ("infinity", "-infinity")):
        found = numbers(decoded(kind, *texts, metadata=ENDLESS), kind)
        ends = {"infinity": limits - 1, "-infinity": -limits}
        usually = 19_385 if kind == DATE else 19_385 * DAY
        wanted = [t if t is None else ends.get(t.lower(), usually) for t in texts]
        assert found == wanted


def test_years_that_only_tables_have_are_read_where_the_column_has_them() -> None:
    days = ["10000-01-01", "-0043-03-15", "0000-12-31", "2023-01-28", "300000-01-01"]
    found = decoded(DATE, *days, None, metadata=ENDLESS)
    assert numbers(found, DATE) == [2_932_897, -735_160, -719_163, 19_385, None]
    assert [one.offset for one in found.rejected] == [4]
    moments = ["10000-01-01T00:00:00Z", "2023-01-28T02:00:00+02", "-0043-03-15T00:00:00.5Z"]
    found = decoded(ZONED, *moments, "10000-01-01", metadata=ENDLESS)
    expected = [2_932_897 * DAY, 19_385 * DAY, -735_160 * DAY + 500_000]
    assert (numbers(found, ZONED), len(found.rejected)) == (expected, 1)
    assert len(decoded(ZONED, *moments[:1]).rejected) == 1


@pytest.mark.parametrize("odd", ["tomorrow", "10000-01-01T00:00:00Z", "10000-13-01T00:00:00Z"])
def test_one_odd_text_leaves_the_others_a_column(monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    """Reading each of them alone costs a multiple."""
    sizes, single = list[int](), json_times._timestamp

    def noted(texts: Sequence[str | None], field: pa.Field) -> pa.Array:
        sizes.append(len(texts))
        return single(texts, field)

    monkeypatch.setattr(json_times, "_timestamp", noted)
    texts = ["2023-01-28T02:00:00+02", None] * 100
    field = pa.field("x", ZONED, metadata=ENDLESS)
    if odd == "10000-01-01T00:00:00Z":
        found = json_times.times(field, [*texts, odd]).view(pa.int64()).to_pylist()
        assert found == [19_385 * DAY, None] * 100 + [2_932_897 * DAY]
    else:
        with pytest.raises(RejectedRecord):
            json_times.times(field, [*texts, odd])
    assert len(sizes) <= 3


def test_the_key_of_a_null_message_may_be_spelled_otherwise() -> None:
    schema = pa.schema([pa.field("x", ZONED)])
    decoder = JsonDecoder(schema, tombstones=Tombstones("delete", ("x",)))
    keys = pa.array([b'{"x":"2023-01-28 12:11:12+02"}', b'{"x":"soon"}'], pa.binary())
    found = decoder.decode(pa.nulls(2, pa.binary()), pa.array([0, 1]), keys)
    assert [str(one) for one in found.rows.column("x").to_pylist()] == [f"{WHEN}+00:00"]
    assert [one.offset for one in found.rejected] == [1]


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (TIME, DAY, "24:00:00"),
        (pa.list_(TIME), [DAY], "24:00:00"),
        (pa.list_(pa.timestamp("us")), [2**63 - 1], "infinity"),
        (pa.struct([pa.field("t", DATE)]), {"t": -(2**31)}, "-infinity"),
    ],
)
def test_tables_do_not_bring_in_what_a_column_cannot_hold(
    kind: pa.DataType, value: Any, words: str
) -> None:
    """Such numbers would be read as other moments there."""
    given = pa.field("x", kind)
    column = _column(kind, [value, None])
    found = conform(
        pa.RecordBatch.from_arrays([column], schema=pa.schema([given])), pa.schema([given])
    )
    assert found.refused == {0: f"column x: {words} cannot be stored"}


def _column(kind: pa.DataType, cells: list[Any]) -> pa.Array:
    """Times from their numbers."""
    if pa.types.is_list(kind):
        inner = _column(kind.value_type, [one for cell in cells for one in cell or ()])
        ends = [0, *(sum(len(c or ()) for c in cells[: at + 1]) for at in range(len(cells)))]
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner)
    if pa.types.is_struct(kind):
        inner = [_column(f.type, [c and c[f.name] for c in cells]) for f in kind]
        return pa.StructArray.from_arrays(inner, fields=list(kind))
    whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
    return pa.array(cells, whole).view(kind)
