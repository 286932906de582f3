"""The DataFlowCron kind: what its own fields mean, and what is noted or refused, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dataflow_assets.manifests.load import Loaded, load
from tests import ROOT

MINIMUM: dict[str, Any] = {
    "apiVersion": "dataflow.dataflow.io/v1",
    "kind": "DataFlowCron",
    "metadata": {"name": "orders"},
    "spec": {
        "schedule": "0 3 * * *",
        "source": {"type": "memory-offsets", "config": {"store": "s", "topic": "t"}},
        "sink": {"type": "memory-slice", "config": {"store": "s", "table": "x"}},
    },
}
RUN = {"image": "busybox", "command": ["true"]}


def loaded(tmp_path: Path, **spec: Any) -> Loaded:
    path = tmp_path / "f.yaml"
    YAML().dump(MINIMUM | {"spec": MINIMUM["spec"] | spec}, path)
    return load(path)


def texts(found: Any) -> list[str]:
    return [f"{one.path}: {one.message}" for one in found]


def test_a_schedule_has_the_defaults_of_the_operator(tmp_path: Path) -> None:
    (flow,) = loaded(tmp_path).flows
    assert flow.schedule is not None
    assert flow.schedule.times.text == "0 3 * * *"
    assert (flow.schedule.zone, flow.schedule.policy) == ("UTC", "Forbid")
    assert not flow.schedule.suspended
    assert flow.schedule.deadline_seconds is None


def test_all_that_a_schedule_may_say(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        schedule="0 0 3 * * mon",
        timeZone="Europe/Berlin",
        concurrencyPolicy="Replace",
        startingDeadlineSeconds=60,
        suspend=True,
        triggers=[RUN, {"job": "report"}],
        onFailure=[RUN | {"name": "page"}],
    )
    (flow,) = found.flows
    schedule = flow.schedule
    assert schedule is not None
    assert schedule.times.text == "0 3 * * mon"
    assert (schedule.zone, schedule.policy, schedule.deadline_seconds) == (
        "Europe/Berlin",
        "Replace",
        60,
    )
    assert schedule.suspended
    assert [one.label(n) for n, one in enumerate(schedule.triggers)] == ["trigger-0", "trigger-1"]
    assert [one.name for one in schedule.on_failure] == ["page"]
    assert found.hints == ()


@pytest.mark.parametrize(
    ("spec", "finding"),
    [
        ({"schedule": "5 0 3 * * *"}, "spec.schedule: has six fields, of which the first one is"),
        (
            {"timeZone": "Europe/Berln"},
            "spec.timeZone: is not a time zone such as Europe/Berlin or",
        ),
        ({"timeZone": "Europe"}, "spec.timeZone: is not a time zone"),
        ({"concurrencyPolicy": "forbid"}, "spec.concurrencyPolicy: is not one of the allowed"),
        ({"startingDeadlineSeconds": -1}, "spec.startingDeadlineSeconds: must be at least 0"),
        ({"replicas": 2}, "spec.replicas: must be at most 1: a DataFlowCron has one run"),
        ({"triggers": [{}]}, "spec.triggers[0].image: is required, unless the trigger is a job"),
        (
            {"triggers": [{"image": "x", "job": "y"}]},
            "spec.triggers[0].job: is set beside image: keep one of them",
        ),
        (
            {"triggers": [{"job": "y", "args": ["z"]}]},
            "spec.triggers[0].args: is for an image; a Dagster job has no container",
        ),
        (
            {"triggers": [RUN | {"name": "a-b"}, RUN | {"name": "a.b"}]},
            "spec.triggers[1].name: is the name of trigger 0, too, as Dagster writes it",
        ),
        (
            {"triggers": [RUN | {"env": [{"name": "A", "value": "b", "valueFrom": {}}]}]},
            "spec.triggers[0].env[0].valueFrom: must have one of secretKeyRef",
        ),
        ({"trigers": []}, "spec.trigers: unknown key; did you mean triggers?"),
        ({"onFailure": [{"imag": "x"}]}, "spec.onFailure[0].imag: unknown key; did you mean"),
    ],
)
def test_what_does_not_fit_is_found_at_its_place(
    tmp_path: Path, spec: dict[str, Any], finding: str
) -> None:
    found = texts(loaded(tmp_path, **spec).findings)
    assert any(one.startswith(finding) for one in found), found


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        ({"successfulJobsHistoryLimit": 5}, "spec.successfulJobsHistoryLimit: Dagster keeps the"),
        ({"freshness": 5}, "spec.freshness: has no effect: runs of the schedule drive the flow"),
        (
            {
                "triggers": [
                    RUN
                    | {
                        "env": [
                            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
                        ]
                    }
                ]
            },
            "spec.triggers[0].env[0].valueFrom.secretKeyRef: secret default/s not found in this",
        ),
    ],
)
def test_what_has_no_effect_or_is_not_there_yet_is_noted(
    tmp_path: Path, spec: dict[str, Any], note: str
) -> None:
    found = loaded(tmp_path, **spec)
    assert found.findings == ()
    assert any(one.startswith(note) for one in texts(found.hints)), texts(found.hints)


def test_a_flow_without_a_schedule_has_none_of_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    YAML().dump(MINIMUM | {"kind": "DataFlow"}, path)
    (finding,) = texts(load(path).findings)
    assert finding.startswith("spec.schedule: unknown key")


def test_config_maps_beside_a_manifest_are_read(tmp_path: Path) -> None:
    (flow,) = load(ROOT / "examples" / "nightly-copy.yaml").flows
    assert flow.config_maps == {("default", "reports"): {"daily": "orders"}}
