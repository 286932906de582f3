"""A PostgreSQL table as a source: filled once, and copied by one connection out and one in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
from pydantic import SecretStr

from bench import bounds, tables
from bench.places import Places
from dataflow_assets.connectors.postgresql import PostgresqlSource

TABLE = "bench_source"

# In a process of its own, as `psql | psql` would be.
COPY = "from bench.polled import copy; import sys; copy(*sys.argv[1:])"


def filled(places: Places, files: list[Path], count: int) -> None:
    """The table with these rows and its indexes; left as it is where it has them."""
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        found = connection.execute("SELECT to_regclass(%s)", [TABLE]).fetchone()
        if found != (None,):
            rows = connection.execute(f"SELECT count(*) FROM {TABLE}".encode()).fetchone()
            if rows == (count,):
                return
    tables.fresh(places, TABLE, "upsert")
    bounds.copy_all(places, TABLE, files)
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE INDEX ON {TABLE} (at, id)".encode())
        connection.execute(f"VACUUM ANALYZE {TABLE}".encode())


def source(places: Places) -> PostgresqlSource:
    """The table as a flow reads it."""
    return PostgresqlSource(
        connection_string=SecretStr(places.dsn), table=TABLE, change_tracking_column="at"
    )


def copy_all(places: Places, table: str, source: str = TABLE) -> None:
    """The whole table `source` from COPY TO into COPY FROM."""
    command = [sys.executable, "-c", COPY, places.dsn, table, source]
    assert subprocess.run(command, check=False).returncode == 0


def copy(dsn: str, table: str, source: str) -> None:
    """One connection reads, one writes, in one transaction."""
    with (
        psycopg.connect(dsn) as reading,
        psycopg.connect(dsn) as writing,
        reading.cursor().copy(f"COPY {source} TO STDOUT".encode()) as rows,
        writing.cursor().copy(f"COPY {table} FROM STDIN".encode()) as target,
    ):
        for row in rows:
            target.write(row)
