"""Column lineage: what a column of the target is made from, told from the steps alone."""

from __future__ import annotations

from typing import Any

import pytest

from dataflow_assets import registry
from dataflow_assets.assets.lineage import origins
from dataflow_assets.connectors.memory import MemoryOffsetSource, MemorySliceSink
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.conditions.condition import Condition

Config = dict[str, Any]


def step(name: str, config: Config, when: str | None = None) -> Transformation:
    condition = None if when is None else Condition.parse(when)
    return Transformation(registry.steps()[name].model_validate(config), condition)


def of(*steps: Transformation, columns: str) -> dict[str, set[str]]:
    branch = Branch(MemorySliceSink(store="s", table="t"))
    source = MemoryOffsetSource(store="s", topic="t")
    flow = Flow("default", "people", source, (branch,), transformations=steps)
    return {name: set(found) for name, found in origins(flow, branch, columns.split()).items()}


def test_without_steps_columns_are_made_from_their_namesakes() -> None:
    assert of(columns="a b") == {"a": {"a"}, "b": {"b"}}


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("filter", {"condition": "$.a"}, {"a": {"a"}, "b": {"b"}}),
        ("mask", {"fields": ["a"]}, {"a": {"a"}, "b": {"b"}}),
        ("cast", {"spec": {"a": "int64"}}, {"a": {"a"}, "b": {"b"}}),
        ("timestamp", {"fieldName": "a"}, {"b": {"b"}}),
        ("timestamp", {"fieldName": "a.at"}, {"a": {"a"}, "b": {"b"}}),
        ("remove", {"fields": ["a", "b.x"]}, {"b": {"b"}}),
        ("select", {"fields": ["u.a", "b"]}, {"a": {"u"}, "b": {"b"}}),
        ("select", {"fields": ["*.a", "b"]}, {"b": {"b"}}),
        ("replaceField", {"renames": ["x:a", "b:y"]}, {"a": {"x"}}),
        ("replaceField", {"renames": ["x:y", "y:a"]}, {"a": {"x"}, "b": {"b"}}),
        ("replaceField", {"renames": ["x:a.n"]}, {"a": {"a", "x"}, "b": {"b"}}),
        ("replaceField", {"include": ["a.n"]}, {"a": {"a"}}),
        ("replaceField", {"exclude": ["a"]}, {"b": {"b"}}),
        ("insertField", {"fields": {"a": "x"}}, {"b": {"b"}}),
        (
            "insertField",
            {"fields": {"a": "${$.x.n}/${$.y}"}, "interpolate": True},
            {"a": {"x", "y"}, "b": {"b"}},
        ),
        ("hash", {"fields": ["x", "b"], "target": "a"}, {"a": {"b", "x"}, "b": {"b"}}),
        ("hash", {"fields": ["a"]}, {"a": {"a"}, "b": {"b"}}),
        ("headersToPayload", {"mappings": ["h:a"]}, {"b": {"b"}}),
        ("extractField", {"field": "u.v"}, {"a": {"u"}, "b": {"u"}}),
        ("snakeCase", {}, {}),
    ],
)
def test_one_step(name: str, config: Config, expected: dict[str, set[str]]) -> None:
    assert of(step(name, config), columns="a b") == expected


def test_steps_behind_a_condition_may_not_have_run() -> None:
    renamed = step("replaceField", {"renames": ["x:a"]}, when="$.b == 1")
    assert of(renamed, columns="a") == {"a": {"a", "x"}}


def test_a_chain_is_followed_to_its_beginning() -> None:
    steps = [
        step("select", {"fields": ["user.name", "total"]}),
        step("filter", {"condition": "$.total > 1"}),
        step("replaceField", {"renames": ["name:customer"]}),
        step("timestamp", {"fieldName": "at"}),
    ]
    found = of(*steps, columns="customer total at")
    assert found == {"customer": {"user"}, "total": {"total"}}
