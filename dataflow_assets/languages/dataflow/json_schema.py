"""Manifests as editors know them: a branch for each source, sink, error sink and step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataflow_assets import registry
from dataflow_assets.languages.common.json_schema import DocumentSchema, Schema, at, definitions
from dataflow_assets.languages.dataflow.cron import KIND, CronManifest
from dataflow_assets.languages.dataflow.model import API_VERSION, Manifest
from dataflow_assets.spec import Spec


def document_schema() -> DocumentSchema:
    sources, sinks = _without_doubles(registry.sources()), _without_doubles(registry.sinks())
    steps = dict[str, type[Spec]](registry.steps())
    model_sets = {"Source": sources, "Sink": sinks, "ErrorSink": sinks, "Transformation": steps}
    models = (one for some in model_sets.values() for one in some.values())
    references, defs = definitions([Manifest, CronManifest, *dict.fromkeys(models)])
    defs |= {"Source": defs["End"], "Sink": defs.pop("End")}
    for name, some in model_sets.items():
        configs = {kind: (model, references[model]) for kind, model in some.items()}
        defs[name] = _with_types(defs[name], configs)
    for flow in (defs[name]["properties"] for name in ("DataFlowSpec", "CronSpec")):
        flow["source"]["$ref"], flow["sink"]["$ref"] = at("Source"), at("Sink")
    defs["RouteSink"] = {"$ref": at("Sink")}
    for manifest in ("Manifest", "CronManifest"):
        defs[manifest]["properties"]["apiVersion"]["enum"] = [API_VERSION]
    defs["AnyManifest"] = {
        "if": {"properties": {"kind": {"const": KIND}}, "required": ["kind"]},
        "then": {"$ref": at("CronManifest")},
        "else": {"$ref": at("Manifest")},
    }
    return DocumentSchema("AnyManifest", defs)


def _without_doubles(ends: Mapping[str, Any]) -> dict[str, type[Spec]]:
    return {name: cls for name, cls in ends.items() if not cls.double}


def _with_types(block: Schema, known: Mapping[str, tuple[type[Spec], Schema]]) -> Schema:
    """The block, in which `type` decides what `config` may hold."""
    properties = {**block["properties"]}
    properties["type"] = {**properties["type"], "enum": sorted(known)}
    properties["config"] = {"description": properties["config"]["description"]}
    branches = [
        {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": {"properties": {"config": config}, "required": _required_keys(model)},
        }
        for name, (model, config) in sorted(known.items())
    ]
    return {**block, "properties": properties, "allOf": branches}


def _required_keys(model: type[Spec]) -> list[str]:
    """`config` may be left out where all of its keys may."""
    required = any(field.is_required() for field in model.model_fields.values())
    return ["type", "config"] if required else ["type"]
