"""A real API server: objects are applied, run, edited, suspended and deleted, as by `kubectl`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.kubernetes.access import role, watching_rules
from dataflow_assets.kubernetes.crds import crds
from dataflow_assets.manifests.load import load
from dataflow_assets.secrets import cluster, cluster_api
from tests.conftest import Topics
from tests.dagster.flows import location
from tests.forked import Forked

pytestmark = [pytest.mark.full, pytest.mark.heavy, pytest.mark.timeout(600)]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FLOWS = "/apis/dataflow.dataflow.io/v1/namespaces/shop/dataflows"
ONE = f"{FLOWS}/orders"
FINALIZER = "dataflow.dataflow.io/finalizer"


@pytest.fixture
def cluster_flows(
    kubernetes: devservers.Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A pod of namespace shop, whose service account may do what is documented, and its flows."""
    account = tmp_path / "serviceaccount"
    account.mkdir()
    kubernetes.account(account, "shop", ("shop",))
    (account / "namespace").write_text("shop")
    for document in role("watch", "shop", watching_rules(), "shop/dataflow"):
        plural = f"{document['kind'].lower()}s"
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/shop/{plural}"
        kubernetes.put(path, document)
    for definition in crds():
        path = f"{CRDS}/{definition['metadata']['name']}"
        if kubernetes.answer("GET", path).status_code != 200:
            kubernetes.put(CRDS, definition)
    until(lambda: kubernetes.answer("GET", FLOWS).status_code == 200)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(kubernetes.ports["api"]))
    monkeypatch.setenv(cluster_api.ACCOUNT, str(account))
    monkeypatch.setenv("DATAFLOW_START", "1")
    cluster.forget()
    yield tmp_path / "flows"
    for item in kubernetes.answer("GET", FLOWS).json()["items"]:
        kubernetes.answer("DELETE", f"{FLOWS}/{item['metadata']['name']}")
    cluster.forget()


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with dg.DagsterInstance.get() as instance:
        yield instance


@pytest.fixture
def watching(cluster_flows: Path, instance: dg.DagsterInstance) -> Iterator[Callable[[], Forked]]:
    """Starts a watcher of the pod's namespace; several may run at once."""
    started: list[Forked] = []

    def start() -> Forked:
        arguments = ["k8s", "watch", str(cluster_flows)]
        started.append(Forked(arguments, cluster_flows.parent, os.environ))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait(30)


def until(reached: Callable[[], Any], seconds: float = 90) -> Any:
    """Returns the first answer that is true."""
    deadline = time.monotonic() + seconds
    while not (answer := reached()):
        assert time.monotonic() < deadline, "it was not reached"
        time.sleep(0.1)
    return answer


def document(name: str = "orders", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "source": {"type": "kafka", "config": {"brokers": ["b:9092"], "topic": "t"}},
            "sink": {
                "type": "postgresql",
                "config": {
                    "connectionStringSecretRef": {"name": "target", "key": "dsn"},
                    "table": "public.orders",
                    "autoCreateTable": True,
                },
            },
            **more,
        },
    }


def edit(kubernetes: devservers.Kubernetes, change: Callable[[dict[str, Any]], None]) -> None:
    """As `kubectl edit` does: again where somebody else has changed the object meanwhile."""

    def written() -> bool:
        current = kubernetes.answer("GET", ONE).json()
        change(current)
        return kubernetes.answer("PUT", ONE, current).status_code == 200

    until(written)


def reached(kubernetes: devservers.Kubernetes, phase: str) -> dict[str, Any]:
    """The status once it has a phase, and is about the object as it is now."""

    def look() -> dict[str, Any] | None:
        one = kubernetes.answer("GET", ONE).json()
        status: dict[str, Any] = one.get("status") or {}
        current = status.get("observedGeneration") == one["metadata"]["generation"]
        return status if current and status["phase"] == phase else None

    found: dict[str, Any] = until(look)
    return found


@pytest.mark.usefixtures("cluster_flows")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"source": {"type": "kafak", "config": {"a": 1}}},
            'spec.source.type: Unsupported value: "k',
        ),
        ({"sink": {"config": {"a": 1}}}, "spec.sink.type: Required value"),
        ({"replicas": -1}, "spec.replicas: Invalid value"),
        ({"transformations": [{"type": "sleect"}]}, "spec.transformations[0].type: Unsupported"),
        (
            {"errors": {"type": "kafka", "config": {"a": 1}, "ackPolicy": "no"}},
            "spec.errors.ackPol",
        ),
    ],
)
def test_the_api_server_refuses_what_the_definition_does(
    change: dict[str, Any], words: str, kubernetes: devservers.Kubernetes
) -> None:
    refused = kubernetes.answer("POST", FLOWS, document("refused", **change))
    assert refused.status_code == 422
    assert words in refused.json()["message"]


