"""Triggers that only Dagster can run: jobs and assets of the location, Jobs of Kubernetes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets.stopping import Interrupts
from dataflow_assets.assets.triggers import run_in_dagster
from dataflow_assets.connectors.memory import Store
from dataflow_assets.errors import PermanentError
from dataflow_assets.location.jobs.failures import FAILED_RUN, failure_job
from dataflow_assets.location.sensors.failures import failure_sensors
from dataflow_assets.schedules.trigger import Trigger
from tests.dagster.schedules.scheduled import Scheduled, shell


@pytest.fixture
def cron(
    store: Store, instance: dg.DagsterInstance, engine: SparkSession, tmp_path: Path
) -> Scheduled:
    return Scheduled(store, instance, engine, tmp_path)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> mock.Mock:
    """As inside a pod; the API server is one that says that each Job has succeeded."""
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("DATAFLOW_SERVICE_ACCOUNT", str(tmp_path))
    client = mock.Mock()
    client.wait_for_job_to_have_pods.return_value = [mock.Mock()]
    monkeypatch.setattr("kubernetes.config.load_incluster_config", mock.Mock())
    monkeypatch.setattr("kubernetes.watch.Watch", _Silent)
    made = "dagster_k8s.client.DagsterKubernetesClient.production_client"
    monkeypatch.setattr(made, lambda *_, **__: client)
    return client


class _Silent:
    """The log of a pod that has said nothing."""

    def stream(self, *_: Any, **__: Any) -> Any:
        return iter(())


SECRET = {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "shop", "key": "password"}}}


def test_in_a_cluster_a_trigger_is_a_job_of_the_flows_namespace(
    cron: Scheduled, cluster: mock.Mock
) -> None:
    limits = {"limits": {"memory": "1Gi"}}
    cron.triggers(
        shell("refresh", name="refresh", env=[SECRET], imagePullPolicy="Never", resources=limits)
    )
    cron.produce(2)
    assert cron.run().success
    (call,) = cluster.batch_api.create_namespaced_job.call_args_list
    namespace, job = call.args
    (container,) = job.spec.template.spec.containers
    told = {one.name: one.value for one in container.env}
    assert (namespace, container.image) == ("default", "busybox")
    assert container.command == ["sh", "-c", "refresh"]
    assert container.image_pull_policy == "Never"
    assert container.resources.limits == {"memory": "1Gi"}
    assert (told["DATAFLOW_RUN_ROWS"], told["PW"]) == ("2", None)
    (secret,) = (one.value_from for one in container.env if one.name == "PW")
    assert (secret.secret_key_ref.name, secret.secret_key_ref.key) == ("shop", "password")
    assert job.metadata.labels["dataflow.dataflow.io/dataflow-cron"] == "orders"
    assert job.metadata.labels["dataflow.dataflow.io/trigger-index"] == "0"


def test_a_job_that_fails_in_the_cluster_fails_the_run(cron: Scheduled, cluster: mock.Mock) -> None:
    cluster.wait_for_running_job_to_succeed.side_effect = RuntimeError("2 pods failed")
    cluster.get_pod_names_in_job.return_value = []
    cron.triggers(shell("refresh", name="refresh"), shell(f"touch {cron.folder}/after"))
    done = cron.run()
    assert not done.success
    said = "its Kubernetes Job in namespace default has not succeeded: 2 pods failed"
    assert said in cron.log(done.run_id)
    cluster.delete_job.assert_called_once()
    assert cluster.batch_api.create_namespaced_job.call_count == 1


def test_a_location_without_dagster_k8s_says_what_to_install(
    cron: Scheduled, cluster: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "dagster_k8s", None)
    cron.triggers(shell("refresh"))
    done = cron.run()
    assert "install `dataflow-assets[kubernetes]`" in cron.log(done.run_id)
    assert not cluster.batch_api.create_namespaced_job.called


def test_a_run_that_failed_starts_the_triggers_of_failures(cron: Scheduled) -> None:
    told = "$DATAFLOW_RUN_STATUS $DATAFLOW_RUN_ROWS $DATAFLOW_RUN_ERROR"
    said = f'echo "{told}" >> {cron.folder}/said'
    cron.triggers(
        shell("exit 7", name="refresh"),
        on_failure=(shell(said, name="page"), shell(f"echo two >> {cron.folder}/said")),
    )
    cron.produce(4)
    failed = cron.run()
    following = failure_job(cron.flow)
    assert following is not None
    main = cron.definitions().resolve_job_def("orders_job")
    (sensor,) = failure_sensors({"orders_job": (main, following)})
    (event,) = (one for one in failed.all_events if one.is_run_failure)
    context = dg.build_run_status_sensor_context(
        "on_failure", event, cron.instance, failed.dagster_run
    ).for_run_failure()
    request = sensor(context)
    assert isinstance(request, dg.RunRequest)
    assert request.tags[FAILED_RUN] == failed.run_id
    assert following.execute_in_process(instance=cron.instance, tags=request.tags).success
    first, second = cron.written("said")
    assert first.startswith("failure 4 trigger refresh of flow default/orders ended with exit code")
    assert second == "two"


def test_a_run_that_is_tried_again_has_not_failed_yet(cron: Scheduled) -> None:
    cron.triggers(shell("exit 7"), on_failure=(shell("true"),))
    failed = cron.run(**{"dagster/will_retry": "true"})
    following = failure_job(cron.flow)
    assert following is not None
    main = cron.definitions().resolve_job_def("orders_job")
    (sensor,) = failure_sensors({"orders_job": (main, following)})
    (event,) = (one for one in failed.all_events if one.is_run_failure)
    context = dg.build_run_status_sensor_context(
        "on_failure", event, cron.instance, failed.dagster_run
    ).for_run_failure()
    assert "is tried again" in str(sensor(context))


def test_a_run_that_is_cancelled_while_it_reads_has_no_triggers(
    cron: Scheduled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is committed, and the run counts as cancelled."""
    cron.triggers(shell(f"touch {cron.folder}/after"))
    cron.produce(3)

    def ask(interrupts: Interrupts) -> str:
        cron.ask_to_stop()
        interrupts.asked = True
        return "it was asked to stop"

    monkeypatch.setattr(Interrupts, "reason", ask)
    cron.run()
    (run,) = cron.instance.get_runs()
    assert run.status == dg.DagsterRunStatus.CANCELED
    assert not (cron.folder / "after").exists()


