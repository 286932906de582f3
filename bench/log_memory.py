"""Memory does not grow with the log that waits, nor with a transaction of several gigabytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import psutil
import psycopg
from pydantic import SecretStr

from bench import flows
from bench.meters import Meter
from bench.places import Places
from dataflow_assets.connectors.postgresql import PostgresqlCdcSource
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.spark.session import Spark

MOST = 3 << 30  # bytes, of driver, JVM and Python workers together
WAITING = (1_000_000, 20_000_000)
"""Changes that wait, in transactions of 10,000."""
TRANSACTION = 10_000
LARGE, BODY = 2_800_000, 31
"""Rows of the one transaction, and how often 32 bytes are in the body of each: 2.8 GB of text."""
TABLE, COPY = "bench_logged", "bench_logged_copy"
_PROCEDURE = f"""
CREATE OR REPLACE PROCEDURE bench_logged(rows bigint, size bigint, body int) LANGUAGE plpgsql AS $$
BEGIN
  FOR at IN 0 .. rows - 1 BY size LOOP
    INSERT INTO {TABLE} SELECT i, repeat(md5(i::text), body)
    FROM generate_series(at, least(at + size, rows) - 1) i;
    COMMIT;
  END LOOP;
END $$
"""


def run(places: Places, spark: Spark) -> dict[str, Any]:
    """Each case's peak of driver, JVM and workers, and what it was made of."""
    cases = [(f"{count} waiting", count, TRANSACTION, 1) for count in WAITING]
    cases.append(("one transaction", LARGE, LARGE, BODY))
    found = {name: _case(places, spark, *case) for name, *case in cases}
    least, most = (found[f"{count} waiting"]["peak_bytes"] for count in WAITING)
    passed = all(one["peak_bytes"] <= MOST for one in found.values())
    return {"cases": found, "grown": most / least, "most_bytes": MOST, "passed": passed}


def _case(places: Places, spark: Spark, count: int, size: int, body: int) -> dict[str, Any]:
    _make(places)
    source = _source(places)
    with closing(source.open("bench/logged")) as session:
        session.start("latest")
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(b"CALL bench_logged(%s, %s, %s)", [count, size, body])
        kept = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8 "
        (logged,) = connection.execute(
            f"{kept} FROM pg_replication_slots WHERE slot_name = '{TABLE}'".encode()
        ).fetchone() or (0,)
    flow = flows.read(source, "logged", flows.append(places, COPY))
    senders = list[int]()
    with Meter(places, lambda _: senders.append(_largest(places))) as meter:
        order = Request(start=flows.BEGIN, patience=Patience(5))
        reports = [*drain(flow, spark.session, order)]
    assert sum(one.delta.rows for one in reports) == count
    with psycopg.connect(places.dsn) as connection:
        query = f"SELECT count(*), count(DISTINCT id) FROM {COPY}".encode()
        assert connection.execute(query).fetchone() == (count, count)
    _forget(places)
    spent = meter.spent
    return {
        "changes": count,
        "log_bytes": logged,
        "micro_batches": len(reports),
        "seconds": spent.seconds,
        "peak_bytes": spent.peak,
        "peak_by_group": dict(spent.memory),
        "largest_process_of_postgresql": max(senders),
    }


def _largest(places: Places) -> int:
    """Bytes that the largest process of PostgreSQL holds alone: shared buffers are not counted."""
    return max(_private(places), default=0)


def _private(places: Places) -> Iterator[int]:
    for process in places.groups()["postgresql"]:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            yield process.memory_full_info().uss


def _source(places: Places) -> PostgresqlCdcSource:
    return PostgresqlCdcSource(
        connection_string=SecretStr(places.dsn),
        slot_name=TABLE,
        publication_name=TABLE,
        tables=(TABLE,),
        snapshot_mode="never",
    )


def _make(places: Places) -> None:
    _forget(places)
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, body text)".encode())
        connection.execute(f"CREATE TABLE {COPY} (id bigint, body text)".encode())
        connection.execute(_PROCEDURE.encode())


def _forget(places: Places) -> None:
    """Without slot, publication and tables of a case before."""
    dropped = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(f"{dropped} WHERE slot_name = '{TABLE}'".encode())
        connection.execute(f"DROP PUBLICATION IF EXISTS {TABLE}".encode())
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}, {COPY}".encode())
        connection.execute("CHECKPOINT")
