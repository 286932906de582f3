"""SecretRefs: named in the manifest, resolved only when used, never echoed.

A reference is looked up in the `Secret` documents beside the manifest first, then as the file
`<DATAFLOW_SECRETS>/<namespace>/<name>/<key>` (how Kubernetes mounts Secrets). A reference beats a
direct value (reference/dataflow-operator.md section 9.1).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr, TypeAdapter

from dataflow_assets.errors import PermanentError
from dataflow_assets.spec import Spec, marks

AnySpec = TypeVar("AnySpec", bound=Spec)


class SecretRef(Spec):
    """Points at one key of one Secret; `namespace` defaults to the manifest's own."""

    name: str
    key: str
    namespace: str | None = None


@dataclass(frozen=True)
class Fills:
    """Marks a `...SecretRef` field: the field that receives the secret's value."""

    field: str
    required: bool = False


@dataclass(frozen=True)
class Secrets:
    """The Secret documents in reach of one manifest, by (namespace, name)."""

    namespace: str = "default"
    documents: Mapping[tuple[str, str], Mapping[str, SecretStr]] = field(
        default_factory=dict, repr=False
    )

    def get(self, ref: SecretRef) -> str:
        """The value, verbatim. Raises PermanentError naming what is missing, never a value."""
        namespace = ref.namespace or self.namespace
        document = self.documents.get((namespace, ref.name))
        if document is None:
            return _mounted(namespace, ref)
        if ref.key not in document:
            raise PermanentError(
                f"key {ref.key} not found in secret {namespace}/{ref.name}; "
                f"it has the keys {', '.join(sorted(document)) or '(none)'}"
            )
        return document[ref.key].get_secret_value()


def _mounted(namespace: str, ref: SecretRef) -> str:
    folder = os.environ.get("DATAFLOW_SECRETS")
    path = Path(folder, namespace, ref.name, ref.key) if folder else None
    if path is not None and path.is_file():
        return path.read_text(encoding="utf-8")
    raise PermanentError(
        f"failed to get secret {namespace}/{ref.name}: no Secret document of that name stands in "
        f"the manifest's folder, and DATAFLOW_SECRETS ({folder or 'not set'}) "
        f"has no file {namespace}/{ref.name}/{ref.key}"
    )


def resolve(spec: AnySpec, secrets: Secrets) -> AnySpec:
    """The same spec with every SecretRef's value put into the field that it fills."""
    update: dict[str, Any] = {}
    for name, info in type(spec).model_fields.items():
        value = getattr(spec, name)
        if isinstance(value, SecretRef):
            for mark in marks(info, Fills):
                update[mark.field] = _parse(spec, mark.field, secrets.get(value))
        elif isinstance(value, Spec):
            update.setdefault(name, resolve(value, secrets))
    return spec.model_copy(update=update) if update else spec


def _parse(spec: Spec, name: str, text: str) -> Any:
    annotation: Any = type(spec).model_fields[name].annotation
    if "tuple" in str(annotation):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return TypeAdapter(annotation).validate_python(text)
