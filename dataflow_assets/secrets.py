"""SecretRefs: named in the manifest, resolved only when used, never echoed.

A reference is looked up in the `Secret` documents beside the manifest first, then as the file
`<DATAFLOW_SECRETS>/<namespace>/<name>/<key>` (how Kubernetes mounts Secrets). A reference beats a
direct value (reference/dataflow-operator.md section 9.1).

No text of a manifest leads out of that folder: a name is one part of a path, and links are followed
only as far as they stay below the folder, as those of a mounted Secret do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, SecretStr, TypeAdapter

from dataflow_assets.errors import PermanentError
from dataflow_assets.spec import Spec, marks

AnySpec = TypeVar("AnySpec", bound=Spec)
FOLDER = "DATAFLOW_SECRETS"
_PART = re.compile(r"(?!\.$|\.\.)[A-Za-z0-9._-]{1,253}")  # Kubernetes' own rule for keys


def _part(text: str) -> str:
    if _PART.fullmatch(text) is None:
        raise ValueError(
            "must be one name: letters a-z, digits, `-`, `_` and `.`, no `/`, not `.` and not "
            "beginning with `..`, at most 253 characters"
        )
    return text


_Part = Annotated[str, AfterValidator(_part)]


class SecretRef(Spec):
    """Points at one key of one Secret; `namespace` defaults to the manifest's own."""

    name: _Part
    key: _Part
    namespace: _Part | None = None


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
    place = f"{namespace}/{ref.name}/{ref.key}"
    path = mounted(place)
    if path is None:
        raise PermanentError(
            f"failed to get secret {namespace}/{ref.name}: no Secret document of that name is in "
            f"the manifest's folder, and {FOLDER} ({os.environ.get(FOLDER) or 'not set'}) has no "
            f"file {place} of its own"
        )
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PermanentError(
            f"secret file {place} below {FOLDER} cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise PermanentError(f"secret file {place} below {FOLDER} is not UTF-8 text") from None


def mounted(place: str) -> Path | None:
    """The file `namespace/name/key` below DATAFLOW_SECRETS; None where there is none.

    A link that leads out of the folder counts as no file: only what is below the folder is secret
    material of these flows. Raises PermanentError for anything that is not three plain names.
    """
    if not is_place(place):
        raise PermanentError(f"a file below {FOLDER} must be named namespace/name/key")
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    root, path = os.path.realpath(folder), os.path.realpath(Path(folder, place))
    inside = Path(path).is_relative_to(root) and os.path.isfile(path)  # noqa: PTH113 - never raises
    return Path(path) if inside else None


def is_place(text: str) -> bool:
    """Whether a text names a file below DATAFLOW_SECRETS: `namespace/name/key`."""
    parts = text.split("/")
    return len(parts) == 3 and all(_PART.fullmatch(part) for part in parts)


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
