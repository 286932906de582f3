"""What holds for whole tables as DataFrames in every system."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_frames import Mode, TableFrames
from dataflow_assets.sdk.table_partitions import Dimension, Partitions
from tests.frame_sinks import PLACES, frame_sink
from tests.frames import local_frame

PAIRS = pa.schema([("day", pa.string()), ("i", pa.int32())])
Rows = Sequence[Mapping[str, Any]]


class Frames:
    """One table."""

    def __init__(self, frames: TableFrames, engine: SparkSession) -> None:
        self.frames, self._engine = frames, engine

    def write(
        self,
        rows: Rows,
        schema: pa.Schema,
        mode: Mode = "overwrite",
        key: Sequence[str] = (),
        only: Partitions | None = None,
    ) -> int:
        """Rows that are counted."""
        return self.frames.write(local_frame(rows, schema, self._engine), mode, key, only)

    def read(self, names: Sequence[str] | None = None, only: Partitions | None = None) -> pa.Table:
        """All rows."""
        with ExitStack() as held:
            return self.frames.read(self._engine, names, held, only).toArrow()


@pytest.fixture(params=PLACES)
def table(request: pytest.FixtureRequest, engine: SparkSession) -> Callable[[], Frames]:
    """A table of each system, which does not exist yet."""
    sink, place = frame_sink(request, request.param)
    return lambda: Frames(sink.frames(place, "things"), engine)


def of(key: str) -> Partitions:
    return Partitions(((Dimension("day", (key,)),),))


def test_rows_of_nothing_but_null_are_read(table: Callable[[], Frames]) -> None:
    things = table()
    things.write([{"day": d, "i": i} for d, i in (("", 1), (None, None), ("x", None))], PAIRS)
    for name, values in (("day", ["", "x", None]), ("i", [1, None, None])):
        found = things.read([name]).column(name).to_pylist()
        assert sorted(found, key=lambda v: (v is None, v)) == values


def test_columns_are_read_in_the_order_in_which_they_are_named(table: Callable[[], Frames]) -> None:
    things = table()
    things.write([{"day": "a", "i": 1}], PAIRS)
    assert things.read(["i", "day"]).to_pylist() == [{"i": 1, "day": "a"}]
    with pytest.raises(PermanentError, match="has no column j, k; it has day, i"):
        things.read(["day", "j", "k"])


def test_runs_of_other_partitions_do_not_meet(table: Callable[[], Frames]) -> None:
    """Also the first ones, which all find no table."""
    keys = [f"k{number}" for number in range(8)]

    def put(key: str) -> int:
        rows = [{"day": key, "i": i} for i in range(3)]
        return table().write(rows, PAIRS, only=of(key))

    for _ in range(2):
        with ThreadPoolExecutor(4) as runs:
            assert list(runs.map(put, keys)) == [3] * 8
    found = sorted((row["day"], row["i"]) for row in table().read().to_pylist())
    assert found == [(key, i) for key in keys for i in range(3)]


@pytest.mark.parametrize("only", [None, of("a")], ids=["all", "a partition"])
def test_of_two_that_overwrite_at_once_one_is_left(
    table: Callable[[], Frames], only: Partitions | None
) -> None:
    def put(i: int) -> None:
        table().write([{"day": "a", "i": i}] * 20, PAIRS, only=only)

    put(0)
    for _ in range(3):
        with ThreadPoolExecutor(3) as runs:
            list(runs.map(put, [1, 2, 3]))
        found = table().read().column("i").to_pylist()
        assert len(found) == 20
        assert len(set(found)) == 1


def test_values_come_back_as_they_were(table: Callable[[], Frames]) -> None:
    at = datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=ZoneInfo("UTC"))
    values = {
        "b": (pa.binary(), b"\x00\xff'\\"),
        "n": (pa.decimal128(38, 18), decimal.Decimal("-12345678901234567890.123456789012345678")),
        "m": (pa.decimal128(10, 2), decimal.Decimal("-0.05")),
        "t": (pa.timestamp("us", "UTC"), at),
        "d": (pa.date32(), date(2026, 1, 1)),
        "f": (pa.float64(), -0.1),
        "s": (pa.string(), "a'\\\"\n\tü\U0001f600"),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in values.items()])
    row = {name: value for name, (_, value) in values.items()}
    things = table()
    things.write([row, dict.fromkeys(row)], schema)
    found = things.read()
    assert sorted(found.to_pylist(), key=lambda each: each["b"] is None) == [
        row,
        dict.fromkeys(row),
    ]
    assert [str(f.type) for f in found.schema] == [str(f.type) for f in schema]
