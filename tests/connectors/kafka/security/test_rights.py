"""The rights that a flow needs on a broker, and what happens without one of them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.contracts import Limit, OffsetSlice
from dataflow_assets.contracts.reading import Asked
from dataflow_assets.errors import PermanentError
from tests import ROOT
from tests.connectors.kafka.security.secured import (
    SOON,
    body,
    expect,
    is_clean,
    manifest,
    run,
    sasl,
    send,
)
from tests.connectors.kafka.topics import committed

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(240)]


def allow(
    admin: AdminClient,
    user: str,
    kind: ResourceType,
    name: str,
    rights: str,
    *,
    prefix: bool = False,
) -> None:
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    allowed = [
        AclBinding(
            kind, name, pattern, f"User:{user}", "*", AclOperation[right], AclPermissionType.ALLOW
        )
        for right in rights.split()
    ]
    for done in admin.create_acls(allowed).values():
        done.result(20)


_ACL = re.compile(r"^kafka-acls\.sh .*? --allow-principal User:flows (.*)$", re.MULTILINE)


_KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}


def commands(page: str) -> Iterator[tuple[ResourceType, str, str, bool]]:
    """What each `kafka-acls.sh` of a page allows: kind, name, rights, whether it is a prefix."""
    for options in _ACL.findall(page):
        words = options.split()
        rights = [words[at + 1] for at, word in enumerate(words) if word == "--operation"]
        upper = " ".join(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", right).upper() for right in rights)
        yield _KINDS[words[0]], words[1], upper, "prefixed" in words


def test_the_rights_that_the_docs_list_are_enough(
    broker: devservers.SecureKafka,
    admin: AdminClient,
    topic: str,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    """The commands of docs/permissions.md; docs/guarantees/kafka.md has the same as a table."""
    user, target, errors = "narrow", f"{topic}-to", f"{topic}-errors"
    here = {
        (ResourceType.TOPIC, "orders"): topic,
        (ResourceType.TOPIC, "orders-paid"): target,
        (ResourceType.TOPIC, "orders-paid.rejected"): errors,
        (ResourceType.GROUP, "orders-paid"): topic,
        (ResourceType.TRANSACTIONAL_ID, "default/orders"): "default/secured",
    }
    found = list(commands((ROOT / "docs/permissions.md").read_text(encoding="utf-8")))
    assert {(kind, name) for kind, name, _, prefix in found if not prefix} <= here.keys()
    assert len(found) == len(here) + 1  # and the checkpoint topics
    for kind, name, rights, prefix in found:
        allow(admin, user, kind, here.get((kind, name), name), rights, prefix=prefix)
    good = [body(number) for number in range(10)]
    send(broker, topic, [*good, b"no json", b"{}"])
    end = {"brokers": [broker.at("sasl")], **sasl("scram-sha-256", user)}
    flow = manifest(
        tmp_path,
        {**end, "topic": topic, "consumerGroup": topic, "startingOffsets": "group"},
        {"type": "kafka", "config": {**end, "topic": target, "autoCreateTopic": True}},
        transformations=[{"type": "validate", "config": {"schema": {"required": ["id"]}}}],
        errors={"type": "kafka", "config": {**end, "topic": errors}},
        maxRejectedPercent=100,
    )
    run(flow, engine)
    expect(broker, target, good)
    assert len(committed(broker.bootstrap, errors)) == 2


def test_a_client_that_may_describe_but_not_read(
    broker: devservers.SecureKafka, admin: AdminClient, topic: str, engine: SparkSession
) -> None:
    send(broker, topic, [body(0)])
    allow(admin, "stranger", ResourceType.TOPIC, topic, "DESCRIBE")
    config = {"brokers": [broker.at("sasl")], "topic": topic, **sasl("scram-sha-512", "stranger")}
    source = KafkaSource.model_validate(config | {"startingOffsets": "earliest"})
    session = source.open("default/f")
    span = session.plan(session.start(), Limit())
    asked = [
        Asked(source, session.identity, piece, frozenset(), at, len(span.slices))
        for at, piece in enumerate(span.slices)
        if isinstance(piece, OffsetSlice) and not piece.empty
    ]
    assert len(asked) == 1
    ((_, batches),) = source.messages_together(asked)
    with pytest.raises(PermanentError) as caught:
        list(batches)
    is_clean(caught.value, r"reading \S+ partition 0 from offset 0: .*grant this client")
    session.close()


@pytest.mark.usefixtures("patient")
def test_a_client_that_may_not_ask_its_group_goes_on(
    broker: devservers.SecureKafka, admin: AdminClient, topic: str
) -> None:
    """Nobody tells it of leaders, and nothing else is missing; a start needs the right."""
    send(broker, topic, [body(number) for number in range(4)])
    allow(admin, "stranger", ResourceType.TOPIC, topic, "READ DESCRIBE")
    config = {"brokers": [broker.at("sasl")], "topic": topic, **sasl("scram-sha-512", "stranger")}
    source = KafkaSource.model_validate(config | {"startingOffsets": "group"})
    session = source.open("default/f")
    began = time.monotonic()
    assert len(session.plan({"0": 1, "1": 0}, Limit()).slices) == 2
    assert time.monotonic() - began < SOON
    with pytest.raises(PermanentError, match="grant this client Read on the consumer group"):
        session.start()
    session.close()
