"""Folders and files -> flows, every mistake at once; one broken file never hides the others.

`load` touches nothing but files and imports no client. A file is parsed again only when it
changed, so that a sensor may load its folder at every tick.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.manifests import connections
from dataflow_assets.manifests.dialects import (
    catalogs,
    dataflow,
    kubernetes,
    properties,
    tableflow,
    targets,
)
from dataflow_assets.manifests.dialects.documents import Document, parse
from dataflow_assets.manifests.dialects.justone import read as justone
from dataflow_assets.manifests.dialects.justone.keys import CLASS
from dataflow_assets.manifests.dialects.keys import meant
from dataflow_assets.manifests.dialects.pipelines import read as pipelines
from dataflow_assets.manifests.dialects.sql.folder import SqlFile, read_folder
from dataflow_assets.manifests.dialects.sql_languages import language
from dataflow_assets.manifests.folders import beside, expand
from dataflow_assets.manifests.named_files import unusable
from dataflow_assets.manifests.neighbours import clashes, cycles
from dataflow_assets.manifests.packages import not_installed
from dataflow_assets.manifests.secret_documents import SecretDocuments
from dataflow_assets.manifests.secret_refs import absent, foreign, missing_keys
from dataflow_assets.manifests.shared_targets import overwriting
from dataflow_assets.secrets import Secrets

MOST_BYTES = 512 * 1024  # twice as much as `kubectl apply` takes for one object
MOST_ENTRIES = 10_000  # some other YAML in the folder must not cost a tick more than a second
_OF_DEFS = {"type", "attributes", "requirements", "post_processing", "template_vars_module"}
_JUSTONE, _TABLEFLOW = ("kafka", "postgresql"), ("kafka", "iceberg")

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Loaded:
    """What a set of manifests came to: flows without findings, all findings, all notes."""

    flows: tuple[Flow, ...] = ()
    findings: tuple[Finding, ...] = ()
    hints: tuple[Finding, ...] = ()
    objects: int = 0
    """How many flows, Secrets and names of connections were read."""
    documents: Mapping[str, Document] = field(default_factory=dict, repr=False, compare=False)
    """By the id of a flow: where it is declared."""
    tables: tuple[tuple[Document, dataflow.DeclaredTables], ...] = field(default=(), repr=False)
    """The tables of whole files, by file."""

    @property
    def broken(self) -> Mapping[str, tuple[Finding, ...]]:
        """The findings of each file that has any."""
        files = groupby(self.findings, key=lambda finding: finding.file)
        return {file: tuple(findings) for file, findings in files}

    def flow(self, name: str) -> Flow | None:
        """The flow called `name` or `namespace/name`; None where there is none or several."""
        found = [flow for flow in self.flows if name in {flow.name, flow.id}]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class _FileReading:
    """One file by itself; what depends on other files comes later."""

    readings: tuple[dataflow.Reading, ...] = ()
    secrets: tuple[kubernetes.SecretDocument, ...] = field(default=(), repr=False)
    names: tuple[connections.Entry, ...] = field(default=(), repr=False)
    targets: tuple[targets.Entry, ...] = field(default=(), repr=False)
    catalogs: tuple[catalogs.Catalog | None, ...] = field(default=(), repr=False)
    """None for one with a mistake."""
    tableflow: tuple[tuple[Document, tuple[dataflow.Reading, ...]], ...] = field(
        default=(), repr=False
    )
    """Files of Tableflow, as they read where the location has no catalog."""
    pipelines: tuple[pipelines.PipelineFile, ...] = field(default=(), repr=False)
    """Files of pipelines: where their tables live is said in other files."""
    properties: tuple[Document, ...] = field(default=(), repr=False)
    """Files of Kafka Connect: what a connector means depends on the worker's file beside it."""
    findings: tuple[Finding, ...] = ()
    hints: tuple[Finding, ...] = ()
    sql: tuple[SqlFile, ...] = field(default=(), repr=False)
    """A file of SQL: its tables may be declared in the files beside it."""


