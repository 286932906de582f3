"""`table: truncate` of ClickHouse: a driver that comes late takes out no row of a newer one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import devservers
from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse import client as clients
from dataflow_assets.connectors.clickhouse import shared_client
from dataflow_assets.contracts import Run
from dataflow_assets.errors import PermanentError, TakenOver, TransientError
from tests.connectors.clickhouse.driver import TARGET, Place, start, store
from tests.contract.test_recreated import held

OLD = [{"id": 1, "name": "a"}, {"id": 25, "name": "b"}]
NEW = [{"id": 7, "name": "g"}, {"id": 38, "name": "h"}]
PARTITIONED = "partition by intDiv(id, 10) order by id"


@pytest.fixture
def place(clickhouse: devservers.ClickHouse, database: str) -> Place:
    found = Place(clickhouse.dsn(database))
    found.make(rest=PARTITIONED)
    return found


@pytest.fixture
def ordinary(clickhouse: devservers.ClickHouse, database: str) -> Iterator[str]:
    """A database whose tables have no ids, as those of old servers."""
    name, settings = f"{database}_old", {"allow_deprecated_database_ordinary": 1}
    with clients.connect(clickhouse.dsn(database), "test") as client:
        client.command(f"CREATE DATABASE {name} ENGINE = Ordinary", settings=settings)
        yield clickhouse.dsn(name)
        client.command(f"DROP DATABASE {name}")


def test_tables_without_ids_are_not_taken_for_one(ordinary: str) -> None:
    place, beside = Place(ordinary), Place(ordinary, "beside")
    place.make()
    beside.make()
    other = replace(TARGET, flow="shop/others", branch="clickhouse:beside")
    same = replace(TARGET, flow="shop/again")
    with closing(start(place.sink())) as one, closing(start(beside.sink(), target=other)):
        store(place.sink(), OLD, session=one)
        one.restart({"0": 0}, "t1", empty=True)
        assert place.rows() == []
        with (
            closing(start(place.sink(), target=same)),
            pytest.raises(PermanentError, match="take out the rows of shop/again:"),
        ):
            one.restart({"0": 0}, "t1", empty=True)


def exits(place: Place) -> list[str]:
    names = [name for (name,) in place.run("show tables")]
    return [name for name in names if name.startswith("dataflow_exit")]


class Late(threading.Thread):
    """A driver of its own; `error` is what ended it."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self.work = work
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error


@contextmanager
def stopped(
    monkeypatch: pytest.MonkeyPatch, folder: Path, point: str, work: Callable[[], object]
) -> Iterator[Late]:
    """A driver that stops where it first reaches the point, and goes on when the block ends."""
    with held(monkeypatch, folder, point) as wait:
        failpoints.arm(failpoints.from_environment())
        late = Late(work)
        wait(late)
        yield late
    late.join(60)
    failpoints.arm(None)


@pytest.mark.parametrize("point", ["clickhouse.restarting", "clickhouse.emptying"])
def test_a_rewind_that_comes_late_leaves_the_newer_drivers_rows(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    session = store(place.sink(), OLD)

    def rewind() -> None:
        session.restart({"0": 0}, "t1", empty=True)

    with stopped(monkeypatch, tmp_path, point, rewind) as late:
        newer = store(place.sink(), NEW)
        assert newer.checkpoint.positions == {"0": 2}
        assert place.rows() == [(7, "g"), (38, "h")]
    assert isinstance(late.error, TakenOver), late.error
    assert place.rows() == [(7, "g"), (38, "h")]
    assert exits(place) == []


def test_of_two_drivers_that_find_a_table_half_emptied_the_older_one_touches_nothing(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store(place.sink(), OLD)
    monkeypatch.setenv("DATAFLOW_FAILPOINT", "clickhouse.emptying:raise")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    failpoints.arm(failpoints.from_environment())
    with pytest.raises(TransientError):
        session.restart({"0": 0}, "t1", empty=True)

    def opened() -> None:
        place.sink().open(TARGET, Run("r2", "h1", 1))

    with stopped(monkeypatch, tmp_path, "clickhouse.emptying", opened) as late:
        store(place.sink(), NEW)
        assert place.rows() == [(7, "g"), (38, "h")]
    assert isinstance(late.error, TakenOver), late.error
    assert place.rows() == [(7, "g"), (38, "h")]
    assert exits(place) == []


def test_a_statement_on_its_way_is_waited_for(place: Place) -> None:
    """Dropping an exit ends no statement that uses it: what comes next must not overtake that."""
    from dataflow_assets.connectors.clickhouse.sink import empty_table

    place.run("create table dataflow_exit_x as orders")
    place.run("insert into dataflow_exit_x select number, 'n' from numbers(2)")
    slow = "select sleepEachRow(1) from dataflow_exit_x settings max_block_size = 1"
    using = Late(lambda: place.run(slow))
    client = clients.connect(place.dsn, "test")
    while not place.run("select 1 from system.processes where query like 'select sleepEachRow%'"):
        assert using.is_alive()
    empty_table.drop(client, place.dsn.rsplit("/", 1)[1], "dataflow_exit_x")
    assert not place.run("select 1 from system.processes where query like 'select sleepEachRow%'")
    using.join(10)
    assert using.error is None
    client.close()


def test_an_emptied_table_is_the_same_table(place: Place) -> None:
    """With its views, its settings, and what a person has granted on it."""
    place.run("create table seen (id Int64) engine = MergeTree order by id")
    place.run("create materialized view looking to seen as select id from orders")
    session = store(place.sink(), OLD)
    before = place.run("select uuid, create_table_query from system.tables where name = 'orders'")
    session.restart({"0": 0}, "t1", empty=True)
    assert place.rows() == []
    store(place.sink(), NEW, session=session)
    after = place.run("select uuid, create_table_query from system.tables where name = 'orders'")
    assert before == after
    assert place.rows("id", "seen") == [(1,), (7,), (25,), (38,)]
    assert exits(place) == []


def test_a_table_that_was_made_again_is_not_emptied_for_the_one_before(place: Place) -> None:
    session = store(place.sink(), OLD)
    point = "clickhouse.restarting:raise"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATAFLOW_FAILPOINT", point)
        patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
        failpoints.arm(failpoints.from_environment())
        with pytest.raises(TransientError):
            session.restart({"0": 0}, "t1", empty=True)
        failpoints.arm(None)
    place.run("drop table orders sync")
    place.make()
    place.run("insert into orders values (99, 'theirs')")
    session = place.sink().open(TARGET, Run())
    assert place.rows() == [(99, "theirs")]
    assert session.checkpoint.target != session.table.identity


def test_rows_that_the_server_would_not_drop_stay_where_they_are(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drops no table of more than 50 GB, unless it is told to."""
    store(place.sink(), OLD)

    def bounded(*given: Any) -> Any:
        client = clients.connect(*given)
        client.set_client_setting("max_table_size_to_drop", 1)
        return client

    with monkeypatch.context() as patch:
        patch.setattr(shared_client, "_shared", {})
        patch.setattr(shared_client, "connect", bounded)
        session = place.sink().open(TARGET, Run())
        with pytest.raises(PermanentError, match=r"max_table_size_to_drop.*Nothing was changed"):
            session.restart({"0": 0}, "t1", empty=True)
        place.sink().open(TARGET, Run()).close()
    assert (len(place.rows()), exits(place)) == (2, [])
    place.sink().open(TARGET, Run()).restart({"0": 0}, "t1", empty=True)
    assert (place.rows(), exits(place)) == ([], [])
