"""Folders and files -> flows, every mistake at once; one broken file never hides the others.

`load` touches nothing but files and imports no client. A file is parsed again only when it
changed, so that a sensor may load its folder at every tick.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from pydantic import SecretStr
from typing_extensions import override

from dataflow_assets.contracts import Connector
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.formats.schema_files import NamesFiles
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.documents import Path as Place
from dataflow_assets.languages.common.reading import DeclaredTables, Reading
from dataflow_assets.languages.language import Language, Neighbours, languages
from dataflow_assets.manifests import connections, kubernetes, unexpected
from dataflow_assets.manifests.file_reading import FileReading, read_file
from dataflow_assets.manifests.folders import beside, expand
from dataflow_assets.manifests.kubernetes import SecretDocument
from dataflow_assets.manifests.neighbours import clashes, cycles
from dataflow_assets.manifests.secret_refs import (
    absent_files,
    absent_secrets,
    foreign,
    missing_keys,
)
from dataflow_assets.secrets import Secrets

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Loaded:
    """Result of reading a set of manifests: flows without findings, all findings, all notes."""

    flows: tuple[Flow, ...] = ()
    findings: tuple[Finding, ...] = ()
    hints: tuple[Finding, ...] = ()
    objects: int = 0
    """How many documents of languages, Secrets and names of connections were read."""
    documents: Mapping[str, Document] = field(default_factory=dict, repr=False, compare=False)
    """By the id of a flow: where it is declared."""
    tables: tuple[tuple[Document, DeclaredTables], ...] = field(default=(), repr=False)
    """The tables of whole files, by file."""
    paths: tuple[Path, ...] = ()
    """The files and folders that were to be read; a folder may not exist."""

    @property
    def broken_files(self) -> Mapping[str, tuple[Finding, ...]]:
        files = groupby(self.findings, key=lambda finding: finding.file)
        return {file: tuple(findings) for file, findings in files}

    def flow(self, name: str) -> Flow | None:
        """The flow called `name` or `namespace/name`; None where there is none or several."""
        flows = [flow for flow in self.flows if name in {flow.name, flow.id}]
        return flows[0] if len(flows) == 1 else None


def load(paths: AnyPath | Iterable[AnyPath]) -> Loaded:
    """Every flow, finding and note in these files and folders (recursively).

    Secrets and names of connections stand in the same folders; a single file finds those in the
    files beside it.
    """
    several = [Path(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    files, findings = expand(several)
    read = {path: read_file(path) for path in files}
    near = {path: read_file(path) for path in beside(several, files)}
    documents = SecretDocuments(
        [path for path, file in (read | near).items() if file.secrets], _secrets
    )
    assembled = _assemble([*read.values()], [*near.values()], documents, findings)
    return replace(assembled, paths=tuple(several))


def _secrets(path: Path) -> Sequence[kubernetes.SecretDocument]:
    return read_file(path).secrets


def _assemble(
    read: list[FileReading],
    near: list[FileReading],
    documents: SecretDocuments,
    findings: list[Finding],
) -> Loaded:
    """The files together: flows get names and Secrets, and must not get in each other's way."""
    secrets = [secret for file in (*read, *near) for secret in file.secrets]
    shared = [one for file in (*read, *near) for one in file.connections]
    names = connections.ConnectionNames(entry for one in shared for entry in one.entries)
    readings = [
        reading for language in languages().values() for reading in _readings(language, read, near)
    ]
    pairs = [(r.flow, r.document) for r in readings if r.flow is not None]
    odd = list(unexpected.each(pairs, unexpected.ask_names))
    flows = names.with_names(
        [one for one in pairs if one[1] not in [document for document, _ in odd]]
    )
    unreadable = {(*secret.id, key) for secret in secrets for key in secret.unreadable}
    late = [
        *odd,
        *clashes(flows),
        *(pair for language in languages().values() for pair in language.conflicts(flows)),
        *unexpected.each(flows, lambda some: missing_keys(some, documents, unreadable)),
        *unexpected.each(flows, foreign),
        *unexpected.each(flows, _without_files),
    ]
    bad = {id(document) for document, _ in late}
    texts = dict(
        pair for file in (*read, *near) for one in file.config_maps for pair in one.items()
    )
    kept = [
        replace(
            flow,
            secrets=Secrets(flow.namespace, documents),
            config_maps=texts if flow.schedule else {},
        )
        for flow, document in flows
        if id(document) not in bad
    ]
    entries = [entry for file in read for one in file.connections for entry in one.entries]
    own = {entry.document.file for entry in entries}
    findings += [finding for file in read for finding in file.findings]
    findings += [finding for reading in readings for finding in reading.findings]
    findings += [*(finding for _, finding in late), *_duplicates(read), *names.findings(own)]
    hints = [hint for file in read for hint in file.hints]
    hints += [hint for reading in readings for hint in reading.hints]
    hints += [
        *absent_secrets(flows, documents),
        *absent_files(flows),
        *names.unused_entries(own),
        *cycles(flows),
    ]
    return Loaded(
        tuple(sorted(kept, key=lambda flow: flow.id)),
        tuple(sorted(set(findings))),
        tuple(sorted(set(hints))),
        sum(len(file.parsed) + len(file.secrets) for file in read) + len(entries),
        {flow.id: document for flow, document in flows if id(document) not in bad},
        tuple((reading.document, reading.tables) for reading in readings if reading.tables),
    )


