"""Clients that a process keeps connected: those that somebody uses, and no others. No broker."""

from __future__ import annotations

import os
import time

import pytest

from dataflow_assets.connectors.kafka import warm_clients
from dataflow_assets.connectors.kafka.cluster import Cluster, security
from dataflow_assets.connectors.kafka.consumers import Consumers
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.sink.last_record import Readers
from dataflow_assets.connectors.kafka.source import confirm, small_spans
from dataflow_assets.connectors.kafka.warm_clients import WarmClients
from dataflow_assets.contracts import Target

NOWHERE = "127.0.0.2:1"  # whose clients no other test leaves behind
TARGET = Target("ns/flow", "kafka", "h", "t")


def login(password: str, user: str = "flow", bootstrap: str = NOWHERE) -> Cluster:
    sasl = {"mechanism": "PLAIN", "username": user, "password": password}
    return Cluster(bootstrap, security("SASL_PLAINTEXT", None, sasl))


def test_flows_with_two_passwords_of_one_user_keep_their_clients() -> None:
    """As two policies of a namespace of Azure Event Hubs, or until each flow has opened again."""
    made, closed = list[str](), list[str]()
    clients = WarmClients(closed.append)

    def of(password: str) -> str:
        def make() -> str:
            made.append(password)
            return password

        return clients.of(login(password), make)

    assert [of(password) for password in "ab" * 10] == [*"ab" * 10]
    assert (made, closed) == (["a", "b"], [])


def test_a_client_that_nobody_uses_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that is asked for, however long nobody has asked."""
    closed: list[str] = []
    clients = WarmClients(closed.append)
    clients.of(Cluster("first:1"), lambda: "first")
    clients.of(Cluster("other:1"), lambda: "other")
    assert not closed
    monkeypatch.setattr(warm_clients, "UNUSED_SECONDS", -1.0)
    assert clients.of(Cluster("first:1"), lambda: "another one") == "first"
    assert closed == ["other"]


def test_a_client_whose_login_was_refused_is_closed_once_another_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warm_clients, "LOOK_SECONDS", 0.0)
    closed, denied = list[str](), set[str]()
    clients = WarmClients(closed.append, denied.__contains__)
    clients.of(login("a"), lambda: "a")
    clients.of(login("b"), lambda: "b")
    denied.add("a")
    assert clients.of(login("a"), lambda: "another one") == "a"
    clients.of(login("b"), lambda: "another one")
    assert closed == ["a"]


def test_refusals_are_looked_for_once_a_second() -> None:
    """There may be hundreds of clients, and each is asked."""
    asked = list[str]()

    def refused(client: str) -> bool:
        asked.append(client)
        return False

    clients = WarmClients(refused=refused)
    for password in "abc" * 5:
        clients.of(login(password), lambda: "one")
    assert len(asked) <= 2


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        (login("new"), False),
        (login("new", user="other"), True),
        (login("new", bootstrap="127.0.0.3:1"), True),
        (login("old"), True),
    ],
    ids=["password", "user", "brokers", "way"],
)
def test_a_password_that_was_replaced_is_given_up_sooner(
    other: Cluster, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both are used, both stay."""
    closed: list[str] = []
    clients, now = WarmClients(closed.append), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clients.of(login("old"), lambda: "old")
    now += warm_clients.REPLACED_SECONDS
    clients.of(other, lambda: "other", "another way")
    assert not closed
    now += 1
    clients.of(other, lambda: "other", "another way")
    assert closed == ([] if kept else ["old"])


def test_a_fork_leaves_its_parents_clients_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    clients = WarmClients(closed.append)
    clients.of(login("a"), lambda: "the parent's")
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert clients.of(login("a"), lambda: "the fork's") == "the fork's"
    monkeypatch.setattr(warm_clients, "UNUSED_SECONDS", -1.0)
    clients.of(login("b", "other"), lambda: "newer")
    assert closed == ["the fork's"]


def test_whatever_a_process_keeps_is_closed_once_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tasks read, where they ask for topics, where checkpoints are looked at."""
    pools = WarmClients(Consumers.leave)
    monkeypatch.setattr(small_spans, "_pools", pools)
    monkeypatch.setattr(warm_clients, "UNUSED_SECONDS", -1.0)
    for user in "abcde":
        small_spans._assign(login("p", user), [], {})
        confirm._broker(login("p", user), "t")
        CheckpointTopic.of(login("p", user), TARGET)
    keys: list[tuple[object, ...]] = [*Consumers._open, *Readers._open, *confirm._brokers._kept]
    clusters = [part for key in keys for part in key if isinstance(part, Cluster)]
    assert [one for one in clusters if one.bootstrap == NOWHERE] == [login("p", "e")] * 3
    for pool, _ in pools._kept.values():
        pool.leave()
