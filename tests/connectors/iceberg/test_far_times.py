"""Times beyond the years 1 to 9999, wherever they are in a row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dataflow_assets.connectors.iceberg.table.far_times import datable
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.formats.json_times import YEARS

TIME = pa.timestamp("us", "UTC")
FAR = [YEARS[0] - 1, YEARS[1] + 1, 2**62]
NEAR = [YEARS[0], 0, YEARS[1], None]


def struct_of(moments: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([moments], ["at"])


def lists(moments: pa.Array) -> pa.Array:
    rows = [None, [], *([None, at] for at in moments.view(pa.int64()).to_pylist())]
    return pa.array(rows, pa.list_(pa.int64())).cast(pa.list_(TIME))


def maps(moments: pa.Array) -> pa.Array:
    rows = [[], *([("a", at)] for at in moments.view(pa.int64()).to_pylist())]
    return pa.array(rows, pa.map_(pa.string(), pa.int64())).cast(pa.map_(pa.string(), TIME))


@pytest.mark.parametrize("shape", [lambda moments: moments, struct_of, lists, maps])
def test_rows_with_a_far_time_are_found(shape) -> None:  # type: ignore[no-untyped-def]
    near, far = (shape(pa.array(times, pa.int64()).view(TIME)) for times in (NEAR, FAR))
    known = pa.array([True] * len(near) + [False] * len(FAR))
    values = pa.concat_arrays([near, far[len(far) - len(FAR) :]])
    rows = pa.RecordBatch.from_arrays([pa.array(range(len(values))), values], ["id", "value"])
    assert datable(rows).equals(known)
    assert datable(rows.slice(2)).equals(known.slice(2))
    assert pc.all(datable(rows.slice(0, 1))).as_py()


@pytest.mark.parametrize(
    ("time", "stored"),
    [
        ("9999-12-31T23:59:59Z", True),
        ("9999-12-31T23:59:59+05:00", True),
        ("9999-12-31T23:59:59-05:00", False),
        ("0001-01-01T00:00:00Z", True),
        ("0001-01-01T00:00:00-05:00", True),
        ("0001-01-01T00:00:00+05:00", False),
    ],
)
def test_an_offset_may_move_a_time_out_of_the_years(time: str, *, stored: bool) -> None:
    schema = pa.schema([("at", pa.list_(TIME))])
    body = b'{"at":["2026-01-01T00:00:00Z","%s"]}' % time.encode()
    decoded = JsonDecoder(schema).decode(pa.array([body]), pa.array([0], pa.int64()))
    assert decoded.rows.num_rows == stored
    assert len(decoded.rejected) == (not stored)
