"""Loads into ClickHouse that died at an INSERT: nobody knows whether its rows are in the table."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dataflow_assets import registry
from dataflow_assets.contracts import Limit
from dataflow_assets.errors import PermanentError
from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.postgresql.cdc.followed import UPSERTED, Elsewhere, Followed

MADE = """
CREATE TABLE target (id Int32, name String, _version UInt64, _deleted UInt8)
ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY id
SETTINGS non_replicated_deduplication_window = {window}
"""
PARTITIONED = """
ALTER TABLE source RENAME TO low;
CREATE TABLE source (LIKE low) PARTITION BY RANGE (id);
ALTER TABLE source ADD PRIMARY KEY (id);
ALTER TABLE source ATTACH PARTITION low FOR VALUES FROM (0) TO (9000);
"""


class _Loaded:
    """Rows of `source`, in many parts, that are loaded into a table of ClickHouse."""

    def __init__(self, followed: Followed, request: pytest.FixtureRequest, **options: Any) -> None:
        self.system = Clickhouse(request)
        written = {**self.system.at("sink", dict(UPSERTED)), "table": "target"}
        sink = registry.sinks()["clickhouse"].model_validate(written)
        self.flow = Elsewhere(followed.dsn, followed.schema, followed.engine, options, into=sink)
        self.flow.limit = Limit(bytes=64 * 1024)
        self.flow.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
        rows = "SELECT i, repeat('x', 500) FROM generate_series(1, 900) i"
        self.flow.run(f"INSERT INTO source {rows}")

    def stored(self) -> list[tuple[Any, ...]]:
        found = self.system.client.query("SELECT id, name FROM target FINAL ORDER BY id")
        return [tuple(row) for row in found.result_rows]

    def is_same(self) -> bool:
        return self.stored() == self.flow.rows("source")


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", ["clickhouse.recorded", "clickhouse.inserted"])
def test_a_part_whose_snapshot_is_gone_is_read_as_it_is_now(
    followed: Followed, request: pytest.FixtureRequest, failpoint: str
) -> None:
    """Its rows cannot be inserted again under the token that is recorded."""
    loaded = _Loaded(followed, request)
    loaded.system.client.command(MADE.format(window=1000))
    assert loaded.flow.killed_at(failpoint, nth=3)
    loaded.flow.run("DELETE FROM source WHERE id % 2 = 0")
    loaded.flow.run("UPDATE source SET name = 'later' WHERE id % 3 = 0")
    loaded.flow.drain()
    loaded.flow.drain()
    assert loaded.is_same()
    assert loaded.flow.drain() == 0


@pytest.mark.crash
def test_partitions_that_were_dropped_when_nothing_of_them_was_stored(
    followed: Followed, request: pytest.FixtureRequest
) -> None:
    """No part of the load is left, in no part's place: the flow plans anew, and goes on."""
    loaded = _Loaded(followed, request)
    loaded.system.client.command(MADE.format(window=1000))
    loaded.flow.run(PARTITIONED)
    assert loaded.flow.killed_at("clickhouse.recorded")
    loaded.flow.run("DROP TABLE low")
    loaded.flow.drain()
    loaded.flow.run("CREATE TABLE high PARTITION OF source DEFAULT")
    loaded.flow.run("INSERT INTO source VALUES (1, 'later')")
    loaded.flow.drain()
    assert loaded.is_same()


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["always", "initial"])
def test_a_load_that_the_table_may_have_forgotten(
    followed: Followed,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    mode: str,
) -> None:
    """Where each run loads all tables it begins again; what was deleted since then goes too."""
    loaded = _Loaded(followed, request, snapshotMode=mode)
    loaded.system.client.command(MADE.format(window=20))
    assert loaded.flow.killed_at("clickhouse.inserted", nth=3)
    loaded.flow.run("DELETE FROM source WHERE id % 2 = 0")
    for number in range(20):
        loaded.system.client.command(f"INSERT INTO target VALUES ({-number}, '', 1, 1)")
    if mode == "initial":
        with pytest.raises(PermanentError, match=r"nobody knows whether the rows of partition"):
            loaded.flow.drain()
        return
    with caplog.at_level(logging.WARNING):
        loaded.flow.drain()
    assert "It is left, and all tables are loaded again" in caplog.text
    loaded.flow.drain()
    assert loaded.is_same()
