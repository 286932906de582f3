"""The rows of a target in the order in which they arrived, where a target keeps that order.

PostgreSQL: an identity column, `arrived`, that its sequence fills. ClickHouse: number of the block
and place in it, of a table that does not sort (`ORDER BY tuple()`). Iceberg: the files by their
sequence number, in each the rows. Kafka: each partition of the topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from tests.connectors.kafka.topics import committed

Row = dict[str, Any]

IDENTITY = "arrived bigint generated always as identity"


def postgresql(dsn: str, table: str) -> list[Row]:
    """Of a table with the column IDENTITY."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        found = connection.execute(f"select * from {table} order by arrived".encode()).fetchall()
    return [{name: row[name] for name in row if name != "arrived"} for row in found]


def clickhouse(client: Any, table: str) -> list[Row]:
    """Of a table without PARTITION BY that sorts by nothing."""
    sql = (
        f"SELECT * FROM {table} "
        "ORDER BY toUInt64(splitByChar('_', _part)[2]), _part_offset"  # part: all_first_last_level
    )
    return list(client.query(sql).named_results())


def iceberg(table: Any, sorts: str = "") -> list[Row]:
    """Of a table that nothing was deleted from; files of one commit are not in any order.

    `sorts`: a column by which the rows of one commit are put in order, where its writer does not.
    """
    if not sorts:
        return [row for path in _data_files(table) for row in _rows(table, path)]
    commits: dict[str, list[Row]] = {}
    for snapshot, path in _files(table):
        commits.setdefault(snapshot, []).extend(_rows(table, path))
    return [row for rows in commits.values() for row in sorted(rows, key=lambda row: row[sorts])]


def _data_files(table: Any) -> Iterator[str]:
    yield from (path for _, path in _files(table))


def _files(table: Any) -> Iterator[tuple[str, str]]:
    """Commit and path of each, the oldest commit first."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    entries = [entry for one in manifests for entry in one.fetch_manifest_entry(table.io)]
    for entry in sorted(entries, key=lambda entry: int(entry.sequence_number)):
        yield str(entry.sequence_number), entry.data_file.file_path


def _rows(table: Any, path: str) -> list[Row]:
    with table.io.new_input(path).open() as file:
        rows: list[Row] = pq.read_table(file).to_pylist()
    return rows


def kafka(bootstrap: str, topic: str) -> list[list[Row]]:
    """By partition: its committed records, without those that have no value."""
    by_partition: dict[int, list[Row]] = {}
    for message in committed(bootstrap, topic):
        value = message.value()
        if value is not None:
            by_partition.setdefault(message.partition() or 0, []).append(json.loads(value))
    return list(by_partition.values())
