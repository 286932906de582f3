"""Columns with a collation of their own: positions are compared as the rows are ordered."""

from __future__ import annotations

import pytest

import devservers
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
