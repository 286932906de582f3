"""The values of SecretRefs, put into the fields that they fill."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import SecretStr, TypeAdapter

from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import cluster, environment, files, mounts
from dataflow_assets.secrets.refs import Absent, Fills, SecretKey, SecretRef, VariableRef
from dataflow_assets.spec import Spec, marks

AnySpec = TypeVar("AnySpec", bound=Spec)
Documents = Mapping[tuple[str, str], Mapping[str, SecretStr]]
"""Secret documents by (namespace, name)."""
NAMESPACES = "DATAFLOW_SECRET_NAMESPACES"
_given: dict[str, None] = {}
_MOST_GIVEN = 10_000  # values that are remembered: the oldest are forgotten first


@dataclass(frozen=True)
class Secrets:
    """The secrets in reach of one manifest; `documents` are those in the files beside it."""

    namespace: str = "default"
    documents: Documents = field(default_factory=dict, repr=False)

    def key(self, ref: SecretRef) -> SecretKey:
        """Returns what a reference of this manifest points at."""
        return SecretKey(ref.namespace or self.namespace, ref.name, ref.key)

    def get(self, ref: SecretRef) -> str:
        """The value as it is now, verbatim.

        Called on the driver, whenever a flow is opened. Raises PermanentError naming what is
        missing and where it was looked for, or why the flow must not use it, never a value;
        TransientError where the Kubernetes API cannot be asked.
        """
        if problem := self.refusal(ref):
            raise PermanentError(problem)
        if isinstance(ref, VariableRef):
            value = environment.first(ref)
            if isinstance(value, Absent):
                raise PermanentError(f"{value.reason}: set it for the process that runs the flow")
            return value
        key = self.key(ref)
        reasons = []
        for place in (cluster.value, self._document, mounts.value, environment.value):
            value = place(key)
            if isinstance(value, str):
                return value
            reasons.append(value.reason)
        raise PermanentError(
            f"failed to get secret {key.secret} (key {key.key}): {', and '.join(reasons)}"
        )

    def refusal(self, ref: SecretRef) -> str:
        """Why a flow of this namespace must not use the secret; empty: it may.

        Called when manifests are checked, and for each value that is read. A variable
        DATAFLOW_SECRET__NAMESPACE__... is a Secret of that namespace, whoever names the variable.
        """
        if isinstance(ref, VariableRef):
            refusals = (foreign_place(self.namespace, name) for name in ref.variables)
            return next(filter(None, refusals), "")
        key = self.key(ref)
        problem = why_denied(self.namespace, key.namespace)
        return problem and f"secret {key.secret} must not be used: {problem}"

    def _document(self, key: SecretKey) -> str | Absent:
        document = self.documents.get((key.namespace, key.name))
        if document is None:
            return Absent("no Secret document of that name is in the manifest's folder")
        if key.key not in document:
            raise PermanentError(
                f"key {key.key} not found in secret {key.secret}; "
                f"it has the keys {', '.join(sorted(document)) or '(none)'}"
            )
        return document[key.key].get_secret_value()


def why_denied(own: str, namespace: str) -> str:
    """Why a flow of the namespace `own` must not use the Secrets of `namespace`; empty: it may."""
    listed = os.environ.get(NAMESPACES, "")
    names = {name.strip() for name in listed.split(",")}
    if namespace == own or not names.isdisjoint({namespace, "*"}):
        return ""
    return (
        f"it is in namespace {namespace}, the flow in {own}; other namespaces must be listed in "
        f"{NAMESPACES} ({listed or 'not set'}), separated by commas, or `*` for all"
    )


def foreign_place(own: str, value: str) -> str:
    """Why a flow of the namespace `own` must not use a place of secrets; empty: it may.

    `value`: names a file, or a variable of the environment.
    """
    if (spelled := environment.namespace(value)) is not None:
        return _foreign_variable(own, value, spelled)
    namespace = mounts.namespace(value)
    if namespace is None or not (problem := why_denied(own, namespace)):
        return ""
    return f"a file below {mounts.FOLDER} must not be used: {problem}"


def _foreign_variable(own: str, variable: str, spelled: str) -> str:
    """`spelled`: its namespace, of which several may be spelled alike."""
    listed = os.environ.get(NAMESPACES, "").split(",")
    alike = (one for one in (own, *map(str.strip, listed)) if environment.spell(one) == spelled)
    if not (problem := why_denied(own, next(alike, spelled))):
        return ""
    return f"the variable {variable} must not be used: {problem}"


def resolved_values() -> tuple[str, ...]:
    """The secret values that this process has resolved, also those that were replaced since."""
    return tuple(_given)


class Lookup:
    """Resolves the ends of one flow: all that is missing is named together.

    `fill` each end, then `check`.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._missing: dict[str, str] = {}
        self._places: set[str] = set()

    def fill(self, spec: AnySpec) -> AnySpec:
        """This spec with each SecretRef's value in the field that it fills, where there is one.

        Raises TransientError where the Kubernetes API cannot be asked, PermanentError for a file
        of secrets of a namespace that the flow must not use.
        """
        update: dict[str, Any] = {}
        for name, info in type(spec).model_fields.items():
            value = getattr(spec, name)
            if isinstance(value, SecretRef):
                text = self._text(value)
                filled = [] if text is None else [mark.field for mark in marks(info, Fills)]
                update |= {other: _parse(spec, other, text or "") for other in filled}
            elif isinstance(value, Spec):
                update.setdefault(name, self.fill(value))
            elif isinstance(value, tuple) and any(isinstance(one, Spec) for one in value):
                each = (self.fill(one) if isinstance(one, Spec) else one for one in value)
                update.setdefault(name, tuple(each))
        updated = spec.model_copy(update=update) if update else spec
        for _, value in updated.places_of_secrets():
            if problem := foreign_place(self._secrets.namespace, value):
                raise PermanentError(problem)
            self._places.add(value)
        return updated

    def check(self) -> None:
        """Raises PermanentError for all that was missing."""
        if len(self._missing) == 1:
            raise PermanentError(*self._missing.values())
        if self._missing:
            lines = "".join(f"\n- {reason}" for reason in self._missing.values())
            raise PermanentError(
                f"{len(self._missing)} values of Secrets are missing: "
                f"{', '.join(self._missing)}{lines}"
            )

    def files(self) -> str:
        """A digest of the files of certificates and keys that the ends name by path."""
        return files.digest(self._places)

    def _text(self, ref: SecretRef) -> str | None:
        try:
            return self._secrets.get(ref)
        except PermanentError as error:
            self._missing[self._secrets.key(ref).place] = str(error)
            return None


def resolve(spec: AnySpec, secrets: Secrets) -> AnySpec:
    """This spec with every SecretRef's value put into the field that it fills."""
    lookup = Lookup(secrets)
    filled = lookup.fill(spec)
    lookup.check()
    return filled


def _parse(spec: Spec, name: str, text: str) -> Any:
    annotation: Any = type(spec).model_fields[name].annotation
    if "tuple" in str(annotation):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    value = TypeAdapter(annotation).validate_python(text)
    if isinstance(value, SecretStr):
        _given[text] = None
        while len(_given) > _MOST_GIVEN:
            _given.pop(next(iter(_given)), None)
    return value
