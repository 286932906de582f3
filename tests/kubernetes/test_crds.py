"""Definitions of custom resources have the form that Kubernetes takes, whatever the models have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dataflow_assets import registry
from dataflow_assets.cli import main
from dataflow_assets.kubernetes.crds import crds, structural
from dataflow_assets.languages.dataflow.model import DataFlowSpec

OPEN = "x-kubernetes-preserve-unknown-fields"


def versions() -> list[Any]:
    return [one["spec"]["versions"][0] for one in crds()]


def schemas(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from schemas(schema[key], f"{path}.{key}")


def test_each_part_has_one_type_or_is_open() -> None:
    found = [pair for one in versions() for pair in schemas(one["schema"]["openAPIV3Schema"])]
    assert len(found) > 50
    for path, schema in found:
        assert "type" in schema or schema.get(OPEN), path
        odd = schema.keys() & {"$ref", "anyOf", "allOf", "oneOf", "const", "default", "title", "if"}
        assert not odd, path
        assert not {"properties", "additionalProperties"} <= schema.keys(), path


def test_the_spec_has_every_field_and_config_stays_open() -> None:
    spec = versions()[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    aliases = {field.alias for field in DataFlowSpec.model_fields.values()}
    assert spec["properties"].keys() == aliases
    source = spec["properties"]["source"]["properties"]
    public = sorted(name for name, one in registry.sources().items() if not one.double)
    assert source["type"]["enum"] == public
    assert source["config"][OPEN]
    assert spec["properties"]["replicas"]["minimum"] == 0
    assert spec["required"] == ["source", "sink"]


def test_the_status_is_a_subresource_with_counts_and_columns() -> None:
    version = versions()[0]
    assert version["subresources"] == {"status": {}}
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert status["properties"]["processedCount"] | {"description": ""} == {
        "type": "integer",
        "format": "int64",
        "description": "",
    }
    assert status["properties"]["lastProcessedTime"]["format"] == "date-time"
    names = [one["name"] for one in version["additionalPrinterColumns"]]
    assert names[:3] == ["Phase", "Source", "Sink"]


@pytest.mark.parametrize(
    ("schema", "form"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, {"type": "string"}),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, {OPEN: True}),
        ({"enum": [None], "errorMessage": "not yet"}, {OPEN: True}),
        ({"$ref": "#/$defs/A", "description": "x"}, {"type": "boolean", "description": "x"}),
        ({"type": "object", "additionalProperties": True}, {"type": "object", OPEN: True}),
        (
            {"type": "object", "additionalProperties": {"type": "string", "title": "T"}},
            {"type": "object", "additionalProperties": {"type": "string"}},
        ),
        (
            {"type": "array", "items": {"$ref": "#/$defs/A"}, "minItems": 1},
            {"type": "array", "items": {"type": "boolean"}, "minItems": 1},
        ),
    ],
)
def test_the_structural_form(schema: Any, form: Any) -> None:
    assert structural(schema, {"A": {"type": "boolean", "title": "A"}}) == form


def test_they_are_printed_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "crds"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == list(crds())
