"""SecretRefs of a flow held against the Secret documents in reach, without reading a value.

The Kubernetes API is not asked: loading touches no network.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator

from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.secrets import (
    FOLDER,
    Absent,
    SecretRef,
    Secrets,
    VariableRef,
    cluster_api,
    environment,
    foreign_place,
    is_place,
    mounted_file,
)
from dataflow_assets.secrets.lookup import Documents
from dataflow_assets.secrets.tls import EVERYWHERE, show
from dataflow_assets.spec import Spec

Pair = tuple[Flow, Document]


def missing_keys(
    flows: list[Pair], documents: Documents, unreadable: Container[tuple[str, str, str]]
) -> Iterator[tuple[Document, Finding]]:
    """A finding for every reference to a key that its Secret does not have, or not as text.

    A Secret that is not there at all is no mistake, see `absent_secrets`.
    """
    for flow, document in flows:
        for path, ref in _of_secrets(flow):
            name = (ref.namespace or flow.namespace, ref.name)
            keys = documents.get(name)
            if (*name, ref.key) in unreadable:
                message = f"its value in secret {'/'.join(name)} cannot be read, see there"
                yield document, document.finding((*path, "key"), message)
            elif keys is not None and ref.key not in keys:
                message = (
                    f"not found in secret {'/'.join(name)}; "
                    f"it has the keys {', '.join(sorted(keys)) or '(none)'}"
                )
                yield document, document.finding((*path, "key"), message)


def foreign(flows: list[Pair]) -> Iterator[tuple[Document, Finding]]:
    """A finding for each reference, and place, of a namespace that the flow must not use."""
    for flow, document in flows:
        for path, ref in references(flow):
            if problem := Secrets(flow.namespace).refusal(ref):
                at = path if isinstance(ref, VariableRef) else (*path, "namespace")
                yield document, document.finding(at, problem)
        for path, value in _places(flow):
            if problem := foreign_place(flow.namespace, value):
                yield document, document.finding(path, problem)


def absent_secrets(flows: list[Pair], documents: Documents) -> Iterator[Finding]:
    """A note for every Secret that is nowhere yet; it may be there where the flow will run."""
    if cluster_api.inside():
        return  # whether its API has them is found out by those who use them
    unset = "" if os.environ.get(FOLDER) else f" ({FOLDER} is not set)"
    for flow, document in flows:
        for path, ref in references(flow):
            if isinstance(ref, VariableRef):
                if isinstance(found := environment.first(ref), Absent):
                    yield document.finding(path, f"{found.reason}: it must be set at run time")
                continue
            key = Secrets(flow.namespace).key(ref)
            here = (key.namespace, key.name) in documents or mounted_file(key.place) is not None
            if not here and isinstance(environment.value(key), Absent):
                message = (
                    f"secret {key.secret} not found in this folder; at run time it is read from "
                    f"the Kubernetes API inside a cluster, from ${FOLDER}/{key.place}{unset} or "
                    f"from ${environment.variable(key)}"
                )
                yield document.finding(path, message, key=True)


def absent_files(flows: list[Pair]) -> Iterator[Finding]:
    """A note for every file of secrets, such as a certificate, that is not on this machine."""
    for flow, document in flows:
        for path, value in _places(flow):
            if message := _absence(value):
                yield document.finding(path, f"{message}; {EVERYWHERE}")


def _absence(value: str) -> str:
    text = value.strip()
    if is_place(text) and mounted_file(text) is None:
        return f"{FOLDER} has no file {text} on this machine"
    is_path = text.startswith("/") and "\n" not in text
    if is_path and not os.path.isfile(text):  # noqa: PTH113 - never raises
        return f"{show(text)} is not on this machine"
    return ""


def _of_secrets(flow: Flow) -> Iterator[tuple[Path, SecretRef]]:
    return ((path, ref) for path, ref in references(flow) if not isinstance(ref, VariableRef))


def references(flow: Flow) -> Iterator[tuple[Path, SecretRef]]:
    """Every SecretRef of a flow with its place in the manifest."""
    for spec, path in _specs(flow):
        for name, info in type(spec).model_fields.items():
            if isinstance(value := getattr(spec, name), SecretRef):
                yield (*path, info.alias or name), value


def _places(flow: Flow) -> Iterator[tuple[Path, str]]:
    for spec, path in _specs(flow):
        for name, value in spec.places_of_secrets():
            yield (*path, type(spec).model_fields[name].alias or name), value


def _specs(flow: Flow) -> Iterator[tuple[Spec, Path]]:
    """The declarations of a flow that may name Secrets, with their places in the manifest."""
    yield from _nested_specs(flow.source, ("spec", "source", "config"))
    for branch in flow.branches:
        yield from _nested_specs(branch.sink, branch.place)
    if flow.policies.rejects.sink is not None:
        yield from _nested_specs(flow.policies.rejects.sink, ("spec", "errors", "config"))
    if flow.schedule is not None:
        triggers = (("triggers", flow.schedule.triggers), ("onFailure", flow.schedule.on_failure))
        for key, some in triggers:
            for one, place in _inside(some, ("spec", key)):
                yield from _nested_specs(one, place)


def _nested_specs(spec: Spec, path: Path) -> Iterator[tuple[Spec, Path]]:
    yield spec, path
    for name, info in type(spec).model_fields.items():
        for inner, place in _inside(getattr(spec, name), (*path, info.alias or name)):
            yield from _nested_specs(inner, place)


def _inside(value: object, path: Path) -> Iterator[tuple[Spec, Path]]:
    """The declarations that a field holds: one, or several, such as the tables of a UNION ALL."""
    if isinstance(value, tuple):
        for at, one in enumerate(value):
            yield from _inside(one, (*path, at))
    elif isinstance(value, Spec) and not isinstance(value, SecretRef):
        yield value, path
