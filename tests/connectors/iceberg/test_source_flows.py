"""Manifests that read Iceberg tables, as they stand in examples/, on real servers (hosts aside)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.cli.preview.live import waiting
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request, Start
from dataflow_assets.testing import choose
from tests import ROOT
from tests.connectors.iceberg.source_driver import lake, make_table, rows

EXAMPLES = ROOT / "examples"
EVENTS = """
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {name: events}
spec:
  source:
    type: iceberg
    config:
      catalogURI: "https://iceberg-catalog.example.com"
      namespace: my_schema
      table: my_table
      incrementalBySnapshot: true
      pollInterval: 10
      bearerToken: "your-token"
  transformations:
    - type: filter
      config: {condition: "$.id != 1"}
  sink:
    type: postgresql
    config:
      connectionString: "postgres://user:password@localhost:5432/dbname?sslmode=disable"
      table: target_table
      rawMode: true
      autoCreateTable: true
"""


@dataclass
class Place:
    """A folder for manifests, and what their hosts are."""

    folder: Path
    engine: SparkSession
    hosts: Mapping[str, str]
    database: psycopg.Connection[Any]

    def flow(self, text: str) -> Flow:
        for written, real in self.hosts.items():
            text = text.replace(written, real)
        file = self.folder / "flow.yaml"
        file.write_text(text, encoding="utf-8")
        return choose(load([file]), None)

    def run(self, flow: Flow, start: Start = Start()) -> int:  # noqa: B008 - frozen
        order = Request(start=start, patience=Patience(20, 0.01, 0.05))
        reports = list(drain(flow, lambda: self.engine, order))
        return sum(report.delta.rows for report in reports)

    def stored(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self.database.execute(sql.format(t=self.hosts["target_table"])).fetchall())


@pytest.fixture
def place(
    seaweedfs: devservers.SeaweedFS,
    postgresql: devservers.PostgreSQL,
    namespace: str,
    schema: str,
    engine: SparkSession,
    tmp_path: Path,
) -> Iterator[Place]:
    keys = {
        "s3Endpoint": seaweedfs.s3_endpoint,
        "s3Region": seaweedfs.region,
        "accessKey": seaweedfs.access_key,
        "secretAccessKey": seaweedfs.secret_key,
        "warehouse": seaweedfs.warehouse,
    }
    store = "".join(f"\n      {name}: {value}" for name, value in keys.items())
    hosts = {
        "https://iceberg-catalog.example.com": seaweedfs.uri,
        "http://localhost:8181": f"{seaweedfs.uri}\n      bearerToken: your-token",
        "your-token": _token(seaweedfs),
        "my_schema": namespace,
        "namespace: shop": f"namespace: {namespace}",
        "table: orders\n": "table: events\n",
        "my_table": "events",
        "pollInterval: 10": f"pollInterval: 10{store}",
        "postgres://user:password@localhost:5432/dbname?sslmode=disable": postgresql.dsn(),
        "postgresql://postgres@localhost:5432/postgres": postgresql.dsn(),
        "target_table": f"{schema}.target_table",
        "orders_from_lake": f"{schema}.target_table",
    }
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        yield Place(tmp_path, engine, hosts, connection)


def _token(server: devservers.SeaweedFS) -> str:
    form = {
        "grant_type": "client_credentials",
        "client_id": server.access_key,
        "client_secret": server.secret_key,
        "scope": "catalog",
    }
    answer = requests.post(f"{server.uri}/v1/oauth/tokens", data=form, timeout=10)
    return str(answer.json()["access_token"])


def test_the_documentation_s_source_runs_as_written(
    place: Place, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    place.database.execute(f"create table {place.hosts['target_table']} (id bigint, name text)")
    flow = place.flow((EXAMPLES / "seeds/iceberg-source.yaml").read_text(encoding="utf-8"))
    table.append(rows(0, 1_000))
    assert place.run(flow) == 1_000
    table.append(rows(1_000, 1_010))
    assert (place.run(flow), place.run(flow)) == (10, 0)
    found = place.stored("select count(*), count(distinct id), max(name) from {t}")
    assert found == [(1_010, 1_010, "n999")]


def test_the_example_follows_a_table_that_is_rewritten(
    place: Place, catalog: Catalog, namespace: str
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 100))
    flow = place.flow((EXAMPLES / "iceberg-to-postgresql.yaml").read_text(encoding="utf-8"))
    assert place.run(flow) == 100
    changed = pa.table([pa.array([7], pa.int64()), ["changed"]], table.schema().as_arrow())
    table.overwrite(changed, overwrite_filter="id == 7")
    table.append(rows(100, 110))
    place.run(flow)
    assert place.stored("select count(*), count(distinct id) from {t}") == [(110, 110)]
    assert place.stored("select name from {t} where id in (7, 8) order by id") == [
        ("changed",),
        ("n8",),
    ]
    assert place.run(flow) == 0


def test_steps_see_the_snapshot_and_a_compaction_is_no_record(
    place: Place,
    catalog: Catalog,
    namespace: str,
    spark: SparkSession,
    seaweedfs: devservers.SeaweedFS,
) -> None:
    table = make_table(catalog, namespace)
    table.append(rows(0, 2))
    table.append(rows(2, 3))
    flow = place.flow(EVENTS)
    shown = waiting(flow, 2).messages
    assert [json.loads(message.raw or b"")["id"] for message in shown] == [0, 1]
    assert place.run(flow) == 2
    name = lake(spark, seaweedfs)
    which = f"table => '{namespace}.events', options => map('rewrite-all', 'true')"
    spark.sql(f"call {name}.system.rewrite_data_files({which})").collect()
    assert place.run(flow) == 0
    table.refresh().append(rows(3, 4))
    assert place.run(flow) == 1
    ids = [one.snapshot_id for one in table.snapshots()]
    assert place.stored("select data, _metadata from {t} order by data->>'id'") == [
        (
            {"id": number, "name": f"n{number}"},
            {
                "namespace": namespace,
                "table": "events",
                "snapshot_id": snapshot,
                "snapshot_sequence": sequence,
            },
        )
        for number, snapshot, sequence in ((0, ids[1], 2), (2, ids[1], 2), (3, ids[-1], 4))
    ]


def test_a_table_made_anew_is_another_one(place: Place, catalog: Catalog, namespace: str) -> None:
    make_table(catalog, namespace).append(rows(0, 5))
    flow = place.flow(EVENTS)
    place.run(flow)
    catalog.drop_table((namespace, "events"))
    make_table(catalog, namespace).append(rows(5, 8))
    with pytest.raises(PermanentError) as caught:
        place.run(flow)
    assert "was recreated since the last commit (it has another id): its rows are others now" in (
        str(caught.value)
    )
    assert "Start from earliest with table: truncate" in str(caught.value)
    place.run(flow, Start("earliest", table="truncate"))
    assert place.stored("select count(*) from {t}") == [(3,)]
