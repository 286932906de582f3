"""The tables that flows and bounds fill, made anew for each measurement."""

from __future__ import annotations

from typing import Literal

import psycopg

from bench.places import Places

Kind = Literal["binary", "numeric", "text", "upsert"]

COLUMNS = {
    "id": "bigint NOT NULL",
    "customer": "text",
    "amount": "double precision",
    "at": "timestamptz",
    "quantity": "int",
    "address": "jsonb",
}
OTHERS: dict[Kind, dict[str, str]] = {
    "binary": {},
    "numeric": {"amount": "numeric(12,2)"},
    "text": {"customer": "refcursor"},  # a text that binary COPY does not serve
    "upsert": {"id": "bigint PRIMARY KEY"},
}


def fresh(places: Places, table: str, kind: Kind) -> None:
    """An empty table, and no work left over from what came before."""
    columns = ", ".join(f"{name} {type_}" for name, type_ in (COLUMNS | OTHERS[kind]).items())
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(f"CREATE TABLE {table} ({columns})")
    settle(places)


def settle(places: Places) -> None:
    """Writes back what is dirty, so that nobody pays for what ran before."""
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def drop(places: Places, table: str) -> None:
    """Frees its space."""
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def check(places: Places, table: str, count: int) -> None:
    """Every message is there, and once."""
    query = f"SELECT count(*), count(DISTINCT id), min(id), max(id) FROM {table}"
    with psycopg.connect(places.dsn) as connection:
        found = connection.execute(query).fetchone()
    assert found == (count, count, 0, count - 1), f"{table}: {found} instead of {count} rows"
