"""Secrets from a real API server of Kubernetes, asked as a process in a pod asks it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.secrets import SecretRef, Secrets, cluster, cluster_api
from dataflow_assets.testing import choose

pytestmark = [pytest.mark.full, pytest.mark.heavy, pytest.mark.timeout(600)]

REF = SecretRef(name="pg", key="dsn")
VARIABLE = "DATAFLOW_SECRET__SHOP__PG__DSN"


@pytest.fixture
def pod(
    kubernetes: devservers.Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """What Kubernetes mounts into a pod of namespace `shop`, whose account reads its Secrets."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    kubernetes.account(folder, "shop", ("shop",))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(kubernetes.ports["api"]))
    monkeypatch.setenv(cluster_api.ACCOUNT, str(folder))
    cluster.forget()
    yield folder
    cluster.forget()


def test_the_order_of_the_places(
    kubernetes: devservers.Kubernetes, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has another value; what is there is taken verbatim, with the newline at its end."""
    kubernetes.put_secret("shop", "pg", dsn="of the API: äöü\n")
    mounts = pod.parent / "mounts"
    (mounts / "shop/pg").mkdir(parents=True)
    (mounts / "shop/pg/dsn").write_text("mounted\n")
    monkeypatch.setenv("DATAFLOW_SECRETS", str(mounts))
    monkeypatch.setenv(VARIABLE, "of the environment\n")
    document = Secrets("shop", {("shop", "pg"): {"dsn": SecretStr("of the document\n")}})
    assert document.get(REF) == "of the API: äöü\n"
    kubernetes.delete_secret("shop", "pg")
    cluster.forget()
    assert document.get(REF) == "of the document\n"
    assert Secrets("shop").get(REF) == "mounted\n"
    (mounts / "shop/pg/dsn").unlink()
    assert Secrets("shop").get(REF) == "of the environment\n"
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(PermanentError) as caught:
        Secrets("shop").get(REF)
    assert str(caught.value) == (
        "failed to get secret shop/pg (key dsn): the Kubernetes API has no secret shop/pg, "
        "and no Secret document of that name is in the manifest's folder, "
        f"and DATAFLOW_SECRETS ({mounts}) has no file shop/pg/dsn of its own, "
        f"and the environment has no {VARIABLE}"
    )


@pytest.mark.usefixtures("pod")
def test_a_key_that_the_secret_does_not_have(kubernetes: devservers.Kubernetes) -> None:
    kubernetes.put_secret("shop", "keys", url="x", user="y")
    with pytest.raises(PermanentError) as caught:
        Secrets("shop").get(SecretRef(name="keys", key="dsn"))
    assert str(caught.value) == (
        "key dsn not found in secret shop/keys of the Kubernetes API; it has the keys url, user"
    )


@pytest.mark.usefixtures("pod")
def test_a_namespace_without_the_right_is_named(
    kubernetes: devservers.Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allowed by the variable, but by no role of the cluster."""
    kubernetes.put_secret("other", "pg", dsn="x")
    ref = SecretRef(name="pg", key="dsn", namespace="other")
    with pytest.raises(PermanentError) as caught:
        Secrets("shop").get(ref)
    assert str(caught.value) == (
        "secret other/pg must not be used: it is in namespace other, the flow in shop; other "
        "namespaces must be listed in DATAFLOW_SECRET_NAMESPACES (not set), separated by commas, "
        "or `*` for all"
    )
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", "other")
    with pytest.raises(PermanentError) as caught:
        Secrets("shop").get(ref)
    assert str(caught.value).startswith(
        "failed to get secret other/pg (key dsn): the Kubernetes API refused secret other/pg: "
        '403 secrets "pg" is forbidden: User "system:serviceaccount:shop:dataflow" cannot get '
        'resource "secrets" in API group "" in the namespace "other", and no Secret document'
    )


def test_a_namespace_that_is_allowed_twice_is_read(
    kubernetes: devservers.Kubernetes, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes.account(pod, "shop", ("shared",))
    kubernetes.put_secret("shared", "pg", dsn="shared by all")
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", "shared")
    found = Secrets("shop").get(SecretRef(name="pg", key="dsn", namespace="shared"))
    assert found == "shared by all"


def test_a_token_that_is_valid_no_more_is_named(
    kubernetes: devservers.Kubernetes, pod: Path
) -> None:
    """Then the kubelet writes a new one, which is used without a restart."""
    kubernetes.put_secret("shop", "pg", dsn="x")
    good = (pod / "token").read_text()
    foreign = kubernetes.token("shop", audiences=["vault"])
    for bad in (foreign, good[:-6], "none"):
        (pod / "token").write_text(bad)
        cluster.forget()
        with pytest.raises(TransientError, match=r"shop/pg cannot be read .+: 401 Unauthorized"):
            Secrets("shop").get(REF)
    (pod / "token").write_text(kubernetes.token("shop"))
    cluster.forget()
    assert Secrets("shop").get(REF) == "x"


def test_a_server_that_is_gone_is_asked_again(kubernetes: devservers.Kubernetes, pod: Path) -> None:
    """Another place may have an older value: none is taken instead."""
    kubernetes.put_secret("shop", "pg", dsn="x")
    document = Secrets("shop", {("shop", "pg"): {"dsn": SecretStr("old")}})
    kubernetes.kill()
    with pytest.raises(TransientError, match=r"the Kubernetes API at https://127.+ cannot be ask"):
        document.get(REF)
    kubernetes.start()
    kubernetes.account(pod, "shop", ("shop",))
    assert document.get(REF) == "x"


MANIFEST = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: rotated, namespace: shop}}
spec:
  source: {{type: memory-offsets, config: {{store: {store}, topic: t}}}}
  sink:
    type: postgresql
    config:
      connectionStringSecretRef: {{name: target, key: dsn}}
      table: flow.orders
      autoCreateTable: true
"""


@pytest.mark.usefixtures("pod")
def test_a_run_goes_on_with_a_password_that_is_replaced(
    kubernetes: devservers.Kubernetes,
    locked: devservers.PostgreSQL,
    store: Store,
    tmp_path: Path,
    engine: SparkSession,
) -> None:
    """The server ends the connections of the run when its password is replaced."""
    change = _changing(locked, kubernetes)
    change("first")
    name = store.name
    (tmp_path / "flow.yaml").write_text(MANIFEST.format(store=name))
    flow = choose(load(tmp_path / "flow.yaml"), None)
    _produce(store, 0)
    done, over = 0, threading.Event()
    request = Request(
        seconds=120,
        patience=Patience(60, 0.05, 0.2),
        stop=lambda: "over" if over.is_set() else None,
    )
    for report in drain(flow, lambda: engine, request):
        done += report.delta.rows
        if done == 5 and report.delta.rows:
            change("second")
            _produce(store, 5)
        elif done == 10:
            over.set()
    with psycopg.connect(locked.dsn()) as connection:
        found = connection.execute("SELECT id FROM flow.orders ORDER BY id").fetchall()
    assert found == [(number,) for number in range(10)]


def _produce(store: Store, first: int) -> None:
    store.produce("t", 0, [json.dumps({"id": first + n}).encode() for n in range(5)])


def _changing(
    server: devservers.PostgreSQL, kubernetes: devservers.Kubernetes
) -> Callable[[str], None]:
    def change(password: str) -> None:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(f"ALTER ROLE flow PASSWORD '{password}'".encode())
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'flow'"
            )
        dsn = f"postgresql://flow:{password}@127.0.0.1:{server.port}/postgres"
        kubernetes.put_secret("shop", "target", dsn=dsn)

    return change
