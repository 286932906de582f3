"""Objects of a cluster run in Dagster as flows, and their statuses tell how they stand there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets.standings import Standing, standings
from dataflow_assets.cli import main
from dataflow_assets.connectors.memory import Store
from dataflow_assets.errors import TransientError
from dataflow_assets.kubernetes.watcher import Watcher
from dataflow_assets.manifests.load import load
from dataflow_assets.secrets.cluster_api import Answer
from tests.dagster.flows import location
from tests.kubernetes.objects import flow
from tests.kubernetes.stand_in import StandIn, items


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """The Dagster of DAGSTER_HOME, in which all switches are on."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("DATAFLOW_START", "1")
    with dg.DagsterInstance.get() as instance:
        yield instance


class Watched:
    """A watcher of namespace shop, what it has said, and the statuses that it has written."""

    def __init__(self, api: StandIn, folder: Path, known: Any = standings) -> None:
        self.api, self.lines = api, list[str]()
        self.watcher = Watcher(folder, ["shop"], known, self.lines.append)

    def look(self, *documents: Any) -> dict[str, Any]:
        """Lists these objects, and returns the statuses that were written then, by name."""
        self.api.requests.clear()
        for one in self.watcher._collections:
            mine = [doc for doc in documents if doc["kind"] == one.resource.kind]
            self.api.lists = [items(*mine)]
            one.list_objects()
        self.watcher.look()
        patches = [one for one in self.api.written if one[1].endswith("/status")]
        return {path.split("/")[-2]: body["status"] for _, path, body in patches}


def test_an_object_runs_and_its_status_counts(
    api: StandIn,
    store: Store,
    tmp_path: Path,
    instance: dg.DagsterInstance,
    engine: SparkSession,
) -> None:
    folder = tmp_path / "flows"
    store.produce("orders", 0, [json.dumps({"id": n}).encode() for n in range(3)] + [b"{bad"])
    document = flow(store, onRejected="table", maxRejectedPercent=100)
    watched = Watched(api, folder)
    pending = watched.look(document)["orders"]
    assert (pending["phase"], pending["processedCount"]) == ("Pending", None)
    (made,) = load([folder]).flows
    job = location([made], engine).resolve_job_def("shop__orders_job")
    assert job.execute_in_process(instance=instance).success
    running = watched.look(document | {"status": pending})["orders"]
    assert (running["phase"], running["processedCount"], running["errorCount"]) == ("Running", 3, 1)
    assert running["lastProcessedTime"] is not None
    assert watched.look(document | {"status": running}) == {}
    suspended = flow(store, maintenance={"suspended": True}) | {"status": running}
    stopped = watched.look(suspended)["orders"]
    assert (stopped["phase"], stopped["processedCount"]) == ("Stopped", 3)
    assert (folder / ".complete").exists()


def test_an_object_with_a_schedule_tells_how_its_runs_end(
    api: StandIn,
    store: Store,
    tmp_path: Path,
    instance: dg.DagsterInstance,
    engine: SparkSession,
) -> None:
    store.produce("orders", 0, [b'{"id": 1}'])
    document = flow(store, schedule="0 3 * * *", timeZone="UTC") | {"kind": "DataFlowCron"}
    watched = Watched(api, tmp_path)
    assert watched.look(document)["orders"]["phase"] == "Pending"
    (made,) = load([tmp_path]).flows
    job = location([made], engine).resolve_job_def("shop__orders_job")
    ticked = {"dagster/schedule_name": "shop__orders_cron_schedule"}
    assert job.execute_in_process(instance=instance, tags=ticked).success
    completed = watched.look(document)["orders"]
    assert (completed["phase"], completed["processedCount"]) == ("Completed", 1)
    assert completed["lastScheduleTime"] <= completed["lastSuccessfulTime"]
    assert completed["lastFailedTime"] is None
    assert completed["message"].startswith("the next run starts at 20")