def load(paths: AnyPath | Iterable[AnyPath]) -> Loaded:
    """Every flow, finding and note in these files and folders (`*.yaml`, `*.yml`, recursively).

    Secrets and names of connections stand in the same folders; a single file finds those in the
    files beside it.
    """
    several = [Path(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    files, findings = expand(several)
    read = {path: _file(path) for path in files}
    near = {path: _file(path) for path in beside(several, files)}
    documents = SecretDocuments(
        [path for path, file in (read | near).items() if file.secrets], _secrets
    )
    return _assemble([*read.values()], [*near.values()], documents, findings)


def _secrets(path: Path) -> Sequence[kubernetes.SecretDocument]:
    return _file(path).secrets


def _assemble(
    read: list[_FileReading],
    near: list[_FileReading],
    documents: SecretDocuments,
    findings: list[Finding],
) -> Loaded:
    """The files together: flows get names and Secrets, and must not get in each other's way."""
    secrets = [secret for file in (*read, *near) for secret in file.secrets]
    names = connections.Names(name for file in (*read, *near) for name in file.names)
    readings = [reading for file in read for reading in file.readings]
    readings += _tableflow(read, near)
    readings += _connectors(read, near)
    readings += _pipelines(read, near)
    queries = list(read_folder(*([one for f in files for one in f.sql] for files in (read, near))))
    readings += queries
    flows = names.named([(r.flow, r.document) for r in readings if r.flow is not None])
    unreadable = {(*secret.id, key) for secret in secrets for key in secret.unreadable}
    late = [
        *clashes(flows),
        *overwriting(flows),
        *missing_keys(flows, documents, unreadable),
        *foreign(flows),
        *unusable(flows),
    ]
    bad = {id(document) for document, _ in late}
    kept = [
        replace(flow, secrets=Secrets(flow.namespace, documents))
        for flow, document in flows
        if id(document) not in bad
    ]
    own = {name.document.file for file in read for name in file.names}
    findings += [finding for file in read for finding in file.findings]
    findings += [finding for reading in readings for finding in reading.findings]
    findings += [*(finding for _, finding in late), *_repeated(read), *names.findings(own)]
    hints = [hint for file in read for hint in file.hints]
    hints += [hint for reading in readings for hint in reading.hints]
    hints += [*absent(flows, documents), *names.unused(own), *cycles(flows)]
    return Loaded(
        tuple(sorted(kept, key=lambda flow: flow.id)),
        tuple(sorted(set(findings))),
        tuple(sorted(set(hints))),
        sum(_objects(file) for file in read) + len(queries),
        {flow.id: document for flow, document in flows if id(document) not in bad},
        tuple((reading.document, reading.tables) for reading in readings if reading.tables),
    )


def _objects(file: _FileReading) -> int:
    of_tables = [reading for _, found in file.tableflow for reading in found]
    parts = (file.readings, of_tables, file.secrets, file.names, file.pipelines, file.properties)
    return sum(map(len, parts))


def _tableflow(read: list[_FileReading], near: list[_FileReading]) -> Iterator[dataflow.Reading]:
    """The readings of each file of Tableflow: its tables are in the location's catalog, if any."""
    found: list[catalogs.Catalog | None] = []
    for one in (one for file in (*read, *near) for one in file.catalogs):
        found += [] if one in found else [one]
    wrong = catalogs.unusable(found)
    for file in read:
        for document, without in file.tableflow:
            if wrong:
                yield dataflow.Reading(document, (document.finding((), wrong),))
            else:
                yield from tableflow.read(document, found[0]) if found else without


def _connectors(read: list[_FileReading], near: list[_FileReading]) -> Iterator[dataflow.Reading]:
    """A reading for each flow of a connector's file; findings and notes are in the first one's."""
    own, others = ([one for file in files for one in file.properties] for files in (read, near))
    problems = [_not_installed(one, _JUSTONE) for one in own if justone.is_connector(one)]
    if any(problems):
        yield from filter(None, problems)
        return
    for found in justone.read(own, others):
        yield dataflow.Reading(found.document, found.findings, found.hints)
        yield from (dataflow.Reading(found.document, flow=flow) for flow in found.flows)


def _pipelines(read: list[_FileReading], near: list[_FileReading]) -> Iterator[dataflow.Reading]:
    """A reading for each pipeline; findings and notes of a file are in its first one."""
    known = targets.Targets(one for file in (*read, *near) for one in file.targets)
    for file in read:
        for one in file.pipelines:
            yield from pipelines.flows(one, known)


def _not_installed(document: Document, connectors: Sequence[str]) -> dataflow.Reading | None:
    """A finding instead of the flows of a document whose connectors lack their client."""
    lacking = not_installed(connectors)
    return dataflow.Reading(document, (document.finding((), lacking),)) if lacking else None


def _repeated(files: list[_FileReading]) -> Iterator[Finding]:
    first: dict[tuple[str, str], kubernetes.SecretDocument] = {}
    for secret in (secret for file in files for secret in file.secrets):
        other = first.setdefault(secret.id, secret)
        if other is not secret:
            where = f"{other.document.file}:{other.document.places[()].line}"
            message = f"Secret {'/'.join(secret.id)} is a duplicate; first in {where}"
            yield secret.document.finding(("metadata", "name"), message)


def _file(path: Path) -> _FileReading:
    try:
        stat = path.stat()
        return _parsed(str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        return _FileReading(findings=(Finding(str(path), 1, 1, "file", message),))


@lru_cache(maxsize=4096)
def _parsed(file: str, _modified: int, size: int, _inode: int) -> _FileReading:
    if not Path(file).is_file():
        return _refused(file, "is not a regular file")
    if size > MOST_BYTES:
        return _refused(file, f"is larger than {MOST_BYTES // 1024} KiB: split it")
    if file.endswith(".properties"):
        return _properties(file)
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return _refused(file, "is not UTF-8 text")
    if file.endswith(".sql"):
        return _sql(text, file)
    if text.count(":") + text.count(",") > MOST_ENTRIES:
        return _refused(file, f"has more than {MOST_ENTRIES} entries: split it")
    documents, findings = parse(text, file)
    if not documents and not findings:
        return _FileReading(hints=(Finding(file, 1, 1, "file", "no manifest in this file"),))
    return _sorted_out(documents, findings)


def _sql(text: str, file: str) -> _FileReading:
    found = language(text, file)
    if isinstance(found, Finding):
        return _FileReading(findings=(found,))
    if found == "pipelines":
        return _FileReading(pipelines=(pipelines.read(text, file),))
    return _FileReading(sql=(SqlFile(file, text),))


def _properties(file: str) -> _FileReading:
    """Connectors, workers, and files that are neither: Java programs have others."""
    found = properties.parse(properties.decoded(Path(file).read_bytes()), file)
    document = found.document
    if not (found.findings or justone.is_connector(document) or justone.is_worker(document)):
        message = "is neither a connector of JustOne's nor a Connect worker's file: skipped"
        if document.get("connector.class"):
            message = f"is another connector than {CLASS}, the only one that is read: skipped"
            return _FileReading(hints=(document.finding(("connector.class",), message),))
        return _FileReading(hints=(document.finding((), message),))
    hints = (*found.hints, *justone.check_worker(document))
    return _FileReading(properties=(document,), findings=found.findings, hints=hints)


def _refused(file: str, message: str) -> _FileReading:
    return _FileReading(findings=(Finding(file, 1, 1, "file", message),))


def _sorted_out(documents: list[Document], findings: list[Finding]) -> _FileReading:
    """Each document to the language that reads it."""
    readings: list[dataflow.Reading] = []
    secrets: list[kubernetes.SecretDocument] = []
    hints: list[Finding] = []
    names: list[connections.Entry] = []
    found_targets: list[targets.Entry] = []
    found_catalogs: list[catalogs.Catalog | None] = []
    of_tables: list[tuple[Document, tuple[dataflow.Reading, ...]]] = []
    connectors: list[Document] = []
    for document in documents:
        if problem := _list(document):
            findings.append(problem)
        elif connections.reads(document):
            entries, more = connections.read(document)
            names += entries
            findings += more
            target, more = targets.read(document)
            found_targets.append(target)
            findings += more
            catalog, more = catalogs.read(document)
            found_catalogs += [catalog] if document.get(catalogs.KEY) is not None else []
            findings += more
        elif dataflow.reads(document):
            readings.append(dataflow.read(document))
        elif tableflow.reads(document):
            lacking = _not_installed(document, _TABLEFLOW)
            readings += [lacking] if lacking else []
            of_tables += [] if lacking else [(document, tuple(tableflow.read(document)))]
        elif kubernetes.reads(document):
            secret, more = kubernetes.read(document)
            secrets += [secret] if secret else []
            findings += more
        elif connector := justone.from_json(document):
            connectors.append(connector)
        elif _of_dagster(document):
            continue
        elif problem := _unreadable(document):
            findings.append(problem)
        else:
            message = "is not a flow: skipped"
            hints.append(document.finding(("kind",), message))
    return _FileReading(
        tuple(readings),
        tuple(secrets),
        tuple(names),
        tuple(found_targets),
        tuple(found_catalogs),
        tuple(of_tables),
        properties=tuple(connectors),
        findings=tuple(findings),
        hints=tuple(hints),
    )


def _list(document: Document) -> Finding | None:
    """What `kubectl get` prints for several objects; skipping it would lose flows unseen."""
    if document.get("kind") not in ("List", "DataFlowList", "DataFlowCronList"):
        return None
    message = "a list of objects is not read: make each item a document of its own, after `---`"
    return document.finding(("kind",), message)


def _of_dagster(document: Document) -> bool:
    """A component of a Dagster project, as in its `defs.yaml`: manifests may be below it."""
    keys = set(document.value) if isinstance(document.value, dict) else set()
    return keys <= _OF_DEFS and "." in str(document.get("type"))


def _unreadable(document: Document) -> Finding | None:
    """Why a document is nothing that Kubernetes would take either."""
    if not isinstance(document.value, dict):
        return document.finding((), "must be a mapping with apiVersion, kind, metadata and spec")
    for key in ("apiVersion", "kind"):
        if not isinstance(document.get(key), str):
            return document.finding((key,), "is required, as text", key=True)
    if document.get("kind").casefold() in {"dataflow", "dataflowcron"}:
        kind = meant(document.get("kind"), dataflow.KINDS)
        return document.finding(("kind",), f"unknown kind; {kind}")
    return None
