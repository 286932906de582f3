"""Manifests, records and runs of the end-to-end suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from confluent_kafka import Producer

import devservers
from tests import ROOT
from tests.forked import Forked

FROM_KAFKA = """
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: {name}
spec:
  maxRecordsPerBatch: {limit}
  source:
    type: kafka
    config:
      brokers: ["{bootstrap}"]
      topic: {topic}
      consumerGroup: {name}
"""

KAFKA_TO_POSTGRESQL = (
    FROM_KAFKA
    + """\
  sink:
    type: postgresql
    config:
      connectionString: {dsn}
      table: {table}
"""
)

KAFKA_TO_KAFKA = (
    FROM_KAFKA
    + """\
  sink:
    type: kafka
    config:
      brokers: ["{bootstrap}"]
      topic: {target}
      keyField: id
"""
)

KAFKA_TO_ICEBERG = (
    FROM_KAFKA
    + """\
  sink:
    type: iceberg
    config:
      catalogURI: {uri}
      warehouse: {warehouse}
      namespace: {namespace}
      table: {table}
      oauth2ClientID: {access_key}
      oauth2ClientSecret: {secret_key}
      s3Endpoint: {s3_endpoint}
      s3Region: us-east-1
      accessKey: {access_key}
      secretAccessKey: {secret_key}
      autoCreateTable: true
"""
)

KAFKA_TO_CLICKHOUSE = (
    FROM_KAFKA
    + """\
  sink:
    type: clickhouse
    config:
      connectionString: {dsn}
      table: {table}
      autoCreateTable: true
"""
)

KAFKA_TO_ICEBERG_UPSERT = (
    KAFKA_TO_ICEBERG
    + """\
      upsertMode: true
      conflictKey: id
      partitionBy: "bucket(2, id)"
"""
)


def record(number: int) -> bytes:
    return json.dumps({"id": number, "name": f"name-{number}", "nested": {"n": number}}).encode()


def produce(
    kafka: devservers.Kafka, topic: str, bodies: Iterable[bytes], partitions: int = 2
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "linger.ms": 20})
    for index, body in enumerate(bodies):
        producer.produce(topic, body, partition=index % partitions)
        producer.poll(0)
    assert producer.flush(60) == 0


@dataclass(frozen=True)
class Command:
    """The `dataflow` command in a process of its own, on the session's Spark server."""

    spark: str

    def start(self, *arguments: str, **environment: str) -> Forked:
        return Forked(arguments, ROOT, self._environment(environment))

    def spawn(
        self, *arguments: str, log: IO[str] | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """A process as a person starts it; what it prints goes to `log`, else into pipes."""
        return subprocess.Popen(
            [sys.executable, "-m", "dataflow_assets.cli", *arguments],
            cwd=ROOT,
            env=self._environment({"PYTHONFAULTHANDLER": "1", **(env or {})}),
            stdout=log or subprocess.PIPE,
            stderr=log or subprocess.PIPE,
            text=True,
        )

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, "DATAFLOW_SPARK": self.spark, **more}

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=180)
        assert process.returncode is not None
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def write(folder: Path, template: str, **values: Any) -> Path:
    path = folder / "flow.yaml"
    path.write_text(template.format(**values))
    return path


def iceberg_values(seaweedfs: devservers.SeaweedFS) -> Mapping[str, str]:
    return {
        "uri": seaweedfs.uri,
        "warehouse": seaweedfs.warehouse,
        "access_key": seaweedfs.access_key,
        "secret_key": seaweedfs.secret_key,
        "s3_endpoint": seaweedfs.s3_endpoint,
    }