def test_a_mistake_is_a_status_and_hinders_no_other(
    api: StandIn, store: Store, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    statuses = Watched(api, tmp_path / "flows").look(
        flow(store), flow(store, "people", freshness=0), flow(store, "broken", sorce={})
    )
    assert {name: one["phase"] for name, one in statuses.items()} == {
        "orders": "Pending",
        "people": "Error",
        "broken": "Error",
    }
    assert statuses["broken"]["message"].startswith("spec.sorce: unknown key")
    events = [body for method, _, body in api.written if method == "POST"]
    assert sorted(one["involvedObject"]["name"] for one in events) == ["broken", "people"]


def test_a_deleted_object_is_a_flow_no_more(api: StandIn, store: Store, tmp_path: Path) -> None:
    watched = Watched(api, tmp_path, lambda _: {})
    document = flow(store)
    watched.look(document)
    assert [one.id for one in load([tmp_path]).flows] == ["shop/orders"]
    own = "dataflow.dataflow.io/finalizer"
    ending = {"deletionTimestamp": "2026-01-31T00:00:00Z", "finalizers": [own]}
    document["metadata"] |= ending | {"resourceVersion": "9"}
    assert watched.look(document)["orders"]["phase"] == "Stopped"
    assert load([tmp_path]).flows == ()
    assert api.written[-1][2]["metadata"]["finalizers"] == []
    assert watched.lines[-1] == "shop/orders: its finalizers are taken off"


def test_files_stay_until_the_objects_are_known(api: StandIn, store: Store, tmp_path: Path) -> None:
    Watched(api, tmp_path, None).look(flow(store))
    again = Watched(api, tmp_path, None)
    api.lists = [Answer(503, {})] * 2
    with pytest.raises(TransientError):
        again.watcher._collections[0].list_objects()
    again.watcher.look()
    assert [one.id for one in load([tmp_path]).flows] == ["shop/orders"]
    assert again.look() == {}
    assert load([tmp_path]).flows == ()


def test_one_that_only_keeps_files_writes_nothing(
    api: StandIn, store: Store, tmp_path: Path
) -> None:
    Watched(api, tmp_path, None).look(flow(store), flow(store, "broken", freshness=0))
    assert api.written == []
    assert len([*tmp_path.rglob("*.yaml")]) == 2


def test_what_cannot_be_written_is_said_once_and_hinders_no_other(
    api: StandIn, store: Store, tmp_path: Path
) -> None:
    watched = Watched(api, tmp_path, lambda _: {"shop/orders": Standing(rows=1)})
    refused = Answer(403, {"message": "cannot patch"})
    for _ in range(2):
        api.writes = [refused, Answer(200, {})]
        statuses = watched.look(flow(store), flow(store, "people"))
        assert statuses.keys() == {"orders", "people"}
    said = [line for line in watched.lines if line.startswith("statuses cannot be written")]
    assert len(said) == 1
    assert said[0].endswith(
        "shop/dataflows/orders/status is refused by the Kubernetes API: 403 cannot patch"
    )


def test_an_object_that_nobody_can_describe_hinders_no_other(
    api: StandIn, store: Store, tmp_path: Path
) -> None:
    watched = Watched(api, tmp_path, lambda _: {})
    odd = flow(store) | {"status": {"conditions": "none"}}
    assert watched.look(odd, flow(store, "people")).keys() == {"people"}
    assert "shop/orders: " in watched.lines[-1]


def test_a_storage_that_cannot_be_read_is_said_and_files_are_written_all_the_same(
    api: StandIn, store: Store, tmp_path: Path
) -> None:
    def known(_: object) -> Any:
        raise OSError("no such host")

    watched = Watched(api, tmp_path, known)
    assert watched.look(flow(store)) == {}
    assert watched.lines[-1].endswith("DAGSTER_HOME cannot be read: OSError: no such host")
    assert [one.id for one in load([tmp_path]).flows] == ["shop/orders"]


@pytest.mark.parametrize(
    ("inside", "arguments", "words"),
    [
        (False, [], "this process is not in a Kubernetes cluster"),
        (True, [], "DAGSTER_HOME is not set, and statuses are made of what Dagster knows"),
    ],
)
def test_what_the_command_needs(
    inside: bool,
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1" if inside else "")
    (tmp_path / "token").write_text("x")
    monkeypatch.setenv("DATAFLOW_SERVICE_ACCOUNT", str(tmp_path))
    assert main(["k8s", "watch", str(tmp_path / "flows"), *arguments]) == 1
    assert words in capsys.readouterr().err
