"""Foreign tables as targets: another server commits their rows, so they are refused."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

import devservers
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.table.table import find
from dataflow_assets.errors import PermanentError
from tests.connectors.postgresql.driver import Place, start


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Iterator[Place]:
    """A schema with tables of a foreign server, which is this one; nothing asks it."""
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        wrapper = sql.Identifier(f"w{schema}")
        connection.execute(sql.SQL("CREATE FOREIGN DATA WRAPPER {}").format(wrapper))
        connection.execute(
            sql.SQL("CREATE SERVER {} FOREIGN DATA WRAPPER {}").format(wrapper, wrapper)
        )
        yield Place(postgresql.dsn(), schema)
        connection.execute(sql.SQL("DROP FOREIGN DATA WRAPPER {} CASCADE").format(wrapper))


def test_a_foreign_table_is_refused_at_open(place: Place) -> None:
    place.run(f'CREATE FOREIGN TABLE orders (id int) SERVER "w{place.schema}"')
    with pytest.raises(PermanentError, match="orders is a foreign table"):
        start(place.sink())


def test_a_foreign_partition_is_refused_too(place: Place) -> None:
    place.run("CREATE TABLE orders (id int) PARTITION BY LIST (id)")
    place.run("CREATE TABLE here PARTITION OF orders FOR VALUES IN (1)")
    start(place.sink()).close()
    place.run(f'CREATE FOREIGN TABLE there PARTITION OF orders DEFAULT SERVER "w{place.schema}"')
    with pytest.raises(PermanentError, match="there is a foreign table"):
        start(place.sink())


def test_a_foreign_table_may_be_read(place: Place) -> None:
    place.run(f'CREATE FOREIGN TABLE orders (id int) SERVER "w{place.schema}"')
    link = TextLink(place.dsn, "tests")
    found = find(link, place.schema, "orders")
    link.close()
    assert found is not None
    assert [column.name for column in found.columns] == ["id"]


def test_error_records_are_not_stored_in_one_either(place: Place) -> None:
    place.run(
        "CREATE FOREIGN TABLE orders (id text, error jsonb, original_message json) "
        f'SERVER "w{place.schema}"'
    )
    with pytest.raises(PermanentError, match="orders is a foreign table"):
        place.sink().error_store().prepare()
