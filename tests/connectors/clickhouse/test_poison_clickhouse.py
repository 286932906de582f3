"""A row that ClickHouse refuses, with whatever code, is set aside; what all rows meet stops."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import devservers
from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse.errors import ACCESS_DENIED, ClickhouseFailure
from dataflow_assets.connectors.clickhouse.sink import trial_table
from dataflow_assets.connectors.clickhouse.sink.insert import ClickhouseInsert
from dataflow_assets.connectors.clickhouse.sink.trial_table import PREFIX
from dataflow_assets.errors import Defect, PermanentError, TransientError
from tests.connectors.clickhouse.driver import Place, start, store

TABLES = {
    "default": ("id Int64, v Int64 default intDiv(10, id)", "order by id"),
    "materialized": ("id Int64, v Int64 materialized intDiv(10, id)", "order by id"),
    "partition": ("id Int64", "order by id partition by intDiv(10, id)"),
    "order": ("id Int64", "order by intDiv(10, id)"),
    "throw": ("id Int64, v UInt8 materialized throwIf(id = 0, 'no zero')", "order by id"),
    "constraint": ("id Int64, constraint c check intDiv(10, id) < 100", "order by id"),
}


@pytest.fixture
def place(clickhouse: devservers.ClickHouse, database: str) -> Place:
    return Place(clickhouse.dsn(database))


def ids(numbers: list[int]) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


def outcome(place: Place) -> tuple[list[int], list[int]]:
    """The ids in the table, and the offsets of the rejected records."""
    return [row[0] for row in place.rows("id")], [row[0] for row in place.rejected()]


def no_trials_left(place: Place) -> bool:
    return not place.run("show tables like 'dataflow_trial%'")


@pytest.mark.parametrize("table", TABLES)
def test_an_expression_of_the_table_that_fails_at_a_value(place: Place, table: str) -> None:
    place.make(*TABLES[table])
    session = store(place.sink(), ids([1, 0, 2, 0, 3]))
    assert outcome(place) == ([1, 2, 3], [1, 3])
    totals = session.checkpoint.totals
    assert (totals.rows, totals.rejected) == (3, 2)
    assert no_trials_left(place)


@pytest.mark.parametrize("table", TABLES)
def test_such_a_record_alone_in_its_micro_batch(place: Place, table: str) -> None:
    place.make(*TABLES[table])
    store(place.sink(), ids([0]))
    assert outcome(place) == ([], [0])


VIEWS = {
    "into a table": ("", "to seen as select id, intDiv(10, id) as v from orders"),
    "of its own": ("", "engine = Memory as select id, intDiv(10, id) as v from orders"),
    "of another type": ("", "to seen as select id, if(id = 0, 'x', '1') as v from orders"),
    "constraint": (", constraint c check id > 0", "to seen as select id, 1 as v from orders"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_record_that_a_materialized_view_refuses(place: Place, view: str) -> None:
    """It is in neither table: ClickHouse stores it in the first one before the view fails."""
    more, query = VIEWS[view]
    place.make("id Int64")
    place.run(f"create table seen (id Int64, v Int64{more}) engine = MergeTree order by id")
    place.run(f"create materialized view watch {query}")
    session = store(place.sink(), ids([1, 0, 2]))
    assert outcome(place) == ([1, 2], [1])
    assert [row[0] for row in place.rows("id", table="watch")] == [1, 2]
    assert (session.checkpoint.totals.rows, session.checkpoint.totals.rejected) == (2, 1)
    assert no_trials_left(place)
    store(place.sink(), ids([3]), session=session)
    assert outcome(place) == ([1, 2, 3], [1])


def test_a_view_that_is_made_under_a_run_is_noticed_before_anything_is_stored(
    place: Place,
) -> None:
    """Else the rows were in the table before the view fails, and in the view never."""
    place.make("id Int64")
    session = store(place.sink(), ids([5]))
    place.run("create table seen (id Int64, v Int64) engine = MergeTree order by id")
    place.run(
        "create materialized view watch to seen as select id, intDiv(10, id) as v from orders"
    )
    with pytest.raises(TransientError, match="was altered while the flow ran"):
        store(place.sink(), ids([1, 0, 2]), session=session)
    session.close()
    assert place.rows("id") == [(5,)]
    store(place.sink(), ids([1, 0, 2]))
    assert outcome(place) == ([1, 2, 5], [2])
    assert [row[0] for row in place.rows("id", table="watch")] == [1, 2]


def test_a_view_that_refuses_every_record_stops_before_anything_is_stored(place: Place) -> None:
    place.make("id Int64")
    place.run(
        "create materialized view watch engine = MergeTree order by id "
        "as select id, intDiv(10, id - id) as v from orders"
    )
    with pytest.raises(PermanentError, match="orders, partition 0, offset 0: Division by zero"):
        store(place.sink(), ids([1, 2]))
    assert place.rows("id") == []


def test_a_user_who_may_not_insert_into_other_tables_inserts_untried(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    true, denied = ClickhouseInsert._insert, list[str]()

    def insert(
        self: ClickhouseInsert, table: str, rows: pa.Table, settings: dict[str, object]
    ) -> None:
        if table.startswith(PREFIX):
            denied.append(table)
            raise ClickhouseFailure(f"Not enough privileges: INSERT(id) ON {table}", ACCESS_DENIED)
        true(self, table, rows, settings)

    monkeypatch.setattr(ClickhouseInsert, "_insert", insert)
    place.make("id Int64")
    place.run("create materialized view watch engine = Memory as select id from orders")
    store(place.sink(), ids([1, 2, 3]), way="stop")
    assert [row[0] for row in place.rows("id")] == [1, 2, 3]
    assert [row[0] for row in place.rows("id", table="watch")] == [1, 2, 3]
    assert len(denied) == 1
    assert no_trials_left(place)


def test_what_a_killed_process_has_left_is_dropped_once_it_is_old(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.make("id Int64")
    trial, own = "dataflow_trial_0123456789ab", "dataflow_trial_of_mine"
    for name in (trial, f"{trial}_2", "dataflow_defaults_0123456789ab", own):
        place.run(f"create table {name} (id Int64) engine = Null")
    place.run(f"create materialized view {trial}_1 to {trial}_2 as select id from {trial}")
    names = "show tables like 'dataflow_%_%'"
    start(place.sink()).close()
    assert len(place.run(names)) == 6
    monkeypatch.setattr(trial_table, "OLD", 0)
    start(place.sink()).close()
    assert place.run(names) == [("dataflow_ledger",), (own,)]


def test_many_at_the_beginning(place: Place) -> None:
    place.make(*TABLES["materialized"])
    store(place.sink(), ids([*[0] * 100, *range(1, 100)]))
    assert outcome(place) == (list(range(1, 100)), list(range(100)))


def test_what_every_row_meets_stops_with_the_first_of_them(place: Place) -> None:
    place.make("id Int64, v UInt64 materialized intDiv(10, id - id)")
    with pytest.raises(PermanentError, match="orders, partition 0, offset 0: Division by zero"):
        store(place.sink(), ids([1, 2, 3]))
    assert place.rows("id") == []


@pytest.mark.crash
@pytest.mark.parametrize("point", ["clickhouse.refused", "clickhouse.inserted"])
def test_a_crash_behind_the_refusal_stores_every_record_once(
    place: Place, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.make(*TABLES["partition"])
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{point}:raise")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    failpoints.arm(failpoints.from_environment())
    with pytest.raises(TransientError, match=point):
        store(place.sink(), ids([1, 0, 2]))
    failpoints.arm(None)
    store(place.sink(), ids([1, 0, 2]), session=start(place.sink(), run="r2"))
    assert outcome(place) == ([1, 2], [1])


def test_a_mistake_of_our_code_at_one_row(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.make("id Int64")
    break_at(monkeypatch, 0)
    store(place.sink(), ids([1, 0, 2]))
    assert outcome(place) == ([1, 2], [1])
    assert "ArrowInvalid: beyond me" in place.rejected()[0][3]


def test_a_mistake_of_our_code_at_every_row(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.make("id Int64")
    break_at(monkeypatch, 0)
    with pytest.raises(Defect, match="orders, partition 0, offset 0: ArrowInvalid: beyond me"):
        store(place.sink(), ids([0, 0]))


def break_at(monkeypatch: pytest.MonkeyPatch, value: int) -> None:
    """Rows with this id cannot be written by our code."""
    true = ClickhouseInsert._insert

    def insert(
        self: ClickhouseInsert, table: str, rows: pa.Table, settings: dict[str, object]
    ) -> None:
        if value in rows.column("id").to_pylist():
            raise pa.ArrowInvalid("beyond me")
        true(self, table, rows, settings)

    monkeypatch.setattr(ClickhouseInsert, "_insert", insert)