def _readings(
    language: Language, read: list[FileReading], near: list[FileReading]
) -> Iterator[Reading]:
    """The readings of each document of a language; the others say what it means."""
    own, others = (
        [
            parsed
            for file in files
            for name, parsed in file.parsed
            if name == language.name and parsed.content is not None
        ]
        for files in (read, near)
    )
    parsed = [one.parsed[language.name] for file in (*read, *near) for one in file.connections]
    shared = [one for one in parsed if one.content is not None]
    for one in own:
        beside = Neighbours([two for two in (*own, *others) if two is not one], shared)
        yield from unexpected.readings(one.document, partial(language.flows, one, beside))


def _without_files(flows: list[tuple[Flow, Document]]) -> Iterator[tuple[Document, Finding]]:
    """A finding for each file, such as a schema, that a flow needs and that cannot be used."""
    for flow, document in flows:
        ends: list[tuple[Place, Connector]] = [(("spec", "source", "config"), flow.source)]
        ends += [(branch.place, branch.sink) for branch in flow.branches]
        for base, one in ends:
            problems = one.file_problems() if isinstance(one, NamesFiles) else ()
            for key, message in problems:
                yield document, document.finding((*base, key), message)


def _duplicates(files: list[FileReading]) -> Iterator[Finding]:
    first: dict[tuple[str, str], kubernetes.SecretDocument] = {}
    for secret in (secret for file in files for secret in file.secrets):
        other = first.setdefault(secret.id, secret)
        if other is not secret:
            where = f"{other.document.file}:{other.document.places[()].line}"
            message = f"Secret {'/'.join(secret.id)} is a duplicate; first in {where}"
            yield secret.document.finding(("metadata", "name"), message)


Name = tuple[str, str]
"""(namespace, name)."""
Values = Mapping[str, SecretStr]


class SecretDocuments(Mapping[Name, Values]):
    """Secrets beside the manifests by (namespace, name); of duplicates the first one counts.

    A file that cannot be read any more, or lacks a Secret that it had, leaves the last known
    values: somebody may be in the middle of writing it.
    """

    def __init__(
        self,
        files: Sequence[Path],
        read: Callable[[Path], Iterable[SecretDocument]],
    ) -> None:
        """`read` parses a file where it has changed; it is a function of a module."""
        self._files, self._read = files, read
        self._known: dict[Name, Values] = {}

    @override
    def __getitem__(self, name: Name) -> Values:
        return self._now()[name]

    @override
    def __iter__(self) -> Iterator[Name]:
        return iter(self._now())

    @override
    def __len__(self) -> int:
        return len(self._now())

    @override
    def __repr__(self) -> str:
        return f"SecretDocuments({', '.join(map(str, self._files))})"

    def _now(self) -> Mapping[Name, Values]:
        secrets = [secret for file in self._files for secret in self._read(file)]
        self._known |= {secret.id: secret.values for secret in reversed(secrets)}
        return self._known
