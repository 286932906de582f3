"""Memory does not grow with the backlog: many waiting messages drain within a fixed amount."""

from __future__ import annotations

from typing import Any

from bench import flows, messages, tables
from bench.meters import Meter
from bench.places import Places
from dataflow_assets.spark.session import Spark

MOST = 3 << 30  # bytes, of driver, JVM and Python workers together


def run(places: Places, spark: Spark, count: int) -> dict[str, Any]:
    """Drains `count` messages into PostgreSQL; the peak, and what it was made of."""
    topic, table = f"bench-backlog-{count}", "bench_backlog"
    messages.create(places.bootstrap, topic)
    messages.Filler(places.bootstrap, topic).send(count)
    tables.fresh(places, table, "binary")
    flow = flows.flow(places, topic, "backlog", flows.append(places, table))
    with Meter(places) as meter:
        totals = flows.run(flow, spark)
    assert (totals.rows, totals.rejected) == (count, 0), str(totals)
    tables.check(places, table, count)
    tables.drop(places, table)
    messages.drop(places.bootstrap, topic)
    spent = meter.spent
    return {
        "messages": count,
        "seconds": spent.seconds,
        "peak_bytes": spent.peak,
        "peak_by_group": dict(spent.memory),
        "most_bytes": MOST,
        "passed": spent.peak <= MOST,
    }
