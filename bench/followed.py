"""A PostgreSQL table whose log is followed: filled behind a slot that is there already."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
from pydantic import SecretStr

from bench import bounds, tables
from bench.places import Places
from dataflow_assets.connectors.postgresql import PostgresqlCdcSource
from dataflow_assets.contracts import Limit

TABLE = NAME = "bench_followed"


def filled(places: Places, files: list[Path]) -> None:
    """The rows are in the log behind the slot, one transaction for each file."""
    forget(places)
    tables.fresh(places, TABLE, "upsert")
    with closing(source(places).open("bench/followed")) as session:
        session.start("latest")
    bounds.copy_all(places, TABLE, files)
    tables.settle(places)


def forget(places: Places) -> None:
    """Without the slot and the publication of the round before."""
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = %s",
            [NAME],
        )
        connection.execute(f"DROP PUBLICATION IF EXISTS {NAME}".encode())


def source(places: Places) -> PostgresqlCdcSource:
    """The table as a flow follows it."""
    return PostgresqlCdcSource(
        connection_string=SecretStr(places.dsn),
        slot_name=NAME,
        publication_name=NAME,
        tables=(TABLE,),
        snapshot_mode="never",
    )


def read_all(places: Places, count: int) -> None:
    """The log as columns, in this process, and nothing done with them."""
    followed = source(places)
    with closing(followed.open("bench/followed")) as session:
        span = session.plan(session.start(), Limit(bytes=1 << 40), session.end())
    parts = (followed.batches(piece, frozenset()) for piece in span.slices)
    assert sum(batch.num_rows for part in parts for batch in part) == count
