"""How old a change is when it is visible: from its COMMIT at the source to the target.

One continuous run of the product's loop in this process follows a table that gets a thousand
changes a second, a hundred transactions of ten rows; a look at the target every few milliseconds
tells when each transaction is there.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from statistics import median, quantiles
from typing import Any

import psycopg

from bench import flows, followed, tables
from bench.places import Places
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Request
from dataflow_assets.spark.session import Spark

TABLE = "bench_age"
ROWS, EVERY = 10, 0.01  # of a transaction, seconds between two
WARM, SECONDS = 20.0, 30.0  # before the measurement, and of it
LOOK = 0.005  # seconds between two looks at the target
MOST = 1.5  # seconds, the median
_INSERT = f"INSERT INTO {followed.TABLE} (id) SELECT generate_series(%s::bigint, %s::bigint)"


def run(places: Places, spark: Spark) -> dict[str, Any]:
    """Median and 95th percentile in seconds, and how many changes a second there were."""
    followed.forget(places)
    for table in (followed.TABLE, TABLE):
        tables.fresh(places, table, "upsert")
    source = followed.source(places)
    with closing(source.open("bench/age")) as session:
        session.start("latest")
    flow = flows.read(source, "age", flows.upsert(places, TABLE))
    over, committed, seen = threading.Event(), dict[int, float](), list[tuple[float, int]]()
    request = Request(seconds=3600, stop=lambda: "measured" if over.is_set() else None)
    threads = [
        threading.Thread(target=lambda: list(drain(flow, spark.session, request))),
        threading.Thread(target=_write, args=(places.dsn, over, committed)),
        threading.Thread(target=_look, args=(places.dsn, over, seen)),
    ]
    for thread in threads:
        thread.start()
    time.sleep(WARM + SECONDS)
    over.set()
    for thread in threads:
        thread.join()
    tables.drop(places, TABLE)
    followed.forget(places)
    return _figures(committed, seen)


def _write(dsn: str, over: threading.Event, committed: dict[int, float]) -> None:
    """Notes when each transaction was committed, by its last id."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        first, begun = 1, time.monotonic()
        while not over.is_set():
            last = first + ROWS - 1
            connection.execute(_INSERT, [first, last])
            committed[last] = time.monotonic()
            first = last + 1
            due = begun + EVERY * last / ROWS
            time.sleep(max(0.0, due - time.monotonic()))


def _look(dsn: str, over: threading.Event, seen: list[tuple[float, int]]) -> None:
    """Notes up to which id the target has come; ids come in their order."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not over.is_set():
            (found,) = connection.execute(f"SELECT max(id) FROM {TABLE}").fetchone() or (None,)
            if found is not None and (not seen or found > seen[-1][1]):
                seen.append((time.monotonic(), found))
            time.sleep(LOOK)


def _figures(committed: dict[int, float], seen: list[tuple[float, int]]) -> dict[str, Any]:
    begun = min(committed.values()) + WARM
    late = {last: at for last, at in committed.items() if at >= begun and last <= seen[-1][1]}
    ages = [next(at for at, upto in seen if upto >= last) - late[last] for last in late]
    span = max(late.values()) - min(late.values())
    return {
        "changes_per_second": len(late) * ROWS / span,
        "median": median(ages),
        "p95": quantiles(ages, n=20)[-1],
        "passed": median(ages) <= MOST,
    }
