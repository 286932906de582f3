"""Values from JSON into every type of ClickHouse: exactly, or the record is rejected.

One table of types makes all cells: each value alone, where it may be NULL, and inside arrays,
tuples and maps; present, null, out of range, as other text and as another kind of JSON. A table has
a column for each type, and a record differs from a sound one in one column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.contracts import OFFSET, Chunk, Note, OffsetSlice, Sent, Span
from dataflow_assets.formats.columns import conform
from tests.connectors.clickhouse.driver import SOURCE, Place, start, write
from tests.connectors.clickhouse.values import (
    DAY,
    KINDS,
    SHAPES,
    UUID,
    Shape,
    columns,
    fill,
    refused,
    sound,
    stored,
    texts,
    written,
)


@pytest.fixture
def place(clickhouse: devservers.ClickHouse, database: str) -> Place:
    return Place(clickhouse.dsn(database))


@dataclass(frozen=True)
class Cell:
    """A record that differs from a sound one in one column; `fits`: whether it is stored."""

    column: str
    value: Any
    fits: bool


def cells(shape: Shape) -> Iterator[Cell]:
    for at, kind in enumerate(KINDS):
        yield Cell(f"c{at}", shape.sent(None), shape.nullable)
        yield from (Cell(f"c{at}", shape.sent(value), fits=False) for value in kind.unfit)


@pytest.mark.parametrize("name", SHAPES)
def test_a_value_is_stored_exactly_or_its_record_is_rejected(place: Place, name: str) -> None:
    shape = SHAPES[name]
    given = ", ".join(f"{column} {kind}" for column, kind in columns(shape).items())
    place.make(f"id UInt32, {given}")
    tried = list(cells(shape))
    records = [{"id": 0, **sound(shape)}]
    records += [{**records[0], "id": at, one.column: one.value} for at, one in enumerate(tried, 1)]
    fill(place, records)
    found, reasons = stored(place), refused(place)
    whole = written(place, shape, lambda kind: kind.literal)
    assert found[0] == whole
    assert set(found) == {0, *(at for at, one in enumerate(tried, 1) if one.fits)}
    for at, one in enumerate(tried, 1):
        if one.fits:
            index = int(one.column[1:])
            others = (found[at][:index], found[at][index + 1 :])
            assert others == (whole[:index], whole[index + 1 :])
            assert "NULL" in found[at][index] or found[at][index] == "None"
        else:
            assert re.search(rf"column {one.column}: |\$\.{one.column}\b", reasons[at]), one
            assert not re.search("Exception|Python|precision inferred", reasons[at])


def test_a_chunk_of_which_no_row_fits(place: Place) -> None:
    place.make("id UInt32, day Date, r Ring DEFAULT []")
    fill(place, [{"id": 1, "day": "1969-12-31"}, {"id": 2, "day": DAY, "r": [[1, 2]]}])
    assert place.rows() == []
    assert refused(place) == {
        0: "column day: 1969-12-31 lies outside 1970-01-01 to 2149-06-06",
        1: "column r: a flow cannot fill Ring: give the column arrays, tuples or a String",
    }


def test_null_tuples_and_null_of_any_type(place: Place) -> None:
    nested = "Nullable(Tuple(a UInt8, l Array(UInt8), t Tuple(u UUID)))"
    place.make(f"id UInt32, t {nested}, d Dynamic, v Variant(String, UInt8), l Array(Dynamic)")
    value = {"a": 1, "l": [2], "t": {"u": UUID}}
    fill(
        place,
        [
            {"id": 0, "t": value, "d": "x", "v": "y", "l": ["z", None]},
            {"id": 1, "t": None, "d": None, "v": None, "l": []},
            {"id": 2, "l": []},
        ],
    )
    query = "select id, isNull(t), isNull(d), isNull(v), arrayMap(x -> isNull(x), l) from orders"
    assert sorted(place.run(query)) == [(0, 0, 0, 0, [0, 1]), (1, 1, 1, 1, []), (2, 1, 1, 1, [])]


def test_maps_of_typed_rows_arrive(place: Place) -> None:
    place.make("id UInt32, m Map(UInt8, Array(IPv4)), i UInt128")
    schema = start(place.sink()).table.schema()
    assert schema is not None
    numeric, json_text = {Note.KIND: b"numeric"}, {Note.KIND: b"json"}
    given = pa.schema(
        [
            pa.field("id", pa.uint32()),
            pa.field("m", pa.string(), metadata=json_text),
            pa.field("i", pa.string(), metadata=numeric),
            pa.field(OFFSET, pa.int64()),
        ]
    )
    good, bad = '{"1":["1.1.1.1"],"2":[]}', '{"300":[]}'
    columns = [[1, 2, 3], [good, bad, good], [str(2**128 - 1), "1", str(2**128)], [0, 1, 2]]
    arrays = [pa.array(values, one.type) for values, one in zip(columns, given, strict=True)]
    found = conform(pa.RecordBatch.from_arrays(arrays, schema=given), schema)
    assert list(found.refused) == [1]
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 3),)))
    sent = {at: Sent(b"") for at in range(3)}
    receipt = write(
        place.sink(), session.ticket(), span.slices[0], Chunk(found.rows, [], 3, 10, sent)
    )
    session.finish(span, [receipt], SOURCE)
    assert texts(place, "select id, toString(m), toString(i) from orders") == [
        ("1", "{1:['1.1.1.1'],2:[]}", str(2**128 - 1))
    ]
    assert "is no UInt128" in refused(place)[2]


def test_times_that_python_does_not_know_are_rejected_with_their_text(place: Place) -> None:
    place.make("id UInt32, at DateTime('UTC')")
    schema = start(place.sink()).table.schema()
    assert schema is not None
    times = pa.array([0, 253_402_300_800_000_000], pa.int64()).view(pa.timestamp("us", "UTC"))
    columns = {"id": pa.array([1, 2], pa.uint32()), "at": times, OFFSET: pa.array([0, 1])}
    found = conform(pa.RecordBatch.from_pydict(columns), schema)
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 2),)))
    chunk = Chunk(found.rows, [], 2, 10, {at: Sent(b"") for at in range(2)})
    receipt = write(place.sink(), session.ticket(), span.slices[0], chunk)
    session.finish(span, [receipt], SOURCE)
    assert texts(place, "select id from orders") == [("1",)]
    assert "10000-01-01 00:00:00" in refused(place)[1]
