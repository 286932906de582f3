"""One custom resource as the API server has it, and the manifest that it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dataflow_assets.kubernetes.crds import Resource
from dataflow_assets.languages.dataflow.model import API_VERSION

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # the manifest once more
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # as they are, in quotes


@dataclass(frozen=True, eq=False)
class CustomResource:
    """An object of a kind; its identity is its namespace and name."""

    resource: Resource
    document: Mapping[str, Any] = field(repr=False)
    """As the API server sends it."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.document.get("metadata") or {}

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        return str(self.metadata["namespace"])

    @property
    def path(self) -> str:
        """The path that the API has it under."""
        return self.resource.path(self.namespace, self.name)

    @property
    def generation(self) -> int | None:
        return self.metadata.get("generation")

    @property
    def status(self) -> Mapping[str, Any]:
        return self.document.get("status") or {}

    @property
    def is_deleted(self) -> bool:
        """Returns whether it only waits for its finalizers."""
        return "deletionTimestamp" in self.metadata

    def file(self, folder: Path) -> Path:
        """Returns where its manifest is kept."""
        return folder / self.namespace / f"{self.name}{suffix(self.resource)}"

    @cached_property
    def manifest(self) -> str:
        """The manifest: JSON, which is YAML; without what the API server has added."""
        kept = ("name", "namespace", "labels", "annotations")
        metadata = {key: self.metadata[key] for key in kept if key in self.metadata}
        annotations = dict(metadata.pop("annotations", {}))
        annotations.pop(_APPLIED, None)
        document = {
            "apiVersion": API_VERSION,
            "kind": self.resource.kind,
            "metadata": metadata | ({"annotations": annotations} if annotations else {}),
            "spec": self.document.get("spec"),
        }
        text = json.dumps(document, indent=2, ensure_ascii=False)
        return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def suffix(resource: Resource) -> str:
    """Returns how files with manifests of a kind end."""
    return f".{resource.kind.lower()}.yaml"