def test_an_object_is_applied_run_edited_suspended_and_deleted(
    kubernetes: devservers.Kubernetes,
    kafka: devservers.Kafka,
    postgresql: devservers.PostgreSQL,
    topic: Topics,
    schema: str,
    cluster_flows: Path,
    watching: Callable[[], Forked],
    instance: dg.DagsterInstance,
    engine: SparkSession,
) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in range(3):
        producer.produce(name, json.dumps({"id": n}))
    producer.flush(30)
    kubernetes.put_secret("shop", "target", dsn=postgresql.dsn())
    one = document()
    one["metadata"]["finalizers"] = [FINALIZER]
    config = {"brokers": [kafka.bootstrap], "topic": name, "consumerGroup": name}
    one["spec"]["source"]["config"] = config
    one["spec"]["sink"]["config"]["table"] = f"{schema}.orders"
    assert kubernetes.answer("POST", FLOWS, one).status_code == 201
    first, second = watching(), watching()
    assert reached(kubernetes, "Pending")["observedGeneration"] == 1

    (made,) = load([cluster_flows]).flows
    assert made.id == "shop/orders"
    job = location([made], engine).resolve_job_def("shop__orders_job")
    assert job.execute_in_process(instance=instance).success
    with psycopg.connect(postgresql.dsn()) as connection:
        assert connection.execute(f"SELECT count(*) FROM {schema}.orders").fetchone() == (3,)
    running = reached(kubernetes, "Running")
    assert (running["processedCount"], running["errorCount"]) == (3, 0)

    first.kill()  # the other one goes on, and a new one takes over what is there
    edit(kubernetes, lambda one: one["spec"].update(maintenance={"suspended": True}))
    stopped = reached(kubernetes, "Stopped")
    assert (stopped["processedCount"], stopped["maintenanceStatus"]["suspended"]) == (3, True)
    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0
    edit(kubernetes, lambda one: one["spec"]["sink"]["config"].update(tabel="x"))
    watching(), watching()
    wrong = reached(kubernetes, "Error")
    assert wrong["message"].startswith("spec.sink.config.tabel: unknown key; did you mean table")
    listed = kubernetes.answer("GET", "/api/v1/namespaces/shop/events").json()["items"]
    events = [each for each in listed if each["involvedObject"]["name"] == "orders"]
    assert [each["message"] for each in events] == [wrong["message"]]

    assert kubernetes.answer("DELETE", ONE).json()["metadata"]["finalizers"] == [FINALIZER]
    until(lambda: kubernetes.answer("GET", ONE).status_code == 404)
    until(lambda: not load([cluster_flows]).flows)
    with psycopg.connect(postgresql.dsn()) as connection:
        assert connection.execute(f"SELECT count(*) FROM {schema}.orders").fetchone() == (3,)


def test_the_server_may_go_and_come_back(
    kubernetes: devservers.Kubernetes, cluster_flows: Path, watching: Callable[[], Forked]
) -> None:
    assert kubernetes.answer("POST", FLOWS, document()).status_code == 201
    watching()
    reached(kubernetes, "Pending")
    kubernetes.kill()
    kubernetes.start()
    assert [flow.id for flow in load([cluster_flows]).flows] == ["shop/orders"]
    edit(kubernetes, lambda one: one["spec"].update(replicas=0))
    assert reached(kubernetes, "Stopped")["message"] == "Processor scaled to zero replicas"


@pytest.mark.usefixtures("cluster_flows")
def test_the_status_of_the_operator_is_replaced_where_it_stands(
    kubernetes: devservers.Kubernetes, watching: Callable[[], Forked]
) -> None:
    """Without a change to the manifest."""
    assert kubernetes.answer("POST", FLOWS, document()).status_code == 201
    one = kubernetes.answer("GET", ONE).json()
    one["status"] = {
        "phase": "Error",
        "message": "No replicas available",
        "conditions": [
            {
                "type": "ProcessorDeploymentReady",
                "status": "False",
                "reason": "NotReady",
                "message": "",
                "lastTransitionTime": "2026-01-31T00:00:00Z",
            }
        ],
    }
    assert kubernetes.answer("PUT", f"{ONE}/status", one).status_code == 200
    watching()
    assert [each["type"] for each in reached(kubernetes, "Pending")["conditions"]] == [
        "Ready",
        "SpecResolved",
    ]
