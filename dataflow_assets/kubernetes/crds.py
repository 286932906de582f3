"""CustomResourceDefinitions, made of the same models that manifests are checked by.

They are as strict as those of the DataFlow Operator: `config` of sources, sinks and steps stays
open, because what is wrong in it is shown with its place by a condition of the object. Defaults are
left out: the API server would write them into objects, and flows would have other manifests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from dataflow_assets.kubernetes.status import CronStatus, Status
from dataflow_assets.languages.common.json_schema import Schema, definitions
from dataflow_assets.languages.dataflow.json_schema import document_schema
from dataflow_assets.languages.dataflow.model import API_VERSION, GROUP

_OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_BOUNDS = ("enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "minProperties")
_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Source", "string", ".spec.source.type", 0),
    ("Sink", "string", ".spec.sink.type", 0),
    ("Processed", "integer", ".status.processedCount", 0),
    ("Errors", "integer", ".status.errorCount", 0),
    ("Last", "date", ".status.lastProcessedTime", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Message", "string", ".status.message", 1),
)
_SCHEDULE_COLUMNS = (
    ("Schedule", "string", ".spec.schedule", 0),
    ("Last success", "date", ".status.lastSuccessfulTime", 0),
)


Columns = Sequence[tuple[str, str, str, int]]


@dataclass(frozen=True)
class Resource:
    """A kind of custom resource, and where the API has its objects."""

    kind: str
    plural: str
    spec: str
    """The definition of its `spec` in the schema of manifests."""
    status: type[Status]
    more_columns: Columns = ()

    VERSION: ClassVar[str] = API_VERSION.rpartition("/")[2]

    def path(self, namespace: str, name: str = "") -> str:
        objects = f"/apis/{API_VERSION}/namespaces/{namespace}/{self.plural}"
        return f"{objects}/{name}" if name else objects


_KINDS = (
    Resource("DataFlow", "dataflows", "DataFlowSpec", Status),
    Resource("DataFlowCron", "dataflowcrons", "CronSpec", CronStatus, _SCHEDULE_COLUMNS),
)


@cache
def resources() -> tuple[Resource, ...]:
    """Returns the kinds that manifests may have."""
    models = document_schema().definitions
    return tuple(one for one in _KINDS if one.spec in models)


def crds() -> tuple[Mapping[str, Any], ...]:
    """Returns the definition of each of them."""
    _, statuses = definitions([one.status for one in resources()])
    models = {**statuses, **document_schema().definitions}
    return tuple(_definition(one, models) for one in resources())


def _definition(resource: Resource, models: Mapping[str, Any]) -> Mapping[str, Any]:
    singular = resource.plural.removesuffix("s")
    names = {"kind": resource.kind, "plural": resource.plural, "singular": singular}
    names["listKind"] = f"{resource.kind}List"
    columns = [
        {"name": name, "type": type_, "jsonPath": path, "priority": priority}
        for name, type_, path, priority in (*_COLUMNS, *resource.more_columns)
    ]
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(models[resource.spec], models),
            # The operator's own statuses have more; they stay until they are written anew.
            "status": structural(models[resource.status.__name__], models) | _OPEN,
        },
    }
    version = {
        "name": Resource.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def structural(schema: Schema, models: Mapping[str, Any]) -> Schema:
    """Returns a schema in the form that Kubernetes takes: without references and alternatives.

    What has no such form stays open, and is checked when the manifest is read.
    """
    about = {"description": schema["description"]} if "description" in schema else {}
    if "$ref" in schema:
        return structural(models[schema["$ref"].rpartition("/")[2]], models) | about
    choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(choices) == 1:
        return structural(choices[0], models) | about
    kind = schema.get("type")
    if not isinstance(kind, str):
        return _OPEN | about
    form = {"type": kind, **about, **{key: schema[key] for key in _BOUNDS if key in schema}}
    if kind == "integer":
        form["format"] = "int64"
    elif schema.get("format") == "date-time":
        form["format"] = "date-time"
    elif kind == "array":
        form["items"] = structural(schema["items"], models)
    elif kind == "object":
        form |= _members(schema, models)
    return form


def _members(schema: Schema, models: Mapping[str, Any]) -> Schema:
    if "properties" in schema:
        members = {key: structural(one, models) for key, one in schema["properties"].items()}
        required = {"required": schema["required"]} if schema.get("required") else {}
        return {"properties": members, **required}
    values = schema.get("additionalProperties")
    if not isinstance(values, dict):
        return _OPEN
    return {"additionalProperties": structural(values, models)}
