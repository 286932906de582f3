"""One look at many sources: whose answer is whose, and who waits for whom."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.source import current_topic
from dataflow_assets.connectors.postgresql import PostgresqlSource
from dataflow_assets.contracts import Source, SourceSession
from dataflow_assets.errors import DataflowError
from dataflow_assets.runs import news, questions
from dataflow_assets.runs.news import Looks, OpenSource, SourceEnd
from devservers import Proxy
from tests.clock import Clock
from tests.conftest import Topics

Declare = Callable[[str], KafkaSource]


@pytest.fixture
def on_kafka(kafka: devservers.Kafka) -> Declare:
    return lambda name: KafkaSource(brokers=(kafka.bootstrap,), topic=name)


@pytest.fixture
def table(postgresql: devservers.PostgreSQL, schema: str) -> str:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.t (id int PRIMARY KEY, updated_at timestamptz)")
    return f"{schema}.t"


@pytest.fixture
def proxy(postgresql: devservers.PostgreSQL) -> Iterator[Proxy]:
    with Proxy(int(_port(postgresql))) as proxy:
        yield proxy


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """By which a server is silent, and a table due again."""
    found = Clock()
    for module in (news, questions):
        monkeypatch.setattr(module, "time", found)
    return found


def polled(dsn: str, table: str, seconds: int) -> PostgresqlSource:
    config = {"connectionString": dsn, "table": table, "pollInterval": seconds}
    return PostgresqlSource.model_validate(config)


def opened(source: Source, flow: str) -> OpenSource:
    return OpenSource(source, source.open(flow))


def test_a_missing_and_a_recreated_topic_are_their_own_errors(
    kafka: devservers.Kafka, topic: Topics, on_kafka: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, other = topic(3), topic()
    sources = {"good": on_kafka(good), "other": on_kafka(other), "none": on_kafka("there-is-none")}
    sessions = KafkaSource.open_together(sources)
    while isinstance(sessions["other"], DataflowError):  # it was made a moment ago
        sessions = KafkaSource.open_together(sources)
    assert "topic there-is-none does not exist" in str(sessions.pop("none"))
    opened = ((flow, one) for flow, one in sessions.items() if isinstance(one, SourceSession))
    known = {flow: OpenSource(sources[flow], one) for flow, one in opened}
    _recreate(AdminClient({"bootstrap.servers": kafka.bootstrap}), other)
    monkeypatch.setattr(current_topic, "SECONDS", 0)
    found = Looks().ends_together(known, 20)
    while "does not exist" in str(found["other"]):  # the broker has just made it again
        found = Looks().ends_together(known, 20)
    assert _ends(found["good"]) == {"0": 0, "1": 0, "2": 0}
    assert isinstance(found["other"], DataflowError)
    assert "recreated" in str(found["other"])
    for one in known.values():
        one.session.close()


def test_a_silent_server_holds_up_nobody_and_is_an_error_of_its_own_flow(
    topic: Topics,
    on_kafka: Declare,
    postgresql: devservers.PostgreSQL,
    table: str,
    proxy: Proxy,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind = postgresql.dsn().replace(_port(postgresql), str(proxy.port))
    silent = polled(behind, table, 0)
    looks = Looks(silence=3)
    open_ = {"good": opened(on_kafka(topic()), "good"), "silent": opened(silent, "silent")}
    assert set(_patiently(looks, open_)) == {"good", "silent"}
    proxy.slow(300)
    first = _waited(looks, open_, monkeypatch)
    pending = {future for future in first if not future.done()}
    assert len(pending) == 1, "the other has not answered yet"
    assert not pending & _waited(looks, open_, monkeypatch), "only the first look waits for it"
    clock.now += 2.9
    found = looks.ends_together(open_)
    assert set(found) == {"good"}
    assert _ends(found["good"]) == {"0": 0}
    clock.now += 0.2
    found = looks.ends_together(open_)
    assert "no answer for 3 seconds" in str(found["silent"])
    assert looks.ends_together(open_)["silent"] is found["silent"], "its session is not asked"
    proxy.restore()
    again = open_ | {"silent": opened(silent, "silent")}
    assert isinstance(_patiently(looks, again)["silent"], SourceEnd), "another session is"
    for one in again.values():
        one.session.close()


def test_a_locked_table_holds_up_no_other_of_its_database(
    postgresql: devservers.PostgreSQL, schema: str, table: str, clock: Clock
) -> None:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.other (LIKE {table})")
    dsn = postgresql.dsn()
    sources = {"locked": polled(dsn, table, 0), "other": polled(dsn, f"{schema}.other", 0)}
    open_ = {flow: opened(source, flow) for flow, source in sources.items()}
    looks = Looks(silence=3)
    with psycopg.connect(dsn) as connection:
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        assert set(_patiently(looks, open_, {"other"})) == {"other"}
        clock.now += 3
        found = looks.ends_together(open_)
        again = _patiently(looks, open_)
    assert "no answer for 3 seconds" in str(found["locked"])
    assert isinstance(found["other"], SourceEnd)
    assert isinstance(again["other"], SourceEnd)
    for one in open_.values():
        one.session.close()


def test_a_table_is_not_asked_more_often_than_its_interval_says(
    postgresql: devservers.PostgreSQL, table: str, clock: Clock
) -> None:
    source = polled(postgresql.dsn(), table, 2)
    looks = Looks()
    with closing(source.open("polled")) as session, psycopg.connect(postgresql.dsn()) as connection:
        open_ = {"polled": OpenSource(source, session)}
        first = _patiently(looks, open_)
        connection.execute(f"INSERT INTO {table} VALUES (1, '2020-01-01')")
        connection.commit()
        clock.now += 1.9
        assert looks.ends_together(open_) == first
        clock.now += 0.2
        assert "2020-01-01" in str(_patiently(looks, open_))


def _patiently(
    looks: Looks, sources: dict[str, OpenSource], some: Collection[str] = ()
) -> dict[str, object]:
    """The first answer of all of them, or of some, on a machine that may be busy."""
    deadline = time.monotonic() + 60
    while not set(found := looks.ends_together(sources)) >= set(some or sources):
        assert time.monotonic() < deadline
    return dict(found)


def _waited(
    looks: Looks, sources: dict[str, OpenSource], monkeypatch: pytest.MonkeyPatch
) -> set[Future[Any]]:
    """The questions that one look waits for, here until `good` is known."""
    waited = set[Future[Any]]()

    def noted(futures: Iterable[Future[Any]], _patience: float) -> None:
        waited.update(futures)

    with monkeypatch.context() as patch:
        patch.setattr(news, "wait_for", noted)
        while "good" not in looks.ends_together(sources):
            time.sleep(0.01)
    return waited


def _ends(found: object) -> object:
    assert isinstance(found, SourceEnd), found
    return dict(found.ends)


def _port(postgresql: devservers.PostgreSQL) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(postgresql.dsn())["port"])


def _recreate(admin: AdminClient, name: str) -> None:
    admin.delete_topics([name])[name].result(20)
    deadline = time.monotonic() + 20
    while True:
        try:
            admin.create_topics([NewTopic(name, 1)])[name].result(20)
        except KafkaException:  # the old one is not gone yet
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return
