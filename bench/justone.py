"""The test of JustOne's own page: messages of about 128 bytes into an unindexed table.

The flow is read from the connector's properties; one and two partitions, as the page has one and
two tasks. The bound is COPY of the same rows, prepared as CSV, on as many connections.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from bench import bounds, flows, messages, report, tables
from bench.meters import Meter, Spent
from bench.places import Places
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.spark.session import Spark

MESSAGES = 2_000_000
COLUMNS = {
    "id": "bigint",
    "customer": "text",
    "amount": "double precision",
    "at": "timestamptz",
    "quantity": "int",
    "city": "text",
}
PATHS = "/@id,/@customer,/@amount,/@at,/@quantity,/@address/@city"
ROW = b"%d,c-%d,%d.%02d,2026-11-21T10:%02d:%02dZ,%d,Berlin\n"
CONNECTOR = """
name=bench-{partitions}
connector.class=com.justone.kafka.sink.pg.json.PostgreSQLSinkConnector
tasks.max={partitions}
topics={topic}
db.host={host}
db.database={database}
db.username={user}
db.password={password}
db.schema=public
db.table={table}
db.columns={columns}
db.json.parse={paths}
db.delivery=synchronized
db.buffer.size=8000000
"""


def run(places: Places, spark: Spark, count: int, rounds: int) -> dict[str, Any]:
    """Each measure's medians, and the ratio of each flow to the COPY of the same round.

    A warm-up with an eighth of the messages comes first and is not counted.
    """
    _rounds(places, spark, count // 8, 1)
    spent = _rounds(places, spark, count, rounds)
    return report.figures(spent, dict.fromkeys(spent, count))


def _rounds(places: Places, spark: Spark, count: int, rounds: int) -> dict[str, list[Spent]]:
    spent: dict[str, list[Spent]] = {}
    for _ in range(rounds):
        for partitions in (1, 2):
            copied = spent.setdefault(f"copy-justone-{partitions}", [])
            copied.append(_copied(places, count, partitions))
            drained = spent.setdefault(f"flow-justone-{partitions}", [])
            drained.append(_drained(places, spark, count, partitions))
    return spent


def _copied(places: Places, count: int, partitions: int) -> Spent:
    table = "bench_raw_justone"
    files = [_rows(places.folder, count, part, partitions) for part in range(partitions)]
    _fresh(places, table)
    with Meter(places) as meter:
        bounds.copy_all(places, table, files)
    tables.check(places, table, count)
    tables.drop(places, table)
    return meter.spent


def _drained(places: Places, spark: Spark, count: int, partitions: int) -> Spent:
    topic, table = f"bench-justone-{partitions}-{count}", f"bench_justone_{partitions}"
    messages.filled(places.bootstrap, topic, count, partitions=partitions)
    _fresh(places, table)
    flow = _flow(places, topic, table, partitions)
    with Meter(places) as meter:
        totals = flows.run(flow, spark)
    assert (totals.rows, totals.rejected) == (count, 0), str(totals)
    tables.check(places, table, count)
    tables.drop(places, table)
    return meter.spent


def _flow(places: Places, topic: str, table: str, partitions: int) -> Flow:
    """As a user's folder of properties has it."""
    folder = places.folder / f"justone-{partitions}"
    folder.mkdir(exist_ok=True)
    info = psycopg.conninfo.conninfo_to_dict(places.dsn)
    where = {
        "host": f"{info['host']}:{info['port']}",
        "database": info["dbname"],
        "user": info["user"],
        "password": info.get("password", ""),
    }
    written = {"columns": ",".join(COLUMNS), "paths": PATHS, "table": table, "topic": topic}
    text = CONNECTOR.format(partitions=partitions, **where, **written)
    (folder / "sink.properties").write_text(text)
    (folder / "worker.properties").write_text(f"bootstrap.servers={places.bootstrap}\n")
    (flow,) = load(folder).flows
    return flow


def _fresh(places: Places, table: str) -> None:
    """An empty table, and no work left over from what came before."""
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(f"CREATE TABLE {table} ({columns})")
    tables.settle(places)


def _rows(folder: Path, count: int, part: int, parts: int) -> Path:
    """The rows of one partition as CSV for COPY."""
    file = folder / f"justone-{count}-{part}-{parts}.csv"
    if not file.exists():
        with file.open("wb") as out:
            numbers = range(part, count, parts)
            out.writelines(ROW % messages.values(number)[:-1] for number in numbers)
    return file
