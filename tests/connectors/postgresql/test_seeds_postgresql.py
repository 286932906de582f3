"""The original documentation's manifests of a PostgreSQL source, run as written, hosts aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.manifests.test_seeds import SEEDS
from tests.sdk.polled import Polled

WRITTEN = "postgres://user:password@localhost:5432/dbname?sslmode=disable"


class Seeded(Polled):
    """The flow of a seed in a database of its own."""

    def read_as(self, name: str, folder: Path) -> None:
        text = (SEEDS / f"{name}.yaml").read_text(encoding="utf-8")
        file = folder / "flow.yaml"
        file.write_text(text.replace(WRITTEN, self.dsn), encoding="utf-8")
        self.loaded = choose(load(file), None)

    @property
    def flow(self) -> Flow:
        return self.loaded

    @property
    def sink(self) -> PostgresqlSink:
        found = self.loaded.branches[0].sink
        assert isinstance(found, PostgresqlSink)
        return found


@pytest.fixture
def seeded(own_database: str) -> Seeded:
    return Seeded(own_database, "public")


def test_postgresql_source(seeded: Seeded, tmp_path: Path) -> None:
    """Its query reads the table that it makes: what changed within the last hour."""
    seeded.read_as("postgresql-source", tmp_path)
    seeded.run("CREATE TABLE target_table (id int, created_at timestamptz, updated_at timestamptz)")
    assert seeded.drain() == 0
    seeded.run("INSERT INTO source_table DEFAULT VALUES")
    seeded.run("INSERT INTO source_table (updated_at) VALUES (now() - interval '2 hours')")
    seeded.drain()
    seeded.run("UPDATE source_table SET updated_at = clock_timestamp() WHERE id = 2")
    seeded.drain()
    assert seeded.run("SELECT id FROM target_table ORDER BY 1") == [(1,), (2,)]
    assert seeded.drain() == 0


def test_postgresql_migration(seeded: Seeded, tmp_path: Path) -> None:
    """A materialized view without times, by one key for both columns, ten thousand at a time."""
    seeded.run("CREATE SCHEMA price_calendar")
    seeded.run(
        "CREATE MATERIALIZED VIEW price_calendar.mv_one_p_prices_migration AS "
        "SELECT i::bigint AS material_id, i / 7.0 AS price FROM generate_series(1, 50001) i"
    )
    seeded.run("CREATE TABLE target_table (material_id bigint PRIMARY KEY, price numeric)")
    seeded.read_as("postgresql-migration", tmp_path)
    seeded.records = 1_000_000
    assert seeded.drain() == 6
    unequal = "SELECT count(*) FROM target_table FULL JOIN price_calendar."
    unequal += "mv_one_p_prices_migration AS m USING (material_id) WHERE m.price IS DISTINCT FROM "
    assert seeded.run(unequal + "target_table.price") == [(0,)]
    assert seeded.drain() == 0
