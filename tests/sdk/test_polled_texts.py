"""Texts as positions: they may hold anything, in a database of any encoding."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import devservers
from tests.sdk.polled import Polled


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_any_text_can_be_the_border_of_a_part(
    postgresql: devservers.PostgreSQL, schema: str, conforming: str
) -> None:
    words = ["it's", "\\", "\\'", "a\\'; DROP TABLE source; --", "$1", "%s", "\n", "ü\u2028", "{}"]
    polled = Polled(postgresql.dsn(), schema, records=1)
    for name in ("source", "target"):
        polled.run(f'CREATE TABLE {name} (id text COLLATE "C")')
    polled.run(f"ALTER DATABASE postgres SET standard_conforming_strings = {conforming}")
    try:
        for word in words:
            polled.run("INSERT INTO source VALUES (%s)", word)
        polled.drain()
        polled.run("INSERT INTO source VALUES (%s)", "\U0001f600")
        polled.drain()
    finally:
        polled.run("ALTER DATABASE postgres RESET standard_conforming_strings")
    assert [word for (word,) in polled.rows(order='id COLLATE "C"')] == [*sorted(words), "😀"]


@pytest.fixture
def latin(postgresql: devservers.PostgreSQL) -> Iterator[Polled]:
    """In a database whose texts are not stored as UTF-8."""
    create = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(create)
        polled = Polled(postgresql.dsn("latin"), "public", records=1)
        yield polled
        connection.execute("DROP DATABASE latin WITH (FORCE)")


def test_a_database_of_another_encoding(latin: Polled) -> None:
    words = ["e", "z", "é", "ÿ"]
    for name in ("source", "target"):
        latin.run(f"CREATE TABLE {name} (id text)")
    for word in words:
        latin.run("INSERT INTO source VALUES (%s)", word)
        latin.drain()
    stored = latin.run("SELECT id, octet_length(id) FROM target ORDER BY id")
    assert stored == [(word, 1) for word in sorted(words)]
