"""A stream, and the databases into which pipelines write it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import clickhouse_connect
import psycopg
import pytest

import devservers
from tests.connectors.kinesis.driver import Stream
from tests.languages.pipelines.database import Database


@pytest.fixture
def stream(kinesis: devservers.Kinesis) -> Iterator[Stream]:
    made = Stream(kinesis)
    yield made
    made.remove()


@pytest.fixture
def postgresql_target(postgresql: devservers.PostgreSQL, schema: str) -> Database:
    def query(text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
            connection.execute(f"SET search_path = {schema}".encode())
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    config = {"connectionString": postgresql.dsn()}
    target = {"type": "postgresql", "schema": schema, "config": config}
    return Database("postgresql", schema, json.dumps({"target": target}), query)


@pytest.fixture
def clickhouse_target(clickhouse: devservers.ClickHouse, database: str) -> Iterator[Database]:
    dsn = clickhouse.dsn(database)
    target = {"type": "clickhouse", "config": {"connectionString": dsn}}
    with clickhouse_connect.get_client(dsn=dsn) as client:

        def query(text: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in client.query(text.strip(";\n")).result_rows]

        yield Database("clickhouse", database, json.dumps({"target": target}), query)


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_target")
    return found
