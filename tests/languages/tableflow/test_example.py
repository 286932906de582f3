"""The file of the original documentation against real Kafka and a real store.

Only the hosts, the bucket and, because no public authority has signed the broker's certificate, its
CA are this test's own.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
    AdminClient,
    NewTopic,
)
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Request
from devservers.secure_kafka import USERS
from tests import ROOT
from tests.languages.tableflow.files import Bucket

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

LOGS, EVENTS = "example_json_logs_topic", "example_avro_events_topic"
EVENT = {
    "event_id": "e",
    "session_id": "s",
    "profile": {"country": "CH", "language": "de"},
    "device": {
        "type": "phone",
        "os": {"name": "os", "version": "1", "vendor": None},
        "browser": {"name": "b", "version": "2"},
        "screen": {"width": 640, "height": 480, "pixel_ratio": 1.5},
        "model": "m",
    },
    "cookies": ["a", "b"],
    "event_attributes": {"k": "v"},
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[devservers.SecureKafka]:
    with devservers.SecureKafka(tmp_path / "kafka") as server:
        yield server


@pytest.fixture
def path(
    broker: devservers.SecureKafka, s3: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    text = (ROOT / "examples" / "tableflow" / "tableflow.yaml").read_text()
    secure = broker.at("sasltls")
    for name, address in (
        ("localhost", broker.bootstrap),
        ("broker1.kafkaserver.com", secure),
        ("broker2.kafkaserver.com", secure),
    ):
        host, _, port = address.rpartition(":")
        given = f"hostname: {name}\n        port: 9092"
        assert given in text
        text = text.replace(given, f"hostname: {host}\n        port: {port}")
    text = text.replace("use_tls: true", "use_tls: true\n      mtls_server_ca_cert_env: CA_PATH")
    path = tmp_path / "tableflow.yaml"
    path.write_text(text.replace("s3://my-bucket-name", s3.url))
    monkeypatch.setenv("TABLEFLOW_SASL_USERNAME_ENV_VAR", "flow")
    monkeypatch.setenv("SASL_PASSWORD_ENV_VAR", USERS["flow"])
    monkeypatch.setenv("TABLEFLOW_CA_PATH", str(broker.authority.ca))
    return path


def _produce(broker: devservers.SecureKafka, flows: dict[str, Flow], count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, 3) for name in (LOGS, EVENTS)]).values():
        made.result(20)
    source: Any = flows[EVENTS].source
    schema = fastavro.parse_schema(json.loads(source.avro_schema))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 20})
    for number in range(count):
        log = {"environment": "prod", "service": "s", "status": "ok", "message": str(number)}
        producer.produce(LOGS, json.dumps(log), partition=number % 3)
        out = io.BytesIO(b"\0\0\0\0\1")
        out.seek(5)
        fastavro.schemaless_writer(out, schema, EVENT | {"user_id": number})
        producer.produce(EVENTS, out.getvalue(), partition=number % 3)
        producer.poll(0)
    producer.flush(30)


@pytest.mark.parametrize(
    "count", [3_000, pytest.param(9_000, marks=pytest.mark.full, id="by Spark's own reader")]
)
def test_it_runs(
    path: Path, broker: devservers.SecureKafka, s3: Bucket, engine: SparkSession, count: int
) -> None:
    loaded = load(path)
    assert (loaded.findings, loaded.hints) == ((), ())
    flows = {flow.source.address().name: flow for flow in loaded.flows}
    _produce(broker, flows, count)
    for _ in range(2):
        for flow in flows.values():
            for _ in drain(flow, lambda: engine, Request()):
                pass
    logs = s3.table(f"tableflow_cluster_1+{LOGS}").scan().to_arrow().to_pylist()
    assert sorted(int(row["message"]) for row in logs) == list(range(count))
    assert {(row["environment"], row["service"], row["status"]) for row in logs} == {
        ("prod", "s", "ok")
    }
    table = s3.table(f"tableflow_cluster_2+{EVENTS}")
    events = table.scan().to_arrow().to_pylist()
    assert sorted(row.pop("user_id") for row in events) == list(range(count))
    assert all(row == EVENT | {"event_attributes": [("k", "v")]} for row in events)
    schema = table.schema()
    names = {number: schema.find_column_name(number) for number in sorted(schema.field_ids)}
    assert list(names) == list(range(1, 26))
    assert (names[18], names[25]) == ("device.screen.pixel_ratio", "device.os.vendor")
