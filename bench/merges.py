"""ClickHouse as a target: tables made for each measurement, and what the plain client inserts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import csv

from bench import topics
from bench.bounds import side_by_side
from bench.messages import PARTITIONS
from bench.places import Places
from dataflow_assets.connectors.clickhouse import ClickhouseSink
from dataflow_assets.connectors.clickhouse import client as clients
from dataflow_assets.connectors.clickhouse.table.table import JSON_TEXT

COLUMNS = {
    "id": "Int64",
    "customer": "Nullable(String)",
    "amount": "Nullable(Float64)",
    "at": "Nullable(DateTime64(6, 'UTC'))",
    "quantity": "Nullable(Int32)",
    "address": f"Nullable(String) COMMENT '{JSON_TEXT}'",
}
TYPES = {
    "id": pa.int64(),
    "customer": pa.string(),
    "amount": pa.float64(),
    "at": pa.timestamp("us", "UTC"),
    "quantity": pa.int32(),
    "address": pa.string(),
}
ROWS = 500_000  # of one INSERT: what a slice of a flow holds

# Each in a process of its own, as a loader would be.
INSERT = "from bench.merges import insert; import sys; insert(*sys.argv[1:])"
LOAD = "from bench.merges import load; import sys; load(*sys.argv[1:])"


class Message(msgspec.Struct):
    """What a plain loader decodes."""

    id: int
    customer: str
    amount: float
    at: str
    quantity: int
    address: msgspec.Raw


def ready(files: list[Path]) -> list[Path]:
    """The prepared rows as Arrow files, made once."""
    return [_arrow(file) for file in files]


def _arrow(file: Path) -> Path:
    path = file.with_suffix(".arrow")
    if not path.exists():
        names = csv.ReadOptions(column_names=list(TYPES), block_size=64 << 20)
        options = csv.ConvertOptions(column_types=TYPES)
        rows = csv.read_csv(file, names, convert_options=options)
        with pa.ipc.new_file(path, rows.schema) as out:
            out.write_table(rows.combine_chunks(), max_chunksize=ROWS)
    return path


def insert_all(places: Places, table: str, files: list[Path]) -> None:
    """insert_arrow of ready batches in mapped files, each file on a connection of its own."""
    side_by_side([[INSERT, places.clickhouse.dsn(), table, str(file)] for file in files])


def load_all(places: Places, topic: str, table: str) -> None:
    """A topic by plain clients, at least once; each partition by a process of its own."""
    ends = [places.bootstrap, topic, places.clickhouse.dsn(), table]
    side_by_side([[LOAD, *ends, str(number)] for number in range(PARTITIONS)])


def insert(dsn: str, table: str, file: str) -> None:
    """One connection, an INSERT for each batch."""
    with (
        clients.connect(dsn, "bench") as client,
        pa.memory_map(file) as source,
        pa.ipc.open_file(source) as batches,
    ):
        for number in range(batches.num_record_batches):
            rows = pa.Table.from_batches([batches.get_batch(number)])
            client.insert_arrow(table, rows)


def load(bootstrap: str, topic: str, dsn: str, table: str, partition: str) -> None:
    """One partition: consumed, decoded, inserted in batches."""
    with clients.connect(dsn, "bench") as client:
        for bodies in topics.bodies(bootstrap, topic, int(partition), ROWS):
            client.insert_arrow(table, _decoded(bodies))


def _decoded(bodies: list[bytes]) -> pa.Table:
    decode = msgspec.json.Decoder(Message).decode
    rows = [msgspec.structs.astuple(decode(body)) for body in bodies]
    *columns, address = map(list, zip(*rows, strict=True))
    texts = [bytes(each) for each in address]
    made = [pa.array(each) for each in columns] + [pa.array(texts, pa.binary())]
    found = zip(made, TYPES.values(), strict=True)
    return pa.table([each.cast(kind) for each, kind in found], names=list(TYPES))


def sink(places: Places, table: str) -> ClickhouseSink:
    """Appends to a table."""
    config = {"connectionString": places.clickhouse.dsn(), "table": table}
    return ClickhouseSink.model_validate(config)


def fresh(places: Places, table: str) -> None:
    """An empty table."""
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    drop(places, table)
    _run(
        places,
        f"CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 10000",
    )


def check(places: Places, table: str, count: int) -> None:
    """Every message is there, and once; then the table goes."""
    query = f"SELECT count(), uniqExact(id), min(id), max(id) FROM {table}"
    found = _run(places, query)
    assert found == [(count, count, 0, count - 1)], f"{table}: {found} instead of {count} rows"
    drop(places, table)


def drop(places: Places, table: str) -> None:
    """Frees its space."""
    _run(places, f"DROP TABLE IF EXISTS {table} SYNC")


def _run(places: Places, query: str) -> list[Any]:
    with clients.connect(places.clickhouse.dsn(), "bench") as client:
        if query.startswith("SELECT"):
            return clients.query_rows(client, query)
        client.command(query)
        return []
