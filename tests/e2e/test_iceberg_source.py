"""An Iceberg table to PostgreSQL and to another Iceberg table, killed inside snapshots."""

from __future__ import annotations

import random
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import devservers
from tests.connectors.iceberg.source_driver import lake
from tests.e2e.flows import Command, iceberg_values, write

FROM_ICEBERG = """
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: {name}
spec:
  maxRecordsPerBatch: {limit}
  source:
    type: iceberg
    config: &lake
      catalogURI: {uri}
      warehouse: {warehouse}
      namespace: {namespace}
      table: source
      oauth2ClientID: {access_key}
      oauth2ClientSecret: {secret_key}
      s3Endpoint: {s3_endpoint}
      s3Region: us-east-1
      accessKey: {access_key}
      secretAccessKey: {secret_key}
"""
TO_POSTGRESQL = """\
  sink:
    type: postgresql
    config:
      connectionString: {dsn}
      table: {table}
      autoCreateTable: true
"""
TO_ICEBERG = """\
  sink:
    type: iceberg
    config:
      <<: *lake
      table: target
      autoCreateTable: true
"""
STEPS = [
    pytest.param("to_postgresql", "postgresql.begin", marks=pytest.mark.full),
    ("to_postgresql", "postgresql.after-commit"),
    ("to_postgresql", "drain.passed"),
    ("to_iceberg", "iceberg.after-commit"),
]


@dataclass
class Copy:
    """A flow from a table, with what stands in its target."""

    manifest: Path
    table: Table
    ids: Callable[[], list[int]]
    rows: int = field(default=0)

    def append(self, count: int) -> None:
        low, self.rows = self.rows, self.rows + count
        numbers = pa.array(range(low, self.rows), pa.int64())
        self.table.append(pa.table({"id": numbers, "name": [f"n{one}" for one in range(count)]}))

    def expect_everything_once(self) -> None:
        assert self.ids() == list(range(self.rows))


@dataclass
class Lake:
    """The test catalog's table and how it is written in a manifest."""

    folder: Path
    server: devservers.SeaweedFS
    catalog: Catalog
    namespace: str

    def manifest(self, sink: str, **values: str) -> Path:
        values |= {"name": f"flow-{uuid.uuid4().hex[:8]}", "namespace": self.namespace}
        text = FROM_ICEBERG + sink
        return write(self.folder, text, limit=700, **values, **iceberg_values(self.server))

    def source(self) -> Table:
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        return self.catalog.create_table((self.namespace, "source"), schema)


@pytest.fixture
def kept(tmp_path: Path, seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str) -> Lake:
    return Lake(tmp_path, seaweedfs, catalog, namespace)


@pytest.fixture
def to_postgresql(kept: Lake, postgresql: devservers.PostgreSQL, schema: str) -> Copy:
    dsn, table = postgresql.dsn(), f"{schema}.target"

    def ids() -> list[int]:
        with psycopg.connect(dsn) as connection:
            return [int(row[0]) for row in connection.execute(f"select id from {table} order by 1")]

    return Copy(kept.manifest(TO_POSTGRESQL, dsn=dsn, table=table), kept.source(), ids)


@pytest.fixture
def to_iceberg(kept: Lake) -> Copy:
    def ids() -> list[int]:
        found = kept.catalog.load_table((kept.namespace, "target")).scan().to_arrow()
        return sorted(found.column("id").to_pylist())

    return Copy(kept.manifest(TO_ICEBERG), kept.source(), ids)


@pytest.mark.crash
@pytest.mark.e2e
@pytest.mark.parametrize(("target", "step"), STEPS)
def test_killed_at_a_step(
    target: str, step: str, request: pytest.FixtureRequest, command: Command
) -> None:
    flow: Copy = request.getfixturevalue(target)
    flow.append(6_000)  # three micro-batches of parts of 700
    flow.append(40)
    failpoint = {
        "DATAFLOW_FAILPOINT": f"{step}:kill:2",
        "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex,
    }
    killed = command.run("run", str(flow.manifest), **failpoint)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    flow.append(30)
    again = command.run("run", str(flow.manifest))
    assert again.returncode == 0, again.stderr
    flow.expect_everything_once()


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.e2e
def test_killed_at_random_moments_while_the_table_is_compacted(
    to_postgresql: Copy,
    kept: Lake,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    command: Command,
) -> None:
    seed = random.randrange(1 << 30)
    request.node.add_report_section("call", "seed", str(seed))
    chance = random.Random(seed)
    name = lake(spark, kept.server)
    which = f"table => '{kept.namespace}.source', options => map('rewrite-all', 'true')"
    for _ in range(3):
        to_postgresql.append(5_000)
        to_postgresql.append(20)
        process = command.start("run", str(to_postgresql.manifest))
        time.sleep(chance.uniform(1.0, 5.0))
        process.kill()
        process.communicate()
        spark.sql(f"call {name}.system.rewrite_data_files({which})").collect()
        to_postgresql.table.refresh()
    last = command.run("run", str(to_postgresql.manifest))
    assert last.returncode == 0, last.stderr
    to_postgresql.expect_everything_once()
