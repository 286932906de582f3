"""The place of pipelines' tables: `target` and `targets`, DATAFLOW_TARGET, USE.

    target: warehouse
    targets:
      warehouse: {type: postgresql, schema: raw, config: {connectionStringSecretRef: {...}}}
      events: clickhouse://ch.example.com/events

A target is the `sink` of a manifest without its table, or the connection string of a database.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document, NodePlace, Path
from dataflow_assets.languages.common.keys import CONNECTION_NAME, suggest
from dataflow_assets.languages.common.kinds import kind

VARIABLE = "DATAFLOW_TARGET"
KEYS = ("target", "targets")
SYSTEMS = ("postgresql", "clickhouse", "iceberg")
_SCHEMES = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "clickhouse": "clickhouse",
    "clickhouses": "clickhouse",
}
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_SHAPE = (
    "must be a connection string, the name of one of `targets`, or {type, schema, config} as the "
    "sink of a manifest has them, without a table"
)


@dataclass(frozen=True)
class PipelineTarget:
    """A system and how it is reached."""

    system: str
    document: Document = field(repr=False)
    """Where it is declared, with the sink's options at `base`."""
    base: Path = ()
    schema: str | None = None


@dataclass(frozen=True)
class PipelineEntry:
    """The targets of one document."""

    default: PipelineTarget | str | None = None
    """Also a name."""
    named: Mapping[str, PipelineTarget] = field(default_factory=dict)
    document: Document | None = field(default=None, repr=False)


def read(document: Document) -> tuple[PipelineEntry, list[Finding]]:
    """The targets of connections.yaml, and what is wrong with them."""
    findings: list[Finding] = []
    by_name: dict[str, PipelineTarget] = {}
    entries = document.get("targets")
    if entries is not None and not isinstance(entries, dict):
        message = f"must be a mapping of names to targets, got {kind(entries)}"
        findings.append(document.finding(("targets",), message))
    for name in entries if isinstance(entries, dict) else ():
        target = _target(document, ("targets", name), findings)
        if isinstance(target, str):
            findings.append(document.finding(("targets", name), _SHAPE))
        elif target is not None:
            by_name[name] = target
    default = _target(document, ("target",), findings) if document.get("target") else None
    return PipelineEntry(default, by_name, document), findings


def _target(document: Document, path: Path, findings: list[Finding]) -> PipelineTarget | str | None:
    value = document.get(*path)
    if isinstance(value, str):
        target = of_text(value)
        if isinstance(target, PipelineTarget):
            text = Document(document.file, target.document.value, {(): document.places[path]})
            return PipelineTarget(target.system, text)
        if target is None:
            findings.append(document.finding(path, _SHAPE))
        return target
    if not isinstance(value, dict):
        findings.append(document.finding(path, f"{_SHAPE}, got {kind(value)}"))
        return None
    return _block(document, path, value, findings)


def _block(
    document: Document, path: Path, value: Mapping[str, Any], findings: list[Finding]
) -> PipelineTarget | None:
    before = len(findings)
    for key in value:
        if key not in ("type", "schema", "config"):
            message = f"unknown key; {suggest(str(key), ('type', 'schema', 'config'))}"
            findings.append(document.finding((*path, key), message, key=True))
    system, schema = value.get("type"), value.get("schema")
    if system not in SYSTEMS:
        message = f"is required: {suggest(str(system or ''), SYSTEMS)}"
        findings.append(document.finding((*path, "type"), message))
    if schema is not None and (not isinstance(schema, str) or system == "iceberg"):
        message = "must be text" if system != "iceberg" else "write config.namespace for iceberg"
        findings.append(document.finding((*path, "schema"), message))
    if isinstance(config := value.get("config"), dict) and "table" in config:
        message = "must be left out: the file names its tables"
        findings.append(document.finding((*path, "config", "table"), message, key=True))
    if len(findings) > before:
        return None
    return PipelineTarget(str(system), document, (*path, "config"), schema)


def of_text(text: str) -> PipelineTarget | str | None:
    """A connection string as a target, a name as it is; None for all else, which may be secret."""
    match = _SCHEME.match(text.strip())
    if match is None:
        return text.strip() if CONNECTION_NAME.fullmatch(text.strip()) else None
    system = _SCHEMES.get(match[1].lower())
    if system is None:
        return None
    place: dict[Path, NodePlace] = {(): NodePlace(1, 1, 1, 1)}
    return PipelineTarget(system, Document(VARIABLE, {"connectionString": text.strip()}, place))


class Targets:
    """All targets of a location."""

    def __init__(self, entries: Iterable[PipelineEntry]) -> None:
        self._named: dict[str, PipelineTarget] = {}
        self._default: PipelineTarget | str | None = None
        for entry in entries:
            self._named = {**entry.named, **self._named}
            self._default = self._default if self._default is not None else entry.default

    def find(self, used: str | None) -> PipelineTarget | str:
        """The target of a pipeline; a sentence where there is none.

        `used`: the name of USE above the pipeline.
        """
        if used is not None:
            return self._named.get(used) or self._unknown_target(f"USE {used}", used)
        text = os.environ.get(VARIABLE, "").strip()
        if text:
            target = of_text(text)
            if target is None:
                return (
                    f"{VARIABLE} must be a connection string that begins with postgresql:// or "
                    "clickhouse://, or the name of one of `targets`"
                )
            return self._resolve(target, VARIABLE)
        if self._default is not None:
            return self._resolve(self._default, "target of connections.yaml")
        return (
            f"nothing says where its table is: write USE name; with the name in `targets` of "
            f"connections.yaml, set {VARIABLE}, or write `target` in connections.yaml"
        )

    def _resolve(self, result: PipelineTarget | str, what: str) -> PipelineTarget | str:
        if isinstance(result, PipelineTarget):
            return result
        return self._named.get(result) or self._unknown_target(what, result)

    def _unknown_target(self, what: str, name: str) -> str:
        advice = suggest(name, self._named) if self._named else "connections.yaml has no `targets`"
        return f"{what}: no target of this name; {advice}"
