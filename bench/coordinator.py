"""A table behind Trino as a source: the flow beside the client's own fetch, in rounds.

Trino needs memory and Java 24, so it runs for this measure alone.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import trino

import devservers
from bench import flows, report, tables
from bench.meters import Meter, Spent
from bench.places import Places
from dataflow_assets.connectors.trino import TrinoSource
from dataflow_assets.spark.session import Spark

LARGEST = 1_000_000
_TABLE = "memory.default.bench_source"
_ROWS = """
SELECT n AS id, 'user-' || CAST(n % 1000 AS varchar) AS name, n / 4e0 AS price, n % 2 = 0 AS ok,
    TIMESTAMP '2026-01-01 00:00:00 UTC' + n * interval '1' second AS at
FROM UNNEST(sequence(1, {most})) AS a (m)
CROSS JOIN UNNEST(sequence(m * 1000 - 1000, m * 1000 - 1)) AS b (n)
"""


def run(places: Places, spark: Spark, count: int, rounds: int) -> dict[str, Any]:
    """Each measure's medians, and the ratio of the flow to the fetch of the same round."""
    thousands = min(count, LARGEST) // 1000
    spent: dict[str, list[Spent]] = {"fetch-trino": [], "flow-trino": []}
    with devservers.Trino(
        places.folder / "trino", store=places.seaweedfs, database=places.postgresql
    ) as server:
        _answer(server, f"CREATE TABLE {_TABLE} AS {_ROWS.format(most=thousands)}")
        for _ in range(rounds):
            spent["fetch-trino"].append(_fetched(places, server, thousands * 1000))
            spent["flow-trino"].append(_drained(places, spark, server, thousands * 1000))
    return report.figures(spent, dict.fromkeys(spent, thousands * 1000))


def _fetched(places: Places, server: devservers.Trino, count: int) -> Spent:
    with Meter(places) as meter:
        found = _answer(server, f"SELECT * FROM {_TABLE}")
    assert found == count
    return meter.spent


def _drained(places: Places, spark: Spark, server: devservers.Trino, count: int) -> Spent:
    """Into a table of PostgreSQL that the flow makes."""
    table = "bench_from_trino"
    tables.drop(places, table)
    where = {"serverURL": server.uri, "catalog": "memory", "schema": "default"}
    tracked = {"table": "bench_source", "changeTrackingColumn": "at"}
    source = TrinoSource.model_validate(where | tracked)
    sink = flows.append(places, table).model_copy(update={"auto_create_table": True})
    flow = flows.read(source, "trino", sink)
    with Meter(places) as meter:
        totals = flows.run(flow, spark)
    assert (totals.rows, totals.rejected) == (count, 0), str(totals)
    tables.check(places, table, count)
    return meter.spent


def _answer(server: devservers.Trino, sql: str) -> int:
    """How many rows a statement answers, fetched by the client as its page shows it."""
    connection = trino.dbapi.connect(  # type: ignore[no-untyped-call]
        host="127.0.0.1", port=server.ports["http"], user="bench"
    )
    with closing(connection):
        cursor = connection.cursor()
        cursor.execute(sql)
        found = 0
        while rows := cursor.fetchmany(10_000):
            found += len(rows)
        return found
