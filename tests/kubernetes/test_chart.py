"""The chart, rendered by helm and checked by an API server's own schemas."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import yaml
from dagster_k8s.container_context import K8sContainerContext
from dagster_k8s.job import DagsterK8sJobConfig, construct_dagster_k8s_job

import devservers
from dataflow_assets.kubernetes.access import watching_rules
from devservers.go_programs import HELM
from tests import ROOT

pytestmark = [pytest.mark.full, pytest.mark.heavy, pytest.mark.timeout(600)]

CHART = ROOT / "deploy" / "helm" / "dataflow-assets"
GIT = ("flows.from=git", "flows.git.repository=https://example.com/f.git", "flows.git.folder=a")
VALUES = {
    "objects of the namespace": (),
    "objects of two namespaces": (
        "flows.namespaces={charts,elsewhere}",
        "podDisruptionBudget.enabled=true",
        "triggers.enabled=true",
    ),
    "a ConfigMap": ("flows.from=configMap", "flows.configMap=f", "spark.remote=sc://spark:15002"),
    "a repository": (*GIT, "flows.git.secretName=git", "secrets.namespaces={elsewhere}"),
}
PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
}


@pytest.fixture(autouse=True)
def _helm() -> None:
    if reason := HELM.missing():
        pytest.skip(reason)


@cache
def rendered(values: Sequence[str]) -> list[dict[str, Any]]:
    command = [str(HELM.binary), "template", "dataflow", str(CHART), "--namespace", "charts"]
    command += ["--kube-version", "1.35", *(part for one in values for part in ("--set", one))]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [one for one in yaml.safe_load_all(out) if one]


def only(documents: Sequence[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in documents if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def context_of(documents: Sequence[dict[str, Any]]) -> Any:
    pod = only(documents, "Deployment", "dataflow")["spec"]["template"]["spec"]
    env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    return json.loads(env["DAGSTER_CONTAINER_CONTEXT"])


def job(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The Job that Dagster's K8sRunLauncher makes for a run of this location."""
    context = K8sContainerContext.create_from_config(context_of(documents))
    made = construct_dagster_k8s_job(
        job_config=DagsterK8sJobConfig(
            job_image="dataflow-assets:0.1.0",
            dagster_home="/opt/dagster/dagster_home",
            instance_config_map="dagster-instance",
            postgres_password_secret="dagster-postgresql-secret",
        ),
        args=["dagster", "api", "execute_run", "{}"],
        job_name="dagster-run-1",
        user_defined_k8s_config=context.run_k8s_config,
        component="run_worker",
    )
    from kubernetes.client import ApiClient

    return ApiClient().sanitize_for_serialization(made)  # type: ignore[no-any-return]


def pods(documents: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in documents:
        if one["kind"] in {"Deployment", "Job"}:
            yield one["metadata"]["name"], one["spec"]["template"]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_api_server_takes_all_of_it(
    values: Sequence[str], kubernetes: devservers.Kubernetes
) -> None:
    for namespace in ("charts", "elsewhere"):
        kubernetes.namespace(namespace)
    documents = [*rendered(values), job(rendered(values))]
    for one in documents:
        namespace = one["metadata"].setdefault("namespace", "charts")
        path = PATHS[one["kind"]].format(namespace)
        answer = kubernetes.answer("POST", f"{path}?dryRun=All&fieldValidation=Strict", one)
        assert answer.status_code == 201, f"{one['kind']} {one['metadata']['name']}: {answer.text}"


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_container_can_do_no_more_than_it_needs(values: Sequence[str]) -> None:
    documents = [*rendered(values), job(rendered(values))]
    for name, template in pods(documents):
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["serviceAccountName"] == "dataflow"
        for container in [*pod["containers"], *(pod.get("initContainers") or ())]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"], (name, container["name"])
            assert security["capabilities"] == {"drop": ["ALL"]}, (name, container["name"])
            assert not security["allowPrivilegeEscalation"], (name, container["name"])
            assert "memory" in container["resources"]["limits"], (name, container["name"])
            assert "tmp" in {one["name"] for one in container["volumeMounts"]}


def test_a_run_has_the_flows_and_settings_of_the_code_location() -> None:
    documents = rendered(())
    location = only(documents, "Deployment", "dataflow")["spec"]["template"]["spec"]
    run = job(documents)["spec"]["template"]["spec"]
    own = {"DAGSTER_CURRENT_IMAGE", "DAGSTER_CONTAINER_IMAGE", "DAGSTER_CONTAINER_CONTEXT"}
    env = {one["name"]: one for one in location["containers"][0]["env"] if one["name"] not in own}
    assert env.items() <= {one["name"]: one for one in run["containers"][0]["env"]}.items()
    mounts = {one["mountPath"] for one in run["containers"][0]["volumeMounts"]}
    instance = "/opt/dagster/dagster_home/dagster.yaml"  # the arguments of a run have it
    of_location = {one["mountPath"] for one in location["containers"][0]["volumeMounts"]}
    assert of_location - {instance} == mounts
    (keeper,) = run["initContainers"]
    assert [keeper] == location["initContainers"]
    assert keeper["restartPolicy"] == "Always"
    assert keeper["command"][-1] == "--files-only"


def test_pods_of_runs_reach_spark_and_others_do_not() -> None:
    documents = rendered(())
    policy = only(documents, "NetworkPolicy", "dataflow-spark")["spec"]
    (rule,) = policy["ingress"]
    wanted = rule["from"][0]["podSelector"]["matchLabels"].items()
    for name, template in pods([*documents, job(documents)]):
        assert wanted <= template["metadata"]["labels"].items(), name


def test_the_rights_are_those_that_the_watcher_needs() -> None:
    rules = only(rendered(()), "Role", "dataflow-watch")["rules"]

    def verbs(rule: dict[str, Any]) -> set[tuple[str, str, str]]:
        (group,) = rule["apiGroups"]
        return {(group, name, verb) for name in rule["resources"] for verb in rule["verbs"]}

    allowed = set[tuple[str, str, str]]().union(*map(verbs, rules))
    needed = set[tuple[str, str, str]]().union(*(verbs(dict(one)) for one in watching_rules()))
    assert needed <= allowed
    assert {one[0] for one in allowed} == {"dataflow.dataflow.io", ""}


def test_a_value_that_cannot_be_is_refused() -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(("flows.from=git",))
    assert "flows.git.repository is needed with flows.from: git" in refused.value.stderr
