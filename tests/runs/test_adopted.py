"""What is known of a target that was rebuilt: of each sink what is its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import devservers
from dataflow_assets import failpoints
from dataflow_assets.contracts import PartSlice, Run, Span
from dataflow_assets.errors import PermanentError, TransientError
from tests.conftest import Topics
from tests.connectors.clickhouse import driver as clickhouse_driver
from tests.connectors.clickhouse.driver import TARGET, chunk, store, write
from tests.connectors.kafka.sinking import SOURCE, Make, Sent, branches
from tests.connectors.postgresql import driver as postgresql_driver


@pytest.fixture
def into(kafka: devservers.Kafka, topic: Topics) -> Iterator[Make]:
    with branches(kafka, topic) as make:
        yield make


@pytest.fixture
def clicks(clickhouse: devservers.ClickHouse, database: str) -> clickhouse_driver.Place:
    place = clickhouse_driver.Place(clickhouse.dsn(database))
    place.make()
    return place


def arm(patch: pytest.MonkeyPatch, point: str) -> None:
    patch.setenv("DATAFLOW_FAILPOINT", f"{point}:raise")
    patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    failpoints.arm(failpoints.from_environment())


def test_a_table_that_the_role_may_not_read_counts_as_filled(
    postgresql: devservers.PostgreSQL, schema: str
) -> None:
    place = postgresql_driver.Place(postgresql.dsn(), schema)
    place.run("CREATE TABLE orders (id bigint)")
    role = f"r_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        connection.execute(f"GRANT CREATE, USAGE ON SCHEMA {schema} TO {role}".encode())
        connection.execute(f"GRANT INSERT ON {schema}.orders TO {role}".encode())
    try:
        owned = postgresql_driver.Place(postgresql.dsn().replace("postgres@", f"{role}@"), schema)
        session = postgresql_driver.start(owned.sink())
        assert session.table.holds_rows()
        session.close()
        with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
            connection.execute(f"GRANT SELECT ON {schema}.orders TO {role}".encode())
        session = postgresql_driver.start(owned.sink())
        assert not session.table.holds_rows()
        session.close()
    finally:
        with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())


def rebuild(place: clickhouse_driver.Place) -> None:
    place.run("create table rebuilt as orders")
    place.run("insert into rebuilt select * from orders")
    place.run("exchange tables rebuilt and orders")
    place.run("drop table rebuilt sync")


@pytest.mark.parametrize("point", ["clickhouse.recorded", "clickhouse.inserted"])
def test_an_insert_in_doubt_cannot_be_adopted(
    clicks: clickhouse_driver.Place, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The new table remembers no token: inserted once more, the rows could be there twice."""
    session = store(clicks.sink(), [{"id": 1, "name": "a"}])
    arm(monkeypatch, point)
    with pytest.raises(TransientError):
        store(clicks.sink(), [{"id": 2, "name": "b"}], session=session)
    failpoints.arm(None)
    rebuild(clicks)
    session = clicks.sink().open(TARGET, Run())
    with pytest.raises(PermanentError, match="nobody knows whether it holds the records 1 to 1 of"):
        session.adopt()
    assert session.checkpoint.target != session.table.identity


def test_parts_that_were_not_begun_are_adopted(clicks: clickhouse_driver.Place) -> None:
    store(clicks.sink(), [{"id": 1, "name": "a"}])
    session = clicks.sink().open(TARGET, Run())
    parts = tuple(PartSlice(f"part:{n}", None, "1", str(n)) for n in range(2))
    span = session.begin(Span(parts))
    ticket = session.ticket()
    write(clicks.sink(), ticket, span.slices[0], chunk(ticket, [{"id": 5, "name": "e"}]))
    rebuild(clicks)
    session = clicks.sink().open(TARGET, Run())
    session.adopt()
    assert session.checkpoint.target == session.table.identity
    span = session.begin(Span(parts))
    assert [piece.empty for piece in span.slices] == [True, False]
    ticket = session.ticket()
    write(clicks.sink(), ticket, span.slices[1], chunk(ticket, [{"id": 6, "name": "f"}]))
    assert clicks.rows("id") == [(1,), (5,), (6,)]


def test_a_topic_that_was_made_again_is_not_emptied_for_the_one_before(
    into: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = into()
    target.put([Sent(b"first")])
    session = target.open()
    arm(monkeypatch, "kafka.empty")
    with pytest.raises(TransientError):
        session.restart({"0": 0}, SOURCE, empty=True)
    failpoints.arm(None)
    admin = AdminClient({"bootstrap.servers": target.kafka.bootstrap})
    admin.delete_topics([target.topic])[target.topic].result(20)
    while admin.create_topics([NewTopic(target.topic, 1)])[target.topic].exception(20):
        pass  # the old one is not gone yet
    producer = Producer({"bootstrap.servers": target.kafka.bootstrap})
    producer.produce(target.topic, b"theirs")
    assert producer.flush(30) == 0
    session = target.open()
    assert target.values() == [b"theirs"]
    assert session.checkpoint.target != session.table.identity
