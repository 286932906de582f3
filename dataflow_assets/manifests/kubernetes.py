"""Kubernetes `Secret` documents: values that SecretRefs point at, never echoed.

And `ConfigMap` documents, which triggers of schedules read outside a cluster.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.kinds import kind

_NOT_BASE64 = "is not text in base64; write plain text under stringData"


@dataclass(frozen=True)
class SecretDocument:
    """One Secret: its identity and values; `stringData` wins over `data`, as in Kubernetes."""

    document: Document = field(repr=False)
    namespace: str
    name: str
    values: Mapping[str, SecretStr] = field(repr=False)
    unreadable: frozenset[str] = frozenset()
    """Keys whose value has a finding of its own."""

    @property
    def id(self) -> tuple[str, str]:
        return self.namespace, self.name


def reads(document: Document) -> bool:
    return (document.get("apiVersion"), document.get("kind")) == ("v1", "Secret")


def config_map(document: Document) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """The texts of a `ConfigMap` by its namespace and name; empty for any other document."""
    name, data = document.get("metadata", "name"), document.get("data")
    if (document.get("apiVersion"), document.get("kind")) != ("v1", "ConfigMap"):
        return {}
    if not isinstance(name, str) or not isinstance(data, dict):
        return {}
    namespace = document.get("metadata", "namespace") or "default"
    return {(str(namespace), name): {k: v for k, v in data.items() if isinstance(v, str)}}


def read(document: Document) -> tuple[SecretDocument | None, list[Finding]]:
    """The Secret, without the values that cannot be read; each of those is a finding."""
    name = document.get("metadata", "name")
    namespace = document.get("metadata", "namespace") or "default"
    if not isinstance(name, str) or not isinstance(namespace, str):
        message = "is required" if name is None else f"must be text, got {kind(name)}"
        return None, [document.finding(("metadata", "name"), message, key=True)]
    values: dict[str, SecretStr] = {}
    unreadable: set[str] = set()
    findings: list[Finding] = []
    for path, text, problem in [*_entries(document, "data"), *_entries(document, "stringData")]:
        if text is None:
            findings.append(document.finding(path, problem))
            unreadable |= {str(key) for key in path[1:]}
        else:
            values[str(path[-1])] = SecretStr(text)
    entry = SecretDocument(document, namespace, name, values, frozenset(unreadable - values.keys()))
    return entry, findings


def _entries(document: Document, block: str) -> Iterator[tuple[Path, str | None, str]]:
    """(path, text, "") or (path, None, what is wrong)."""
    entries = document.get(block)
    if entries is not None and not isinstance(entries, dict):
        yield (block,), None, f"must be a mapping, got {kind(entries)}"
        return
    for key, value in (entries or {}).items():
        if not isinstance(value, str):
            yield (block, key), None, f"must be text, got {kind(value)}: put it in quotes"
        elif block == "stringData":
            yield (block, key), value, ""
        else:
            text = _decode(value)
            yield (block, key), text, "" if text is not None else _NOT_BASE64


def _decode(value: str) -> str | None:
    try:
        return base64.b64decode("".join(value.split()), validate=True).decode()
    except ValueError:
        return None
