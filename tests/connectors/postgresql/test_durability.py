"""Targets whose rows a crash of the server takes while their checkpoint stays: refused."""

from __future__ import annotations

import psycopg
import pytest

import devservers
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.errors import PermanentError, TransientError
from tests.connectors.postgresql.driver import Place, start, store

ERRORS = "(id text, error jsonb, original_message json)"
PARTITIONED = (
    "CREATE TABLE orders (id int) PARTITION BY LIST (id); "
    "CREATE TABLE one PARTITION OF orders FOR VALUES IN (1)"
)
PARTS = ("dataflow_checkpoint", "dataflow_checkpoint_partition", "dataflow_rejected")


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    return Place(postgresql.dsn(), schema)


def test_an_unlogged_table_is_refused_with_what_to_run(place: Place) -> None:
    place.run("CREATE UNLOGGED TABLE orders (id int)")
    with pytest.raises(PermanentError, match=r"unlogged table.*run: ALTER TABLE .*orders SET LOG"):
        start(place.sink())
    place.run("ALTER TABLE orders SET LOGGED")
    store(place.sink(), [{"id": 1}]).close()
    assert place.rows() == [(1,)]


@pytest.mark.parametrize("depth", [1, 2])
def test_an_unlogged_partition_is_refused_too(place: Place, depth: int) -> None:
    place.run("CREATE TABLE orders (id int) PARTITION BY LIST (id)")
    above = "orders"
    if depth == 2:
        place.run("CREATE TABLE middle PARTITION OF orders DEFAULT PARTITION BY LIST (id)")
        above = "middle"
    start(place.sink()).close()
    place.run(f"CREATE UNLOGGED TABLE part PARTITION OF {above} DEFAULT")
    with pytest.raises(PermanentError, match="part is an unlogged table"):
        start(place.sink())


def test_a_table_that_is_only_inherited_from_takes_rows(place: Place) -> None:
    place.run("CREATE TABLE orders (id int); CREATE UNLOGGED TABLE child () INHERITS (orders)")
    store(place.sink(), [{"id": 1}]).close()
    assert place.rows("id", "ONLY orders") == [(1,)]


@pytest.mark.parametrize(
    ("made", "change"),
    [
        ("CREATE TABLE orders (id int)", "ALTER TABLE orders SET UNLOGGED"),
        (PARTITIONED, "CREATE UNLOGGED TABLE other PARTITION OF orders DEFAULT"),
    ],
    ids=["table", "partition"],
)
def test_a_table_that_stops_to_be_logged_stops_the_flow(
    place: Place, made: str, change: str
) -> None:
    place.run(made)
    session = store(place.sink(), [{"id": 1}])
    place.run(change)
    with pytest.raises(TransientError, match="was altered while the flow ran"):
        store(place.sink(), [{"id": 1}], session=session)
    session.close()
    with pytest.raises(PermanentError, match="is an unlogged table"):
        start(place.sink())
    assert place.rows() == [(1,)]


@pytest.mark.parametrize("name", PARTS)
def test_the_tables_of_checkpoints_must_be_logged(place: Place, name: str) -> None:
    place.run("CREATE TABLE orders (id int)")
    store(place.sink(), [{"id": 1}]).close()
    place.run(f"ALTER TABLE {name} SET UNLOGGED")
    with pytest.raises(PermanentError, match=f"{name} is an unlogged table.*SET LOGGED"):
        start(place.sink())


def test_an_unlogged_error_table_is_refused(place: Place) -> None:
    place.run(f"CREATE UNLOGGED TABLE orders {ERRORS}")
    with pytest.raises(PermanentError, match="orders is an unlogged table"):
        place.sink().error_store().prepare()


def test_a_temporary_table_is_refused(place: Place) -> None:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE mine (id int)")
        query = "SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema()"
        ((schema,),) = connection.execute(query).fetchall()
        there = Place(place.dsn, schema, "mine")
        with pytest.raises(PermanentError, match="mine is a temporary table"):
            there.sink().error_store().prepare()
        with pytest.raises(PermanentError, match="holds temporary tables"):
            start(there.sink())


def test_what_a_source_is_told_to_be_stored_outlasts_a_crash(place: Place) -> None:
    """A role that does not wait for the disk would lose what the source has forgotten by then."""
    role = f"r{place.schema}"
    place.run(f"CREATE ROLE {role} LOGIN SUPERUSER")
    for given, kept in (("off", "local"), ("remote_apply", "remote_apply")):
        place.run(f"ALTER ROLE {role} SET synchronous_commit TO {given}")
        link = TextLink(place.dsn.replace("//postgres@", f"//{role}@"), "tests")
        assert link.execute("SHOW synchronous_commit") == [(kept,)]
        link.close()
    place.run(f"DROP ROLE {role}")