def test_a_run_that_is_cancelled_at_a_trigger_ends_it(cron: Scheduled) -> None:
    pid = cron.folder / "pid"
    cron.triggers(shell(f"echo $$$$ > {pid}; exec sleep 600"), shell(f"touch {cron.folder}/after"))

    def cancel() -> None:
        while not (pid.exists() and pid.read_text().strip()):
            time.sleep(0.01)
        cron.ask_to_stop()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=cancel, daemon=True).start()
    cron.run()
    (run,) = cron.instance.get_runs()
    assert run.status == dg.DagsterRunStatus.CANCELED
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not (cron.folder / "after").exists()


def test_a_trigger_may_be_tried_by_itself(cron: Scheduled) -> None:
    cron.triggers(Trigger(job="x"), shell(f"echo $DATAFLOW_RUN_ROWS- >> {cron.folder}/said"))
    (asset,) = (
        one
        for one in cron.definitions().resolve_asset_graph().assets_defs
        if one.key == dg.AssetKey(["triggers", "orders", "trigger-1".replace("-", "_")])
    )
    assert dg.materialize([asset], instance=cron.instance).success
    assert cron.written("said") == ["-"]


@dg.asset
def revenue() -> None:
    """An asset of the same code location."""


@dg.asset
def broken() -> None:
    raise ValueError("no rows")


@dg.op
def refresh() -> None:
    """An op of the same code location."""


@dg.job
def refreshing() -> None:
    refresh()


OURS = dg.Definitions(assets=[revenue, broken], jobs=[refreshing])


@pytest.mark.parametrize(
    ("trigger", "problem"),
    [
        (Trigger(job="refreshing"), ""),
        (Trigger(asset="revenue"), ""),
        (Trigger(job="refreshin"), "no job refreshin in this code location; did you mean refresh"),
        (Trigger(asset="revenu"), "no asset revenu is made here; did you mean revenue"),
        (Trigger(asset="broken"), "trigger x failed: /runs/"),
    ],
)
def test_a_trigger_may_be_a_job_or_an_asset_of_the_location(
    instance: dg.DagsterInstance, trigger: Trigger, problem: str
) -> None:
    context = mock.Mock(repository_def=OURS.get_repository_def(), instance=instance)
    context.run.run_id = "r1"
    if problem:
        with pytest.raises(PermanentError, match=problem):
            run_in_dagster(context, trigger, "trigger x")
        return
    run_in_dagster(context, trigger, "trigger x")
    (run,) = instance.get_runs()
    assert run.status == dg.DagsterRunStatus.SUCCESS
    assert run.tags["dataflow/triggered_by"] == "r1"
