"""Assets with partitions: a run replaces the rows of its partitions, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import Store
from dataflow_assets.sdk.table_frames import FrameSink
from tests.dagster.partitioned import Runs, frame_asset
from tests.frame_sinks import PLACES, frame_sink
from tests.frames import local_frame

UTC = ZoneInfo("UTC")
LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
TEXTS = pa.schema([("day", pa.string()), ("i", pa.int32())])
DATES = pa.schema([("day", pa.date32()), ("i", pa.int32())])
TIMES = pa.schema([("at", pa.timestamp("us", "UTC")), ("i", pa.int32())])


@pytest.fixture(params=PLACES)
def sink(request: pytest.FixtureRequest) -> tuple[FrameSink, str]:
    return frame_sink(request, request.param)


@pytest.fixture
def runs(
    sink: tuple[FrameSink, str], store: Store, engine: SparkSession, instance: dg.DagsterInstance
) -> Runs:
    return Runs(store, sink[0], engine, instance)


@pytest.fixture
def key(sink: tuple[FrameSink, str]) -> list[str]:
    return [sink[0].type, "here", sink[1], "daily"]


def rows(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """The rows in order."""
    return sorted(tuple(row[name] for name in names) for row in table.to_pylist())


def nothing(_: dg.AssetExecutionContext) -> list[Mapping[str, Any]]:
    """No rows."""
    return []


def two_rows(value: Callable[[str], Any], column: str = "day") -> Any:
    """Two rows for each partition of a run."""

    def made(context: dg.AssetExecutionContext) -> list[Mapping[str, Any]]:
        return [{column: value(k), "i": i} for k in context.partition_keys for i in range(2)]

    return made


def test_each_run_replaces_the_rows_of_its_partition(runs: Runs, key: list[str]) -> None:
    count = [2]

    def made(context: dg.AssetExecutionContext) -> list[Mapping[str, Any]]:
        return [{"day": context.partition_key, "i": i} for i in range(count[0])]

    daily = frame_asset(key, TEXTS, made, LETTERS, partition_expr="day")
    for letter in "abc":
        assert runs.write(daily, letter) == ""
    every = [(letter, i) for letter in "abc" for i in range(2)]
    assert rows(runs.read(daily), "day", "i") == every
    count[0] = 1
    assert runs.write(daily, "b") == ""
    assert rows(runs.read(daily), "day", "i") == [x for x in every if x != ("b", 1)]
    count[0] = 0
    assert runs.write(daily, "c") == ""
    assert rows(runs.read(daily), "day", "i") == [("a", 0), ("a", 1), ("b", 0)]


@pytest.mark.parametrize("kinds", [DATES, TIMES, TEXTS], ids=["dates", "times", "keys"])
def test_a_backfill_of_30_days(runs: Runs, key: list[str], kinds: pa.Schema) -> None:
    """In one run, then each day in a run of its own, and one of them once more."""
    column = kinds.names[0]

    def value(text: str) -> Any:
        day = date.fromisoformat(text)
        last = datetime(day.year, day.month, day.day, 23, 59, 59, 999_999, tzinfo=UTC)
        return {"string": text, "date32[day]": day}.get(str(kinds.types[0]), last)

    keys = DAYS.get_partition_keys()[:30]
    daily = frame_asset(key, kinds, two_rows(value, column), DAYS, partition_expr=column)
    every = [(value(day), i) for day in keys for i in range(2)]
    assert runs.write(daily, keys[0], keys[-1]) == ""
    assert rows(runs.read(daily), column, "i") == every
    for day in keys[:3]:
        assert runs.write(daily, day) == ""
    assert rows(runs.read(daily), column, "i") == every


def test_an_input_reads_the_partitions_of_its_mapping(runs: Runs, key: list[str]) -> None:
    def made(context: dg.AssetExecutionContext) -> list[Mapping[str, Any]]:
        return [{"day": date.fromisoformat(k), "i": 0} for k in context.partition_keys]

    daily = frame_asset(key, DATES, made, DAYS, partition_expr="day")
    assert runs.write(daily, "2026-01-01", "2026-01-31") == ""

    def days(given: Mapping[str, Any] | None, **more: Any) -> list[int]:
        return sorted(day.day for day in runs.read(daily, given, **more)["day"].to_pylist())

    assert days(None, partitions=DAYS, partition_key="2026-01-05") == [5]
    trailing = {"partition_mapping": dg.TimeWindowPartitionMapping(start_offset=-2)}
    assert days(trailing, partitions=DAYS, partition_key="2026-01-05") == [3, 4, 5]
    weekly = dg.WeeklyPartitionsDefinition("2026-01-04", end_date="2026-02-01")
    assert days(None, partitions=weekly, partition_key="2026-01-11") == list(range(11, 18))
    some = {
        "partition_mapping": dg.SpecificPartitionsPartitionMapping(["2026-01-02", "2026-01-09"])
    }
    assert days(some) == [2, 9]
    assert days(None) == list(range(1, 32)), "an asset without partitions reads all of them"
    first = {"partition_mapping": dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)}
    assert days(first, partitions=DAYS, partition_key="2026-01-01") == [], "there is none before"


def test_an_asset_that_reads_its_own_day_before_begins_with_the_first_day(
    runs: Runs, key: list[str]
) -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    seen: list[list[int] | None] = []

    @dg.asset(
        key=key,
        io_manager_key=key[0],
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        ins={"yesterday": dg.AssetIn(key=key, partition_mapping=before)},
        required_resource_keys={"spark"},
    )
    def total(context, yesterday):  # type: ignore[no-untyped-def] # as texts Dagster refuses types
        known = None if yesterday is None else yesterday.toArrow()["i"].to_pylist()
        seen.append(known)
        row = {"day": date.fromisoformat(context.partition_key), "i": sum(known or ()) + 1}
        return local_frame([row], DATES, context.resources.spark.session())

    for day in ("2026-01-01", "2026-01-02", "2026-01-03", "2026-01-01"):
        assert runs.write(total, day) == ""
    assert seen == [None, [1], [2], []], "there is no table yet, and no day before the first one"


def test_partitions_of_two_dimensions(runs: Runs, key: list[str]) -> None:
    schema = pa.schema([("day", pa.date32()), ("region", pa.string()), ("i", pa.int32())])
    both = dg.MultiPartitionsDefinition({"when": DAYS, "where": LETTERS})
    number = [0]

    def made(context: dg.AssetExecutionContext) -> list[Mapping[str, Any]]:
        found = [
            k.keys_by_dimension
            for k in map(both.get_partition_key_from_str, context.partition_keys)
        ]
        return [
            {"day": date.fromisoformat(k["when"]), "region": k["where"], "i": number[0]}
            for k in found
        ]

    daily = frame_asset(key, schema, made, both, partition_expr={"when": "day", "where": "region"})
    assert runs.write(daily, "2026-01-01|a", "2026-01-02|b") == ""
    number[0] = 1
    assert runs.write(daily, "2026-01-02|a") == ""
    assert rows(runs.read(daily), "day", "region", "i") == [
        (date(2026, 1, 1), "a", 0),
        (date(2026, 1, 1), "b", 0),
        (date(2026, 1, 2), "a", 1),
        (date(2026, 1, 2), "b", 0),
    ]
    read = runs.read(daily, partitions=LETTERS, partition_key="b")
    assert rows(read, "day", "region") == [(date(2026, 1, 1), "b"), (date(2026, 1, 2), "b")]


def test_days_of_another_zone(runs: Runs, key: list[str]) -> None:
    """Also the day that has 23 hours, and hours where the clock is set back."""
    berlin = ZoneInfo("Europe/Berlin")
    days = dg.DailyPartitionsDefinition("2026-03-28", timezone="Europe/Berlin")
    last = datetime(2026, 3, 29, 23, tzinfo=UTC)
    hours = [last + timedelta(hours=hour) for hour in (-25, -24, -2, -1)]

    def made(context: dg.AssetExecutionContext) -> list[Mapping[str, Any]]:
        window = context.partition_time_window
        return [{"at": at, "i": 0} for at in hours if window.start <= at < window.end]

    daily = frame_asset(key, TIMES, made, days, partition_expr="at")
    for day in ("2026-03-28", "2026-03-29", "2026-03-30", "2026-03-29"):
        assert runs.write(daily, day) == ""
    assert [at.astimezone(UTC) for (at,) in rows(runs.read(daily), "at")] == hours
    read = runs.read(daily, partitions=days, partition_key="2026-03-29")
    assert [at.astimezone(berlin).day for (at,) in rows(read, "at")] == [29, 29]


def test_a_partitioned_asset_must_say_which_rows_are_a_partitions(
    runs: Runs, key: list[str]
) -> None:
    plain = frame_asset(key, TEXTS, two_rows(str), LETTERS)
    said = runs.write(plain, "a")
    assert "nothing says which rows of the table are those of a partition" in said
    assert '{"partition_expr": "day"}' in said
    column = frame_asset(key, TEXTS, two_rows(str), LETTERS, partition_expr="month")
    assert "has no column month; it has day, i" in runs.write(column, "a")
    mapping = frame_asset(key, TEXTS, two_rows(str), LETTERS, partition_expr={"day": "day"})
    assert "must be the name of a column" in runs.write(mapping, "a")
    fine = frame_asset(key, TEXTS, nothing, LETTERS, partition_expr="day")
    assert "this run is of none of them" in runs.write(fine)


def outside(key: list[str], other: str | None) -> dg.AssetsDefinition:
    """An asset with a row of another partition, or of none."""
    given: list[Mapping[str, Any]] = [{"day": "a", "i": 1}, {"day": other, "i": 2}]
    return frame_asset(key, TEXTS, lambda _: given, LETTERS, partition_expr="day")


def test_rows_of_other_partitions_are_refused(runs: Runs, key: list[str]) -> None:
    """Each run would store them once more."""
    for other in ("b", None):
        said = runs.write(outside(key, other), "a")
        outside_of = "outside of the partitions of this run (a)"
        assert outside_of in said or "column day: must not be null" in said
        assert "Traceback" not in said.partition("Stack Trace")[0]
    empty = frame_asset(key, TEXTS, nothing, LETTERS, partition_expr="day")
    assert runs.write(empty, "c") == ""
    assert rows(runs.read(empty), "day", "i") == []


def test_appended_partitions_are_read_as_a_whole_only(runs: Runs, key: list[str]) -> None:
    daily = frame_asset(key, TEXTS, two_rows(str), LETTERS, mode="append")
    for letter in "abb":
        assert runs.write(daily, letter) == ""
    assert len(runs.read(daily)) == 6
    some = {"partition_mapping": dg.SpecificPartitionsPartitionMapping(["b"])}
    with pytest.raises(AssertionError, match="some partitions of it are asked for"):
        runs.read(daily, some)
