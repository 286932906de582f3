"""The JSON Schema of manifests, for editors: completion, texts and mistakes while one types.

Generated from the same models as the pages: a branch for each source, sink, error sink and step.
`dataflow check` knows more: rules between fields, conditions, names that must exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from dataflow_assets import registry
from dataflow_assets.languages.dataflow.model import API_VERSION, Manifest
from dataflow_assets.languages.tableflow.model import Tableflow
from dataflow_assets.spec import Spec

Schema = dict[str, Any]

NAME: Final = "reference/dataflow.schema.json"
"""The file, below docs/."""
EDITOR_LINE: Final = "# yaml-language-server: $schema="
"""Begins the first line of a manifest, from which editors know where the schema is."""
_DRAFT = "http://json-schema.org/draft-07/schema#"  # the one that every editor knows
_MODE: Final = "validation"
_SECRET: Schema = {
    "type": "object",
    "description": "A Secret of Kubernetes, read by the manifests beside it.",
    "required": ["apiVersion", "kind", "metadata"],
    "properties": {"apiVersion": {"const": "v1"}, "kind": {"const": "Secret"}},
}
_TABLEFLOW: Schema = {
    "anyOf": [{"required": ["source_clusters"]}, {"required": ["destination_bucket_url"]}],
    "not": {"anyOf": [{"required": ["apiVersion"]}, {"required": ["kind"]}]},
}


def render() -> str:
    """The text of the file.

    Called by `dataflow schema`, and where the generated pages are written.

    Returns:
        JSON, in an order that does not change between two calls.
    """
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> Schema:
    """One document of a file: a manifest, a Secret, or a file of Tableflow.

    Returns:
        The schema, draft 7. What is refused as not supported yet is not valid by it.
    """
    return {
        "$schema": _DRAFT,
        "title": "Manifests of dataflow-assets",
        "if": {"properties": {"kind": {"const": "Secret"}}, "required": ["kind"]},
        "then": _SECRET,
        "else": {
            "if": _TABLEFLOW,
            "then": {"$ref": _at("Tableflow")},
            "else": {"$ref": _at("Manifest")},
        },
        "$defs": dict(sorted(_definitions().items())),
    }


def _definitions() -> Schema:
    known = _known()
    models: list[type[Spec]] = [
        Manifest,
        Tableflow,
        *(one for some in known.values() for one in some.values()),
    ]
    modes: list[tuple[type[Spec], Literal["validation"]]] = [(model, _MODE) for model in models]
    names, found = models_json_schema(modes, schema_generator=_Generator)
    defs: Schema = found["$defs"]
    defs |= {"Source": defs["End"], "Sink": defs.pop("End")}
    for name, some in known.items():
        configs = {kind: (model, names[model, _MODE]) for kind, model in some.items()}
        defs[name] = _typed(defs[name], configs)
    flow = defs["DataFlowSpec"]["properties"]
    flow["source"]["$ref"], flow["sink"]["$ref"] = _at("Source"), _at("Sink")
    defs["RouteSink"] = {"$ref": _at("Sink")}
    defs["Manifest"]["properties"]["apiVersion"]["enum"] = [API_VERSION]
    return defs


def _known() -> Mapping[str, Mapping[str, type[Spec]]]:
    """The blocks in which `type` decides what `config` may hold, and the model for each type."""
    sources, sinks = _offered(registry.sources()), _offered(registry.sinks())
    steps = dict[str, type[Spec]](registry.steps())
    return {"Source": sources, "Sink": sinks, "ErrorSink": sinks, "Transformation": steps}


class _Generator(GenerateJsonSchema):
    """Without titles, which only repeat the names of keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Defaults that are no JSON (paths, conditions) are left out; nobody need know."""


def _offered(ends: Mapping[str, Any]) -> dict[str, type[Spec]]:
    return {name: cls for name, cls in ends.items() if not cls.double}


def _typed(block: Schema, known: Mapping[str, tuple[type[Spec], Schema]]) -> Schema:
    """The block, in which `type` decides what `config` may hold."""
    properties = {**block["properties"]}
    properties["type"] = {**properties["type"], "enum": sorted(known)}
    properties["config"] = {"description": properties["config"]["description"]}
    branches = [
        {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": {"properties": {"config": config}, "required": _needed(model)},
        }
        for name, (model, config) in sorted(known.items())
    ]
    return {**block, "properties": properties, "allOf": branches}


def _needed(model: type[Spec]) -> list[str]:
    """`config` may be left out where all of its keys may."""
    required = any(field.is_required() for field in model.model_fields.values())
    return ["type", "config"] if required else ["type"]


def _at(name: str) -> str:
    return f"#/$defs/{name}"
