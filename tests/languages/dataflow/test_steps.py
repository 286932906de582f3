"""The `transformations` of a manifest: what is wrong is found with line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load

TOP = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {name: orders}
spec:
  source: {type: memory-offsets, config: {store: s, topic: t}}
  sink: {type: memory-slice, config: {store: s, table: x}}
  transformations:
"""
ROUTER = """\
    - type: router
      config:
        routes:
          - condition: "$.lvl == 'err'"
            sink: {type: memory-slice, config: {store: s, table: TABLE}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("f.yaml")


def said(file: Path, text: str) -> list[str]:
    file.write_text(TOP + text)
    return [str(finding).removeprefix("f.yaml:") for finding in load(file).findings]


def flow(file: Path, text: str) -> Flow:
    assert said(file, text) == []
    return load(file).flows[0]


def test_steps_stand_in_the_flow_in_order(file: Path) -> None:
    steps = flow(
        file,
        "    - {type: filter, config: {condition: $.a}}\n"
        "    - {type: remove, when: $.b, config: {fields: [b]}}\n"
        "    - {type: debeziumUnwrap}\n",
    ).transformations
    assert [(one.step.type, one.when.text if one.when else "") for one in steps] == [
        ("filter", ""),
        ("remove", "$.b"),
        ("debeziumUnwrap", ""),
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("    - {type: filtr, config: {condition: a}}", "8:14: spec.transformations[0].type: "),
        ("    - {type: filtr, config: {condition: a}}", "did you mean filter?"),
        ("    - {type: filter}", "spec.transformations[0].config.condition: is required"),
        ("    - {type: filter, config: {condition: '(a'}}", "8:42: spec.transformations[0]"),
        ("    - {type: filter, when: 'a &&', config: {condition: a}}", "8:28: spec.transf"),
        ("    - {type: remove, config: {fields: [], x: 1}}", "config.fields: must not be empty"),
        ("    - {type: remove, config: {fields: [], x: 1}}", "config.x: unknown key"),
        ("    - {type: cast, config: {spec: {a: null}}}", "config.spec.a: has no value"),
    ],
)
def test_what_is_wrong_is_found_where_it_stands(file: Path, text: str, wanted: str) -> None:
    assert any(wanted in finding for finding in said(file, text)), said(file, text)


def test_a_list_of_wrong_entries_is_not_called_empty_too(file: Path) -> None:
    [found] = said(file, "    - {type: remove, config: {fields: [a.*]}}")
    assert found.startswith("8:40: spec.transformations[0].config.fields[0]: a.* cannot be written")


def test_a_router_makes_branches_that_know_their_conditions(file: Path) -> None:
    branches = flow(file, ROUTER.replace("TABLE", "y")).branches
    assert [(branch.address.name, branch.routes) for branch in branches] == [
        ("x", (None,)),
        ("y", ("$.lvl == 'err'",)),
    ]


def test_a_route_to_the_main_table_is_the_main_branch(file: Path) -> None:
    (branch,) = flow(file, ROUTER.replace("TABLE", "x")).branches
    assert branch.routes == (None, "$.lvl == 'err'")


def test_one_condition_leads_to_one_sink(file: Path) -> None:
    text = ROUTER.replace("TABLE", "y") + ROUTER.replace("TABLE", "z")
    assert any("an earlier route has this condition" in finding for finding in said(file, text))


def test_one_target_has_one_set_of_settings(file: Path) -> None:
    text = ROUTER.replace("table: TABLE", "table: x, exists: false")
    assert any("the same target and other settings" in finding for finding in said(file, text))


def test_what_is_wrong_in_the_sink_of_a_route_is_found(file: Path) -> None:
    found = said(file, ROUTER.replace("table: TABLE", "tabel: y"))
    place = "12:59: spec.transformations[0].config.routes[0].sink.config.tabel: unknown key"
    assert any(finding.startswith(place) for finding in found), found
