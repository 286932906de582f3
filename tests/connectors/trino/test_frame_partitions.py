"""Assets with partitions in a table of Trino: one statement replaces the rows of a run."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.frames.read import read
from dataflow_assets.connectors.trino.frames.write import write
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_partitions import Dimension, Partitions, Window
from tests.connectors.trino.driver import execute
from tests.frames import local_frame

pytestmark = pytest.mark.heavy

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
DATES = pa.schema([("day", pa.date32()), ("i", pa.int32())])
TIMES = pa.schema([("day", pa.timestamp("us", "UTC")), ("i", pa.int32())])
CLOCKS = pa.schema([("day", pa.timestamp("us")), ("i", pa.int32())])
TEXTS = pa.schema([("day", pa.string()), ("i", pa.int32())])


@pytest.fixture
def daily(trino: devservers.Trino, trino_schema: str) -> TrinoSink:
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "daily"}
    return TrinoSink.model_validate(config)


def days(*numbers: int) -> Partitions:
    """These days of January, counted from 0."""
    starts = [FIRST + timedelta(days=number) for number in numbers]
    windows = tuple(Window(start, start + timedelta(days=1)) for start in starts)
    keys = tuple(start.date().isoformat() for start in starts)
    return Partitions(((Dimension("day", keys, windows),),))


def value(schema: pa.Schema, number: int) -> Any:
    """The last moment of a day, or the day."""
    last = FIRST + timedelta(days=number + 1) - timedelta(microseconds=1)
    kind = schema.field("day").type
    if pa.types.is_timestamp(kind):
        return last if kind.tz else last.replace(tzinfo=None)
    return last.date() if pa.types.is_date(kind) else last.date().isoformat()


def text(schema: pa.Schema, number: int) -> str:
    """The same as it is shown; a clock without a zone is read as one of UTC."""
    return str(value(schema, number)).removesuffix("+00:00")


def stored(sink: TrinoSink, engine: SparkSession, only: Partitions | None = None) -> list[Any]:
    with ExitStack() as held:
        rows = read(sink, engine, None, held, only).toArrow().to_pylist()
    return sorted((str(row["day"]).removesuffix("+00:00"), row["i"]) for row in rows)


@pytest.mark.parametrize(
    ("kinds", "many"),
    [(DATES, 30), (TIMES, 8), (CLOCKS, 8), (TEXTS, 8)],
    ids=["d", "t", "c", "s"],
)
def test_a_backfill_of_many_days(
    daily: TrinoSink, engine: SparkSession, kinds: pa.Schema, many: int
) -> None:
    def put(numbers: Sequence[int], rows: int) -> None:
        given = [{"day": value(kinds, n), "i": i} for n in numbers for i in range(rows)]
        write(daily, local_frame(given, kinds, engine), "overwrite", (), days(*numbers))

    put(range(many), 2)
    put([3], 1)
    put([4], 0)
    put([5], 2)
    counts = {n: {3: 1, 4: 0}.get(n, 2) for n in range(many)}
    every = [(n, text(kinds, n), i) for n in counts for i in range(counts[n])]
    assert stored(daily, engine) == [(day, i) for _, day, i in every]
    some = [(day, i) for n, day, i in every if n in {2, 3, 7}]
    assert stored(daily, engine, days(2, 3, 7)) == some


def test_rows_outside_and_keys_with_null_are_refused(
    daily: TrinoSink, engine: SparkSession
) -> None:
    rows = [{"day": date(2026, 1, 1), "i": 1}, {"day": date(2026, 1, 2), "i": 2}]
    with pytest.raises(
        PermanentError, match=r"outside of .* \(2026-01-01\), such as day = 2026-01-02"
    ):
        write(daily, local_frame(rows, DATES, engine), "overwrite", (), days(0))
    nulls = [{"day": date(2026, 1, 1), "i": None}]
    with pytest.raises(PermanentError, match="null in the key"):
        write(daily, local_frame(nulls, DATES, engine), "upsert", ("i",))
    doubled = [*rows, {"day": date(2026, 1, 3), "i": 2}]
    with pytest.raises(PermanentError, match="several rows of one key"):
        write(daily, local_frame(doubled, DATES, engine), "upsert", ("i",))
    assert stored(daily, engine) == []


def test_two_that_replace_at_once_leave_the_rows_of_one(
    daily: TrinoSink, engine: SparkSession
) -> None:
    write(daily, local_frame([], DATES, engine), "overwrite", (), days(0))

    def put(i: int) -> None:
        rows = [{"day": date(2026, 1, 1), "i": i} for _ in range(3)]
        write(daily, local_frame(rows, DATES, engine), "overwrite", (), days(0))

    with ThreadPoolExecutor(2) as both:
        list(both.map(put, [1, 2]))
    rows = stored(daily, engine)
    assert len(rows) == 3
    assert len(set(rows)) == 1


def test_a_table_that_is_overwritten_keeps_its_layout(
    daily: TrinoSink, engine: SparkSession, trino: devservers.Trino, trino_schema: str
) -> None:
    table = f"lake.{trino_schema}.daily"
    columns = "day date NOT NULL COMMENT 'of the sale', i integer"
    layout = "partitioning = ARRAY['day'], sorted_by = ARRAY['i'], format = 'ORC'"
    execute(trino, f"CREATE TABLE {table} ({columns}) COMMENT 'sales' WITH ({layout})")
    made = execute(trino, f"SHOW CREATE TABLE {table}")
    for day in (1, 2):
        rows = [{"day": date(2026, 1, day), "i": i} for i in range(3)]
        write(daily, local_frame(rows, DATES, engine), "overwrite", ())
        assert stored(daily, engine) == [(f"2026-01-0{day}", i) for i in range(3)]
    write(daily, local_frame([], DATES, engine), "overwrite", ())
    assert stored(daily, engine) == []
    assert execute(trino, f"SHOW CREATE TABLE {table}") == made


def test_an_overwrite_compares_no_stored_row_with_each_new_one(
    daily: TrinoSink, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join without criteria takes the product of both."""
    plans, run = list[str](), TrinoClient.run

    def explained(client: TrinoClient, text: str) -> int:
        if text.startswith("MERGE"):
            plans.append(str(client.value(f"EXPLAIN {text}")))
        return run(client, text)

    monkeypatch.setattr(TrinoClient, "run", explained)
    for number in (1, 2):
        rows: list[dict[str, Any]] = [
            {"day": None, "i": number},
            {"day": date(2026, 1, number), "i": None},
        ]
        write(daily, local_frame(rows, DATES, engine), "overwrite", ())
    assert len(stored(daily, engine)) == 2
    assert "Join[criteria = " in plans[-1]
