"""A table that is followed: its first rows, then a million changes in transactions of three sizes.

A third each are inserts, updates and deletes, every key once, so that nothing is folded away: the
targets have the rows of the source when the log begins. What is compared with the flows is the
same log, read and decoded in one process, and for the first rows COPY TO piped into COPY FROM.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
from pydantic import SecretStr

from bench import flows, polled, report, tables
from bench.meters import Meter, Spent
from bench.places import Places
from dataflow_assets.connectors.postgresql import PostgresqlCdcSource
from dataflow_assets.contracts import Limit, Sink, Totals
from dataflow_assets.flow import Flow
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request, Start
from dataflow_assets.spark.session import Spark

CHANGES, LOADED = 1_000_000, 5_000_000
SIZES = (1, 100, 100_000)
"""Rows of a transaction."""
TABLE, UPSERTED = "bench_changed", "bench_changed_copy"
_BATCH = 3_000_000
_FILLED = f"""
INSERT INTO {TABLE} SELECT i, 'c-' || i % 1000, i / 7.0, now(), i % 10, '{{{{"city": "Berlin"}}}}'
FROM generate_series({{first}}::bigint, {{last}}::bigint) i
"""
# Of the rows up to `rows` the first third is updated, the second one deleted.
_CHANGED = f"""
CREATE OR REPLACE PROCEDURE bench_changes(rows bigint, size int) LANGUAGE plpgsql AS $$
DECLARE third bigint := rows / 3; low bigint := 0; upto bigint;
BEGIN
  WHILE low < third LOOP
    upto := least(third, low + greatest(size / 3, 1));
    UPDATE {TABLE} SET quantity = quantity + 1, customer = 'new' WHERE id > low AND id <= upto;
    IF size = 1 THEN COMMIT; END IF;
    DELETE FROM {TABLE} WHERE id > third + low AND id <= third + upto;
    IF size = 1 THEN COMMIT; END IF;
    INSERT INTO {TABLE} SELECT i, 'c-1', 1.5, now(), 1, '{{"city": "Bonn"}}'
    FROM generate_series(rows + low + 1, rows + upto) i;
    COMMIT;
    low := upto;
  END LOOP;
