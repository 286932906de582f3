"""Sessions of many flows share the few links of a process; no takeover ends a neighbour's."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import psycopg
import pytest

import devservers
from dataflow_assets.connectors.postgresql import pool
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.contracts import OffsetSlice, Run, SinkSession, Span
from dataflow_assets.errors import Locked, TransientError
from tests.connectors.postgresql.driver import SOURCE, TARGET, Place, start

FLOWS = 150
NAMES = "SELECT application_name FROM pg_stat_activity WHERE usename = %s"


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Iterator[Place]:
    """By a role of its own, whose connections are this test's alone, and which may have only few.

    The others of the server belong to other tests.
    """
    role = f"role_{uuid.uuid4().hex[:12]}"
    owner = Place(postgresql.dsn(), schema)
    owner.run(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT {pool.MOST}")
    owner.run(f"GRANT ALL ON SCHEMA {schema} TO {role}")
    yield Place(postgresql.dsn().replace("postgres@", f"{role}@"), schema)
    _forget(role)
    owner.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def _forget(role: str) -> None:
    for (_, connection, _), kept in [*pool._pools.items()]:
        if role in connection:
            kept.close()


def _role(place: Place) -> str:
    return place.dsn.split("//")[1].split("@")[0]


def _names(place: Place, postgresql: devservers.PostgreSQL) -> list[str]:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        return [name for (name,) in connection.execute(NAMES, [_role(place)])]


def _create(place: Place, postgresql: devservers.PostgreSQL) -> None:
    """The role has all its connections then: a server ends one a moment after the client."""
    place.run("CREATE TABLE orders (id bigint)")
    until = time.monotonic() + 30
    while _names(place, postgresql):
        assert time.monotonic() < until


def _ended(place: Place, postgresql: devservers.PostgreSQL) -> int:
    query = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        return len(connection.execute(query, [_role(place)]).fetchall())


def test_a_hundred_and_fifty_flows_share_eight_connections(
    place: Place, postgresql: devservers.PostgreSQL
) -> None:
    _create(place, postgresql)

    def opened(number: int) -> SinkSession:
        target = replace(TARGET, flow=f"shop/orders-{number}")
        session = place.sink().open(target, Run(f"r{number}", "h1", 1))
        session.restart({"0": 0}, "t1")
        return session

    def passed(session: SinkSession) -> int | str | None:
        span = session.begin(Span((OffsetSlice("0", 0, 7), OffsetSlice("1", 0, 3))))
        assert session.finish(span, [], SOURCE).positions == {"0": 7, "1": 3}
        return session.checkpoint.positions["0"]

    with ThreadPoolExecutor(40) as threads:
        sessions = [*threads.map(opened, range(FLOWS))]
        assert [*threads.map(passed, sessions)] == [7] * FLOWS
    # The role may have no more than that: one more would have failed.
    assert _names(place, postgresql) == [pool.NOBODY] * len(_names(place, postgresql))
    assert 1 <= len(_names(place, postgresql)) <= pool.MOST
    assert {session.checkpoint.epoch for session in sessions} == {1}


def test_a_link_ended_while_it_waits_is_replaced(
    place: Place, postgresql: devservers.PostgreSQL
) -> None:
    place.run("CREATE TABLE orders (id bigint)")
    session = start(place.sink())
    assert _ended(place, postgresql) == 1
    session.restart({"0": 5}, "t1")
    assert _ended(place, postgresql) == 1
    assert session.table.holds_rows() is False
    assert session.checkpoint.positions == {"0": 5}


def test_a_link_that_works_has_the_flows_name_and_one_that_waits_has_none(
    place: Place, postgresql: devservers.PostgreSQL
) -> None:
    with pool.transaction(place.dsn, "dataflow:abc:1"):
        assert _names(place, postgresql) == ["dataflow:abc:1"]
    assert _names(place, postgresql) == [pool.NOBODY]
    with pool.lend(place.dsn):
        assert _names(place, postgresql) == [pool.NOBODY]
    link = pool.take(place.dsn, "text", "dataflow:abc:2")
    assert _names(place, postgresql) == ["dataflow:abc:2"]
    link.execute("ROLLBACK")
    pool.give(place.dsn, "text", link)
    assert _names(place, postgresql) == [pool.NOBODY]


def test_a_link_in_the_middle_of_something_is_closed(
    place: Place, postgresql: devservers.PostgreSQL
) -> None:
    with (
        pytest.raises(PostgresqlFailure, match="division by zero"),
        pool.transaction(place.dsn, "x") as link,
    ):
        link.execute("SELECT 1 / 0")
    assert not link.at_rest
    open_ = pool.take(place.dsn, "text", "x")
    pool.give(place.dsn, "text", open_)
    with pool.lend(place.dsn) as fresh:
        assert fresh not in (link, open_)
    assert len(_names(place, postgresql)) == 1


def test_a_takeover_leaves_the_links_of_neighbours_alone(
    place: Place, postgresql: devservers.PostgreSQL
) -> None:
    """Every flow is taken over again and again while its neighbours use the same links."""
    _create(place, postgresql)
    problems: list[BaseException] = []

    def work(number: int) -> None:
        target = replace(TARGET, flow=f"shop/orders-{number}")
        try:
            for turn in range(15):
                session = place.sink().open(target, Run(f"r{turn}"))
                session.restart({"0": 0}, "t1")
                assert session.checkpoint.epoch == turn + 1
        except BaseException as error:  # noqa: BLE001 - told by the test
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_who_waits_too_long_is_told_why(
    place: Place, monkeypatch: pytest.MonkeyPatch, postgresql: devservers.PostgreSQL
) -> None:
    monkeypatch.setattr(pool, "PATIENCE", 0.2)
    freed = threading.Event()

    def hold() -> None:
        with pool.lend(place.dsn):
            freed.wait(20)

    holders = [threading.Thread(target=hold) for _ in range(pool.MOST)]
    for holder in holders:
        holder.start()
    deadline = time.monotonic() + 10
    while len(_names(place, postgresql)) < pool.MOST and time.monotonic() < deadline:
        time.sleep(0.05)
    sentence = r"all 8 connections of this process to 127\.0\.0\.1/postgres were busy for 0\.2 sec"
    with pytest.raises(TransientError, match=sentence), pool.lend(place.dsn):
        pass
    freed.set()
    for holder in holders:
        holder.join()
    with pool.lend(place.dsn) as link:
        assert link.execute("SELECT 1") == [(1,)]


def test_links_that_nobody_wants_are_closed(
    place: Place, monkeypatch: pytest.MonkeyPatch, postgresql: devservers.PostgreSQL
) -> None:
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.3)
    with pool.lend(place.dsn):
        pass
    assert len(_names(place, postgresql)) == 1
    deadline = time.monotonic() + 10
    while _names(place, postgresql) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _names(place, postgresql) == []


def test_sinks_do_not_wait_for_sources(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PATIENCE", 0.2)
    server = place.dsn.replace(f"{_role(place)}@", "postgres@")
    with ExitStack() as plans:
        for _ in range(pool.MOST):
            plans.enter_context(pool.lent_to_source(server))
        with pytest.raises(TransientError, match="all 8 connections of this process"):
            plans.enter_context(pool.lent_to_source(server))
        with pool.transaction(server, "dataflow:abc:1") as link:
            assert link.execute("SELECT 1") == [(1,)]


def test_a_writer_gives_up_a_lock_and_says_how_to_find_who_holds_it(
    place: Place, postgresql: devservers.PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver's other statements, such as those that make a slot, have their longer time."""
    monkeypatch.setattr(pool, "LOCK_SECONDS", 1)
    place.run("CREATE TABLE t (id int)")
    with ExitStack() as stack:
        other = stack.enter_context(psycopg.connect(postgresql.dsn()))
        other.execute(f'LOCK TABLE "{place.schema}".t IN EXCLUSIVE MODE'.encode())
        link = pool.take(place.dsn, "text", "dataflow-test")
        stack.callback(link.close)
        with pytest.raises(PostgresqlFailure) as raised:
            link.execute(f'INSERT INTO "{place.schema}".t VALUES (1)')
    error = raised.value.error("writing to t")
    assert isinstance(error, Locked)
    assert "pg_locks" in str(error)
    with pool.lend(place.dsn) as link:
        assert link.execute("SHOW lock_timeout") == [("30s",)]
