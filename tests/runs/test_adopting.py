"""A checkpoint of the DataFlow Operator, in each form in which somebody may hand it over."""

from __future__ import annotations

import json

import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.runs.take_over import checkpoint

INNER = {"lastReadChangeTime": "2026-07-20T10:00:00.5Z", "lastReadOrderByValue": 7}
ALL = {"postgresql": INNER, "trino": {"lastReadID": 3}}
MAP = {"kind": "ConfigMap", "data": {"checkpoint.json": json.dumps(ALL)}}
YAML = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: df-orders-checkpoint}}
data:
  checkpoint.json: '{json.dumps(ALL)}'
"""


@pytest.mark.parametrize("text", [json.dumps(INNER), json.dumps(ALL), json.dumps(MAP), YAML])
def test_every_form(text: str) -> None:
    assert checkpoint(text, "postgresql") == INNER


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "give the ConfigMap df-<name>-checkpoint"),
        ("{", "no checkpoint of the DataFlow Operator"),
        ("{}", "no checkpoint of a postgresql source, but nothing"),
        (json.dumps({"trino": {"lastReadID": 3}}), "of a postgresql source, but trino"),
        (json.dumps({"data": {"checkpoint.json": "no json"}}), "no checkpoint of the DataFlow"),
    ],
)
def test_what_is_none(text: str, reason: str) -> None:
    with pytest.raises(PermanentError, match=reason):
        checkpoint(text, "postgresql")
