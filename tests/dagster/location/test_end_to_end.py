"""From a manifest to a table through Dagster, on real servers; and what secrets leave behind."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from confluent_kafka import Producer

import definitions
import devservers
from tests.conftest import Topics

SECRET = "hunter22-planted"
MANIFEST = """\
apiVersion: v1
kind: Secret
metadata: {{name: shop}}
stringData:
  dsn: {dsn}
---
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: orders
  annotations:
    dataflow-assets/source-connection: events
    dataflow-assets/sink-connection: shop
spec:
  source:
    type: kafka
    config: {{brokers: ["{brokers}"], topic: {topic}, consumerGroup: {topic}}}
  sink:
    type: postgresql
    config:
      connectionStringSecretRef: {{name: shop, key: dsn}}
      table: {schema}.orders
      autoCreateTable: true
      upsertMode: true
      conflictKey: id
"""
DAILY = """\
import dagster as dg
from pyspark.sql import DataFrame


@dg.asset(
    key=["postgresql", "shop", "{schema}", "by_country"],
    ins={{"orders": dg.AssetIn(key=["postgresql", "shop", "{schema}", "orders"])}},
    io_manager_key="postgresql",
)
def by_country(orders: DataFrame) -> DataFrame:
    return orders.groupBy("country").count()
"""


@pytest.mark.e2e
def test_a_manifest_and_a_users_asset_become_tables(
    tmp_path: Path,
    kafka: devservers.Kafka,
    postgresql: devservers.PostgreSQL,
    spark_server: devservers.SparkConnect,
    topic: Topics,
    schema: str,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DATAFLOW_SPARK", spark_server.remote)
    name = topic(partitions=2)
    dsn = postgresql.dsn().replace("postgres@", f"postgres:{SECRET}@")
    text = MANIFEST.format(dsn=dsn, brokers=kafka.bootstrap, topic=name, schema=schema)
    (tmp_path / "orders.yaml").write_text(text)
    (tmp_path / "by_country.py").write_text(DAILY.format(schema=schema))
    produce(kafka, name, [{"id": i % 50, "country": "DE" if i % 2 else "FR"} for i in range(100)])
    defs = definitions.build([tmp_path])

    first = _materialize(defs, instance)
    assert first.success
    assert _select(postgresql, f"SELECT count(*) FROM {schema}.orders") == [(50,)]
    assert _select(postgresql, f"SELECT * FROM {schema}.by_country ORDER BY 1") == [
        ("DE", 25),
        ("FR", 25),
    ]
    key = dg.AssetKey(["postgresql", "shop", schema, "orders"])
    record = instance.fetch_materializations(key, limit=1).records[0]
    event: Any = record.asset_materialization
    assert event.metadata["rows"].value == 100
    columns = {c.name: c.type for c in event.metadata["dagster/column_schema"].value.columns}
    assert {"id", "country"} <= set(columns)

    seen = "\n".join(map(str, instance.all_logs(first.run_id)))
    seen += "".join(capfd.readouterr()) + spark_server.log.read_text(errors="replace")
    seen += str([instance.get_run_by_id(first.run_id)])
    assert SECRET not in seen


def produce(kafka: devservers.Kafka, topic: str, records: list[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for record in records:
        producer.produce(topic, json.dumps(record), key=str(record["id"]))
    assert producer.flush(30) == 0


def _materialize(defs: dg.Definitions, instance: dg.DagsterInstance) -> Any:
    job = defs.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, raise_on_error=False)


def _select(postgresql: devservers.PostgreSQL, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()