END $$
"""
_DIFFERENT = f"""
SELECT count(*) FROM (SELECT id, quantity FROM {TABLE} EXCEPT SELECT id, quantity FROM {UPSERTED})
"""


@dataclass(frozen=True)
class _Followed:
    """One reader of the table, with a slot of its own."""

    places: Places
    name: str

    @property
    def source(self) -> PostgresqlCdcSource:
        """As a flow declares it: with the first rows."""
        return PostgresqlCdcSource(
            connection_string=SecretStr(self.places.dsn),
            slot_name=self.name,
            publication_name=self.name,
            tables=(TABLE,),
        )

    def forget(self) -> None:
        """Drops slot and publication."""
        with psycopg.connect(self.places.dsn, autocommit=True) as connection:
            dropped = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            connection.execute(f"{dropped} WHERE slot_name = '{self.name}'".encode())
            connection.execute(f"DROP PUBLICATION IF EXISTS {self.name}".encode())

    def latest(self) -> None:
        """Makes the slot; what is logged from now on is read."""
        with closing(self.source.open("bench/changes")) as session:
            session.start("latest")

    def read(self, count: int) -> None:
        """The log as columns, in this process, and nothing done with them."""
        source = self.source.model_copy(update={"snapshot_mode": "never"})
        found = 0
        with closing(source.open("bench/changes")) as session:
            after, ends = session.start(), session.end()
            while (span := session.plan(after, Limit(bytes=1 << 40), ends)).slices:
                parts = (source.batches(one, frozenset()) for one in span.slices)
                found += sum(batch.num_rows for part in parts for batch in part)
                after = span.upto
        assert found == count, f"{found} of {count} changes are in the log"

    def flow(self, sink: Sink) -> Flow:
        """Into a sink."""
        return flows.read(self.source, self.name, sink)


def run(places: Places, spark: Spark, count: int, rounds: int) -> dict[str, Any]:
    """Each measure's medians, and the ratio of each flow to its bound of the same round.

    A warm-up with an eighth of the rows comes first and is not counted.
    """
    count -= count % 3
    _round(places, spark, count // 8 // 3 * 3, {})
    spent: dict[str, list[Spent]] = {}
    for _ in range(rounds):
        _round(places, spark, count, spent)
    loaded = ("copy-first", "flow-first")
    return report.figures(
        spent, {name: _loaded(count) if name in loaded else count for name in spent}
    )


def _loaded(count: int) -> int:
    return count * LOADED // CHANGES


def _round(places: Places, spark: Spark, count: int, spent: dict[str, list[Spent]]) -> None:
    def measured(name: str, step: Callable[[], object]) -> None:
        with Meter(places) as meter:
            step()
        spent.setdefault(name, []).append(meter.spent)

    _first(places, spark, _loaded(count), measured)
    for size in SIZES:
        _changes(places, spark, count, size, measured)


def _first(
    places: Places, spark: Spark, count: int, measured: Callable[[str, Callable[[], object]], None]
) -> None:
    """The first rows into a table without indexes, by COPY and by a flow."""
    _make(places, count)
    copied, flow = "bench_first_raw", _Followed(places, "bench_first")
    for table in (copied, "bench_first"):
        tables.fresh(places, table, "binary")
    measured("copy-first", lambda: polled.copy_all(places, copied, TABLE))
    flow.forget()
    sink = flows.append(places, "bench_first")
    measured("flow-first", lambda: _drained(flow.flow(sink), spark, count, flows.BEGIN))
    for table in (copied, "bench_first"):
        _count(places, table, count)
        tables.drop(places, table)
    flow.forget()


def _changes(
    places: Places,
    spark: Spark,
    count: int,
    size: int,
    measured: Callable[[str, Callable[[], object]], None],
) -> None:
    """The same log read alone, upserted into PostgreSQL, and into Iceberg."""
    _make(places, count)
    tables.fresh(places, UPSERTED, "upsert")
    flows.forget_iceberg(places.seaweedfs.catalog_properties(), "changed")
    keyed = {"upsert_mode": True, "conflict_key": ("id",), "delete_mode": "hard"}
    alone = _Followed(places, "bench_changes_read")
    readers = {
        "flow-changes": flows.append(places, UPSERTED).model_copy(update=keyed),
        "flow-changes-lake": _lake(places),
    }
    followed = {name: _Followed(places, name.replace("-", "_")) for name in readers}
    for one in (alone, *followed.values()):
        one.forget()
    for name, sink in readers.items():
        _drained(followed[name].flow(sink), spark, count, flows.BEGIN)
    _rest(places)
    for name, sink in readers.items():
        _drained(followed[name].flow(sink), spark, 0, Start())
    alone.latest()
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit TO off")
        connection.execute(_CHANGED.encode())
        connection.execute(b"CALL bench_changes(%s, %s)", [count, size])
    tables.settle(places)
    measured(f"read-changes-{size}", lambda: alone.read(count))
    for name, sink in readers.items():
        flow = followed[name].flow(sink)
        measured(f"{name}-{size}", lambda flow=flow: _drained(flow, spark, count, Start()))  # type: ignore[misc]
    with psycopg.connect(places.dsn) as connection:
        assert connection.execute(_DIFFERENT.encode()).fetchone() == (0,)
    _count(places, UPSERTED, count)
    flows.check_iceberg(places.seaweedfs.catalog_properties(), "changed", count)
    for one in (alone, *followed.values()):
        one.forget()
    for table in (TABLE, UPSERTED):
        tables.drop(places, table)


def _rest(places: Places) -> None:
    """As on a server that has run for a while: slots that move on begin behind what was loaded.

    The server writes such a place into its log every 15 seconds; before it comes, each reader
    decodes the loads of all others, which the reader alone need not do.
    """
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_log_standby_snapshot()")
        connection.execute(f"UPDATE {TABLE} SET quantity = quantity WHERE id = 1".encode())


def _lake(places: Places) -> Sink:
    declared = flows.iceberg(places, "changed")
    return declared.model_copy(
        update={"upsert_mode": True, "conflict_key": ("id",), "delete_mode": "hard"}
    )


def _make(places: Places, count: int) -> None:
    """The table with so many rows, and nothing left to write back."""
    tables.fresh(places, TABLE, "upsert")
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        for first in range(1, count + 1, _BATCH):
            last = min(count, first + _BATCH - 1)
            connection.execute(_FILLED.format(first=first, last=last).encode())
        connection.execute(f"VACUUM ANALYZE {TABLE}".encode())
    tables.settle(places)


def _count(places: Places, table: str, count: int) -> None:
    with psycopg.connect(places.dsn) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert found == (count,), f"{table}: {found} instead of {count} rows"


def _drained(flow: Flow, spark: Spark, count: int, start: Start) -> None:
    order = Request(start=start, patience=Patience(5))
    totals = sum((one.delta for one in drain(flow, spark.session, order)), Totals())
    assert totals.rejected == 0, str(totals)
    assert totals.rows >= count * 2 // 3, str(totals)
