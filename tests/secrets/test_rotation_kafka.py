"""A broker's password, or a certificate, is replaced while a run reads and writes with it."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.secrets import Secrets
from devservers.certificates import Certificate
from devservers.secure_kafka import USERS
from tests import arrivals

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[devservers.SecureKafka]:
    with devservers.SecureKafka(tmp_path_factory.mktemp("secure") / "kafka") as server:
        yield server


def _topic(broker: devservers.SecureKafka) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    name = f"r_{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1)])[name].result(60)
    return name


def _produce(broker: devservers.SecureKafka, topic: str, numbers: range) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(topic, json.dumps({"id": number}).encode())
    assert producer.flush(60) == 0


def _replace(broker: devservers.SecureKafka, password: str) -> None:
    """From then on; a restart ends the connections that have logged in with the old one."""
    from confluent_kafka import admin as kafka

    mechanism = kafka.ScramMechanism.SCRAM_SHA_512  # type: ignore[attr-defined]
    info = kafka.ScramCredentialInfo(mechanism, 4096)  # type: ignore[attr-defined]
    change = kafka.UserScramCredentialUpsertion("flow", info, password.encode())  # type: ignore[attr-defined]
    admin = kafka.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.alter_user_scram_credentials([change])["flow"].result(60)
    broker.kill()
    broker.start()


def _ids(
    broker: devservers.SecureKafka,
    engine: SparkSession,
    place: dict[str, Any],
    renew: Callable[[], None],
) -> list[int]:
    """What a flow has written that read five records, met `renew`, and read five more."""
    read, written = _topic(broker), _topic(broker)
    source = KafkaSource.model_validate({**place, "topic": read, "consumerGroup": read})
    sink = KafkaSink.model_validate({**place, "topic": written})
    flow = Flow("shop", "a", source, (Branch(sink),), secrets=Secrets("shop"), hash="h")
    _produce(broker, read, range(5))
    done, over = 0, threading.Event()
    request = Request(
        seconds=300,
        patience=Patience(200, 0.2, 2),
        stop=lambda: "enough" if over.is_set() else None,
    )
    for report in drain(flow, lambda: engine, request):
        done += report.delta.rows
        if done == 5 and report.delta.rows:
            renew()
            _produce(broker, read, range(5, 10))
        elif done == 10:
            over.set()
    return [row["id"] for rows in arrivals.kafka(broker.bootstrap, written) for row in rows]


def test_a_run_goes_on_with_the_new_password(
    broker: devservers.SecureKafka,
    engine: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "shop/kafka/password"
    file.parent.mkdir(parents=True)
    file.write_text(USERS["flow"])
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))
    login = {"username": "flow", "passwordSecretRef": {"name": "kafka", "key": "password"}}
    place: dict[str, Any] = {
        "brokers": [broker.at("sasltls")],
        "tls": {"caFile": str(broker.authority.ca)},
        "sasl": {"mechanism": "scram-sha-512", **login},
    }

    def renew() -> None:
        _replace(broker, "another-pw")
        file.write_text("another-pw")

    assert _ids(broker, engine, place, renew) == [*range(10)]


def test_a_run_goes_on_with_a_certificate_that_is_renewed_in_place(
    broker: devservers.SecureKafka, engine: SparkSession, tmp_path: Path
) -> None:
    """As a kubelet does it: the paths stay, and the broker trusts the new CA only."""
    ca, cert, key = (tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key"))
    ca.write_bytes(broker.authority.ca.read_bytes())

    def show(issued: Certificate) -> None:
        cert.write_bytes(issued.cert.read_bytes())
        key.write_bytes(issued.key.read_bytes())

    def renew() -> None:
        broker.authority.ca.write_bytes(broker.foreign.ca.read_bytes())
        broker.kill()
        broker.start()
        show(broker.foreign.issue("flow"))

    show(broker.client)
    files = {"caFile": str(ca), "certFile": str(cert), "keyFile": str(key)}
    place = {"brokers": [broker.at("mtls")], "tls": files}
    assert _ids(broker, engine, place, renew) == [*range(10)]
