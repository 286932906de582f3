"""Columns with a collation of their own: positions are compared as the rows are ordered."""

from __future__ import annotations

from contextlib import closing

import pytest

import devservers
from dataflow_assets.contracts import Limit
from dataflow_assets.errors import PermanentError
from tests.sdk.polled import Polled

TRACKED = {"changeTrackingColumn": "version"}


@pytest.fixture
def polled(postgresql: devservers.PostgreSQL, schema: str) -> Polled:
    """The database's own collation compares bytes: B comes before a."""
    return Polled(postgresql.dsn(), schema)


def create(polled: Polled, columns: str) -> None:
    for name in ("source", "target"):
        polled.run(f"CREATE TABLE {name} ({columns})")


def found(polled: Polled, column: str = "id") -> list[str]:
    return sorted(str(value) for (value,) in polled.rows(column))


@pytest.mark.parametrize(
    "kind", ["text", "varchar(20)", "name"], ids=["text", "varchar", "catalogue name"]
)
def test_an_order_column(polled: Polled, kind: str) -> None:
    create(polled, f'id {kind} COLLATE "en-x-icu"')
    for id_ in ("a", "B", "C"):
        polled.run("INSERT INTO source VALUES (%s)", id_)
        polled.drain()
        assert id_ in found(polled)


def test_an_order_column_of_a_domain(polled: Polled) -> None:
    polled.run('CREATE DOMAIN word AS text COLLATE "en-x-icu"')
    create(polled, "id word")
    for id_ in ("a", "B", "C"):
        polled.run("INSERT INTO source VALUES (%s)", id_)
        polled.drain()
        assert id_ in found(polled)


def test_a_change_column(polled: Polled) -> None:
    polled.options = TRACKED
    create(polled, 'id int, version text COLLATE "en-x-icu"')
    for at, version in enumerate(("a", "B", "C"), 1):
        polled.run("INSERT INTO source VALUES (%s, %s)", at, version)
        polled.drain()
    assert found(polled, "version") == ["B", "C", "a"]


def test_a_query(polled: Polled) -> None:
    query = f'SELECT id, key COLLATE "en-x-icu" AS version FROM {polled.schema}.source'
    polled.options = {**TRACKED, "query": query}
    polled.run("CREATE TABLE source (id int, key text)")
    polled.run("CREATE TABLE target (id int, version text)")
    for at, version in enumerate(("a", "B", "C"), 1):
        polled.run("INSERT INTO source VALUES (%s, %s)", at, version)
        polled.drain()
    assert found(polled, "version") == ["B", "C", "a"]


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ("id int", "id TYPE text", "were numbers at the checkpoint, and are string now"),
        ("id text", "id TYPE int USING 7", "were string at the checkpoint, and are numbers now"),
        (
            "id int, version timestamp",
            "version TYPE timestamptz",
            "were times, numbers at the checkpoint, and are times with a zone, numbers now",
        ),
    ],
)
def test_columns_that_put_rows_in_another_order_stop_the_flow(
    polled: Polled, before: str, after: str, kinds: str
) -> None:
    """Behind 9 as a text there is no 10: the rows would be passed over in silence."""
    polled.options = TRACKED if "version" in before else {}
    create(polled, before)
    polled.run("INSERT INTO source (id) VALUES ('9')")
    polled.drain()
    with closing(polled.source.open("x")) as session:
        at, span = {"table": polled.position()}, session.plan(session.start(), Limit())
    polled.run(f"ALTER TABLE source ALTER {after}")
    with closing(polled.source.open("x")) as session:
        for ask in (
            lambda: session.lags("table", at["table"], session.end()["table"]),
            lambda: session.plan(at, Limit()),
            lambda: session.lag(at),
            lambda: list(polled.source.batches(span.slices[0], frozenset())),
        ):
            with pytest.raises(PermanentError, match=kinds):
                ask()


def test_a_wider_type_of_the_same_kind_keeps_the_order(polled: Polled) -> None:
    create(polled, "id int, version numeric")
    polled.options = TRACKED
    polled.run("INSERT INTO source VALUES (9, 9)")
    polled.drain()
    polled.run("ALTER TABLE source ALTER id TYPE numeric, ALTER version TYPE bigint")
    polled.run("INSERT INTO source VALUES (10, 10)")
    polled.drain()
    assert found(polled) == ["10", "9"]
