"""Steps that choose, rename and rewrite fields: wrong options, and what is not copied."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Context, Step
from dataflow_assets.transforms.camel_case import CamelCase
from dataflow_assets.transforms.hash import Hash
from dataflow_assets.transforms.headers_to_payload import HeadersToPayload
from dataflow_assets.transforms.json_parse import JsonParse
from dataflow_assets.transforms.json_string import JsonString
from dataflow_assets.transforms.remove import Remove
from dataflow_assets.transforms.replace_field import ReplaceField
from dataflow_assets.transforms.select import Select
from dataflow_assets.transforms.snake_case import SnakeCase

WRONG: list[tuple[type[Step], dict[str, Any], str]] = [
    (Select, {"fields": []}, "at least 1"),
    (Remove, {"fields": ["a.*"]}, "cannot be written"),
    (ReplaceField, {}, "needs include, exclude or renames"),
    (ReplaceField, {"include": ["a"], "exclude": ["b"]}, "each says alone"),
    (ReplaceField, {"renames": ["a"]}, "must be old:new"),
    (ReplaceField, {"renames": ["a: "]}, "must be old:new"),
    (ReplaceField, {"renames": [{"a": "b"}]}, "must be old:new"),
    (ReplaceField, {"renames": {"a": "b.#"}}, "cannot be written"),
    (HeadersToPayload, {"mappings": []}, "at least 1"),
    (HeadersToPayload, {"mappings": [":a"]}, "must be header:path"),
    (HeadersToPayload, {"mappings": ["a:b.*"]}, "cannot be written"),
    (Hash, {"fields": ["a.#.b"]}, "fields: a.#.b cannot be written"),
    (Hash, {"fields": ["a"], "target": "b.*"}, "target: b.* cannot be written"),
    (JsonParse, {"fields": ["a"], "onError": "null"}, "'reject' or 'keep'"),
]

UNCHANGED: list[tuple[Step, Any]] = [
    (Remove.model_validate({"fields": ["x", "u.x"]}), {"u": {"a": 1}}),
    (SnakeCase(deep=True), {"u": [{"a": 1}, [{"b_c": 2}]]}),
    (CamelCase(deep=True), {"U": [{"A": 1}, [{"BC": 2}]]}),
    (ReplaceField.model_validate({"exclude": ["x"], "renames": ["y:z"]}), {"a": {}}),
    (HeadersToPayload.model_validate({"mappings": ["none:a"]}), {"a": 1}),
    (Hash.model_validate({"fields": ["x"], "target": "y"}), {"a": 1}),
    (JsonParse.model_validate({"fields": ["a"]}), {"a": 1}),
    (JsonString.model_validate({"fields": ["x"]}), {"a": 1}),
]


def _run(step: Step, body: Any) -> Record:
    record = Record(body, {"headers": {"X": "1"}}, "route")
    found = step.compile(Context(datetime(2026, 7, 20, tzinfo=UTC)))(record)
    assert isinstance(found, Record)
    assert (found.metadata, found.route) == (record.metadata, record.route)
    assert found is record or found.body is not body
    return found


@pytest.mark.parametrize(("step", "config", "message"), WRONG)
def test_options_that_cannot_work(step: type[Step], config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        step.model_validate(config)
    assert message in str(raised.value)


@pytest.mark.parametrize(("step", "body"), UNCHANGED, ids=lambda value: getattr(value, "type", ""))
def test_where_nothing_changes_the_record_is_the_same(step: Step, body: Any) -> None:
    assert _run(step, body).body is body


@pytest.mark.parametrize("count", [3, 100, 101])
@pytest.mark.parametrize("deep", [False, True])
def test_many_keys_are_renamed_like_few(count: int, deep: bool) -> None:
    body = {f"aB{number}": number for number in range(count)}
    step = SnakeCase(deep=deep)
    assert _run(step, body).body == {f"a_b{number}": number for number in range(count)}
    with pytest.raises(RejectedRecord, match="aB0 and a_b0 would both become a_b0"):
        _run(step, {**body, "a_b0": 1})


@pytest.mark.parametrize(
    ("fields", "body", "found"),
    [
        (["b", "a", "gone"], {"a": 1, "b": None}, {"b": None, "a": 1}),
        (["b", "u.a"], {"u": {"a": 1}, "b": 2}, {"b": 2, "a": 1}),
        (["0"], [5], {"0": 5}),
        (["a"], [{"a": 1}], {}),
        (["a"], "a", {}),
    ],
)
def test_keys_of_the_body_are_selected_like_any_path(
    fields: list[str], body: Any, found: dict[str, Any]
) -> None:
    selected = _run(Select.model_validate({"fields": fields}), body).body
    assert list(selected.items()) == list(found.items())


def test_without_deep_no_value_is_copied() -> None:
    inner = {"cD": 1}
    assert _run(SnakeCase(), {"aB": inner}).body["a_b"] is inner


def test_deep_copies_only_what_changes() -> None:
    same, other = {"a": 1}, {"bC": 2}
    found = _run(SnakeCase(deep=True), {"same": same, "other": other}).body
    assert found["same"] is same
    assert found["other"] == {"b_c": 2}


def test_a_path_with_a_colon_is_renamed_by_a_mapping() -> None:
    step = ReplaceField.model_validate({"renames": {"xsi:type": "kind"}})
    assert _run(step, {"xsi:type": "a"}).body == {"kind": "a"}


def test_several_texts_hash_unlike_their_sum() -> None:
    step = Hash.model_validate({"fields": ["a", "b"], "target": "h"})
    hashes = {_run(step, body).body["h"] for body in ({"a": "x", "b": "yz"}, {"a": "xy", "b": "z"})}
    assert len(hashes) == 2


def test_headers_are_read_only_where_they_are_mapped() -> None:
    assert HeadersToPayload.model_validate({"mappings": ["a:b"]}).reads() == {"headers"}
    assert SnakeCase().reads() == frozenset()
