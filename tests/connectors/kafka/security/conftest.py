"""A broker with a listener for each way to encrypt and to authenticate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
    AdminClient,
    NewTopic,
)

import devservers
from dataflow_assets.connectors.kafka import client, create_topic, topics
from tests.connectors.kafka.security.secured import LONG, WAYS, Config


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[devservers.SecureKafka]:
    with devservers.SecureKafka(tmp_path_factory.mktemp("secure") / "kafka") as server:
        yield server


@pytest.fixture(scope="session")
def admin(broker: devservers.SecureKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid))}"
    admin.create_topics([NewTopic(name, 2)])[name].result(20)
    return name


@pytest.fixture
def end(broker: devservers.SecureKafka, way: str) -> Config:
    listener, config = WAYS[way]
    return {"brokers": [broker.at(listener)], **config(broker)}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is not there at once is waited for longer than a busy machine takes."""
    for module in (client, create_topic, topics):
        monkeypatch.setattr(module, "TIMEOUT", LONG)
