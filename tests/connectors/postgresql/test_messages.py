"""What a person reads whose manifest names a table, a column or a schema that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

import devservers
from dataflow_assets.connectors.postgresql import connection_errors
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.connectors.postgresql.source.source import PostgresqlSource
from dataflow_assets.contracts import Run, Target
from dataflow_assets.errors import PermanentError


@pytest.fixture
def dsn(postgresql: devservers.PostgreSQL) -> Iterator[str]:
    """A database with the table public.orders, whose key is `id`."""
    name = f"messages_{uuid4().hex[:8]}"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    with psycopg.connect(postgresql.dsn(), dbname=name, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, total int)")
    yield psycopg.conninfo.make_conninfo(postgresql.dsn(), dbname=name)
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


SINKS = [
    (
        {"table": "public.Orders"},
        r"table public\.Orders does not exist at .*; did you mean public\.orders\?",
    ),
    (
        {"table": "public.order"},
        r"table public\.order does not exist at .*; did you mean public\.orders\?",
    ),
    (
        {"table": "shop.orders"},
        r'schema shop does not exist: correct table, or run: CREATE SCHEMA "shop"$',
    ),
    (
        {"table": "orders", "upsertMode": True, "conflictKey": "ID"},
        r"conflictKey: table orders has no column ID; did you mean id\?",
    ),
    (
        {"table": "orders", "upsertMode": True, "conflictKey": "order_id"},
        r"conflictKey: table orders has no column order_id; it has id, total",
    ),
]


@pytest.mark.parametrize(("options", "said"), SINKS)
def test_a_sink_says_what_was_probably_meant(
    dsn: str, options: dict[str, object], said: str
) -> None:
    sink = PostgresqlSink.model_validate({"connectionString": dsn, **options})
    with pytest.raises(PermanentError, match=said):
        opened(sink)


def opened(sink: PostgresqlSink) -> None:
    """As a run does it, up to the first micro-batch."""
    with closing(sink.open(Target("default/a", "main", "", "t"), Run())) as session:
        assert session.table.schema() is None
        session.table.create(pa.schema([]))


def test_a_source_says_what_was_probably_meant(dsn: str) -> None:
    source = PostgresqlSource.model_validate({"connectionString": dsn, "table": "shop.ORDERS"})
    with pytest.raises(PermanentError, match=r"does not exist: .*; did you mean public\.orders\?"):
        source.open("default/a")


def test_no_server_is_one_line() -> None:
    with pytest.raises(psycopg.Error) as caught:
        psycopg.connect("postgresql://127.0.0.1:1/d")
    assert connection_errors.silence(str(caught.value)) == (
        "Connection refused; check host and port of the connection string"
    )
