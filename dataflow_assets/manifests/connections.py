"""The location's `connections`: short names for what manifests spell in several ways.

A file `connections.yaml` among the manifests gives each name the addresses, as manifests write
them, or the Secrets that stand for it:

    events: [broker-1:9092, kafka.example.com:9092]
    lake: https://catalog.example.com/warehouse
    shop: [db.example.com/shop, {secret: shop-database}]

A name in a manifest's annotation wins; what has no name is known by its address. Nothing is
resolved or reached, and no text of the file is ever part of a message.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as File
from typing import Any

from dataflow_assets.contracts import Connector
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow, Policies
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.keys import CONNECTION_NAME
from dataflow_assets.languages.common.kinds import kind
from dataflow_assets.languages.language import Parsed, languages

NAMES = ("connections.yaml", "connections.yml")
Pair = tuple[Flow, Document]
_ADDRESSES = "must be addresses as manifests write them, or {secret: name}"


@dataclass(frozen=True)
class Entry:
    """One spelling and the name it goes by."""

    name: str
    spelling: tuple[str, str] = field(repr=False)
    """`address` or `secret`, and the text."""
    document: Document = field(repr=False)
    path: Path

    @property
    def is_address(self) -> bool:
        """False for a Secret: a name for one namespace may differ from that for all."""
        return self.spelling[0] == "address"

    def finding(self, message: str) -> Finding:
        return self.document.finding(self.path, message)

    @property
    def where(self) -> str:
        return f"{self.document.file}:{self.document.places[self.path].line}"


def reads(document: Document) -> bool:
    """True where the document gives names: by its file, unless it is an object of Kubernetes'."""
    kubernetes = document.get("apiVersion") or document.get("kind")
    return File(document.file).name in NAMES and not kubernetes


@dataclass(frozen=True)
class Connections:
    """One connections.yaml."""

    entries: tuple[Entry, ...]
    parsed: Mapping[str, Parsed]
    """The keys of languages, by the name of the language."""


def read(document: Document) -> tuple[Connections, list[Finding]]:
    """Reads the entries and languages' keys that can be used, and what is wrong with the others."""
    entries, findings = _entries(document)
    parsed = {one.name: one.parse_connections(document) for one in languages().values()}
    findings += [finding for one in parsed.values() for finding in one.findings]
    return Connections(tuple(entries), parsed), findings


def _entries(document: Document) -> tuple[list[Entry], list[Finding]]:
    if not isinstance(document.value, dict):
        message = f"must be a mapping of short names to addresses, got {kind(document.value)}"
        return [], [document.finding((), message)]
    entries: list[Entry] = []
    findings = [document.finding(p, _ADDRESSES, key=True) for p in document.empty if len(p) == 1]
    for name, value in document.value.items():
        if any(name in one.connection_keys for one in languages().values()):
            continue
        if CONNECTION_NAME.fullmatch(name) is None:
            message = "a name has letters, digits, `-`, `_` and `.`, with a letter or digit at ends"
            findings.append(document.finding((name,), message, key=True))
            continue
        for path, item in _items(name, value):
            spelling = _spelling(item)
            if spelling is None:
                findings.append(document.finding(path, f"{_ADDRESSES}, got {kind(item)}"))
            else:
                entries.append(Entry(name, spelling, document, path))
    return entries, findings


def _items(name: str, value: Any) -> Iterator[tuple[Path, Any]]:
    if not isinstance(value, list):
        yield (name,), value
        return
    for index, item in enumerate(value):
        yield (name, index), item


def _spelling(item: Any) -> tuple[str, str] | None:
    if isinstance(item, str) and plain(item):
        return "address", plain(item)
    if isinstance(item, dict) and set(item) == {"secret"} and isinstance(item["secret"], str):
        return "secret", item["secret"].strip()
    return None


def plain(text: str) -> str:
    """An address without scheme, user, password and options; hosts are the same in any case."""
    bare = re.sub(r"^([A-Za-z][\w+.-]*://)?(.*@)?", "", text.strip()).partition("?")[0].rstrip("/")
    host, slash, rest = bare.partition("/")
    return f"{host.lower()}{slash}{rest}"


_UNUSED = {
    True: "no manifest writes its address like this: write it as a manifest has it, host/database "
    "or host:port of a broker; user and password are not needed",
    False: "no manifest names a Secret like this: write its name, or namespace/name",
}


class ConnectionNames:
    """All entries of a location; remembers which of them were of use."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}
        self._used: set[tuple[str, str]] = set()
        self._findings: list[Finding] = []
        for entry in entries:
            first = self._entries.setdefault(entry.spelling, entry)
            if first.name != entry.name:
                message = f"is called {first.name} already, in {first.where}: leave one out"
                self._findings.append(entry.finding(message))

    def with_names(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The flows with the names of their ends."""
        return [(self._with_names(flow), document) for flow, document in pairs]

    def findings(self, files: Container[str]) -> list[Finding]:
        """Returns what is wrong in these files; complete once every flow is named."""
        return [finding for finding in self._findings if finding.file in files]

    def unused_entries(self, files: Container[str]) -> Iterator[Finding]:
        """A note for every entry of these files that no manifest writes like this."""
        for spelling, entry in self._entries.items():
            if spelling not in self._used and entry.document.file in files:
                yield entry.finding(_UNUSED[entry.is_address])

    def _with_names(self, flow: Flow) -> Flow:
        source = self._name(flow.source, flow)
        names = [self._name(branch.sink, flow) for branch in flow.branches]
        branches = tuple(
            replace(branch, connection=branch.connection or name)
            for branch, name in zip(flow.branches, names, strict=True)
        )
        return replace(
            flow,
            source_connection=flow.source_connection or source,
            branches=branches,
            policies=self._errors(flow),
        )

    def _errors(self, flow: Flow) -> Policies:
        rejects = flow.policies.rejects
        if rejects.sink is None:
            return flow.policies
        store = replace(rejects, connection=self._name(rejects.sink, flow))
        return replace(flow.policies, rejects=store)

    def _name(self, end: Connector, flow: Flow) -> str | None:
        """The name of the first spelling that has one."""
        entries = [self._entries[s] for s in _spellings(end, flow) if s in self._entries]
        self._used |= {entry.spelling for entry in entries}
        others = (entry for entry in entries if entry.name != entries[0].name and entry.is_address)
        for entry in others:
            message = (
                f"{flow.file}:{flow.line} lists this address beside one that is called "
                f"{entries[0].name}, in {entries[0].where}: give both the same name"
            )
            self._findings.append(entry.finding(message))
        return entries[0].name if entries else None


def _spellings(end: Connector, flow: Flow) -> Iterator[tuple[str, str]]:
    for spelling in end.spellings():
        if isinstance(spelling, str):
            yield "address", plain(spelling)
        else:
            yield "secret", f"{spelling.namespace or flow.namespace}/{spelling.name}"
            yield "secret", spelling.name
