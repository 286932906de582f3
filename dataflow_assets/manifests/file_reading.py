"""One file by itself: each of its documents goes to the language that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import chain
from pathlib import Path

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common import properties
from dataflow_assets.languages.common.connect_consumer import is_worker
from dataflow_assets.languages.common.documents import Document, items, parse
from dataflow_assets.languages.common.keys import meant
from dataflow_assets.languages.common.packages import not_installed
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.dataflow import document as dataflow
from dataflow_assets.languages.flink.reader.folder import SqlFile
from dataflow_assets.languages.justone.reader import read as justone
from dataflow_assets.languages.justone.reader.keys import CLASS
from dataflow_assets.languages.singlestore import targets
from dataflow_assets.languages.singlestore.reader import read as pipelines
from dataflow_assets.languages.tableflow import catalogs
from dataflow_assets.languages.tableflow import document as tableflow
from dataflow_assets.manifests import connections, kubernetes, unexpected
from dataflow_assets.manifests.sql_languages import language

MOST_BYTES = 512 * 1024  # twice as much as `kubectl apply` takes for one object
MOST_ENTRIES = 10_000  # some other YAML in the folder must not cost a tick more than a second
_OF_DEFS = {"type", "attributes", "requirements", "post_processing", "template_vars_module"}
_TABLEFLOW = ("kafka", "iceberg")
_LISTS = ("List", "DataFlowList", "DataFlowCronList")  # what `kubectl get` prints for several


@dataclass(frozen=True)
class FileReading:
    """One file by itself; what depends on other files comes later."""

    readings: tuple[Reading, ...] = ()
    secrets: tuple[kubernetes.SecretDocument, ...] = field(default=(), repr=False)
    names: tuple[connections.Entry, ...] = field(default=(), repr=False)
    targets: tuple[targets.Entry, ...] = field(default=(), repr=False)
    catalogs: tuple[catalogs.Catalog | None, ...] = field(default=(), repr=False)
    """None for one with a mistake."""
    tableflow: tuple[tuple[Document, tuple[Reading, ...]], ...] = field(default=(), repr=False)
    """Files of Tableflow, as they read where the location has no catalog."""
    pipelines: tuple[pipelines.PipelineFile, ...] = field(default=(), repr=False)
    """Files of pipelines: where their tables live is said in other files."""
    properties: tuple[Document, ...] = field(default=(), repr=False)
    """Files of Kafka Connect: what a connector means depends on the worker's file beside it."""
    findings: tuple[Finding, ...] = ()
    hints: tuple[Finding, ...] = ()
    sql: tuple[SqlFile, ...] = field(default=(), repr=False)
    """A file of SQL: its tables may be declared in the files beside it."""


def lacking_client(document: Document, connectors: Sequence[str]) -> Reading | None:
    """A finding instead of the flows of a document whose connectors lack their client."""
    lacking = not_installed(connectors)
    return Reading(document, (document.finding((), lacking),)) if lacking else None


def read_file(path: Path) -> FileReading:
    """What a file came to; it is parsed again only when it has changed.

    Called for every file of a folder, at every look of a sensor. Throws nothing: one file that
    cannot be read takes no other one down.
    """
    try:
        stat = path.stat()
        return _parsed(str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        return FileReading(findings=(Finding(str(path), 1, 1, "file", message),))


@lru_cache(maxsize=4096)
def _parsed(file: str, _modified: int, size: int, _inode: int) -> FileReading:
    try:
        return _read(file, size)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other files go on
        return FileReading(findings=(unexpected.of_file(file, error),))


def _read(file: str, size: int) -> FileReading:
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
        return FileReading(hints=(Finding(file, 1, 1, "file", "no manifest in this file"),))
    found = FileReading(findings=tuple(findings))
    return _joined((found, *(_guarded(document) for document in documents)))


def _sql(text: str, file: str) -> FileReading:
    found = language(text, file)
    if isinstance(found, Finding):
        return FileReading(findings=(found,))
    if found == "pipelines":
        return FileReading(pipelines=(pipelines.read(text, file),))
    return FileReading(sql=(SqlFile(file, text),))


def _properties(file: str) -> FileReading:
    """Connectors, workers, and files that are neither: Java programs have others."""
    found = properties.parse(properties.decoded(Path(file).read_bytes()), file)
    document = found.document
    if not (found.findings or justone.is_connector(document) or is_worker(document)):
        message = "is neither a connector of JustOne's nor a Connect worker's file: skipped"
        if document.get("connector.class"):
            message = f"is another connector than {CLASS}, the only one that is read: skipped"
            return FileReading(hints=(document.finding(("connector.class",), message),))
        return FileReading(hints=(document.finding((), message),))
    hints = (*found.hints, *justone.check_worker(document))
    return FileReading(properties=(document,), findings=found.findings, hints=hints)


def _refused(file: str, message: str) -> FileReading:
    return FileReading(findings=(Finding(file, 1, 1, "file", message),))


def _joined(parts: Iterable[FileReading]) -> FileReading:
    """All that several documents came to."""
    every = list(parts)
    return FileReading(
        **{
            one.name: tuple(chain.from_iterable(getattr(part, one.name) for part in every))
            for one in fields(FileReading)
        }
    )


def _guarded(document: Document) -> FileReading:
    try:
        return _of_document(document)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other documents go on
        return FileReading(findings=(document.finding((), unexpected.message(error)),))


def _of_document(document: Document) -> FileReading:
    """A document goes to the language that reads it."""
    if document.get("kind") in _LISTS:
        found = items(document)
        empty = () if found else (document.finding(("kind",), "has no items: nothing to read"),)
        return _joined((FileReading(hints=empty), *map(_guarded, found)))
    if connections.reads(document):
        return _of_connections(document)
    if dataflow.reads(document):
        return FileReading((dataflow.read(document),))
    if tableflow.reads(document):
        if lacking := lacking_client(document, _TABLEFLOW):
            return FileReading((lacking,))
        return FileReading(tableflow=((document, tuple(tableflow.read(document))),))
    if kubernetes.reads(document):
        secret, findings = kubernetes.read(document)
        return FileReading(secrets=(secret,) if secret else (), findings=tuple(findings))
    if connector := justone.from_json(document):
        return FileReading(properties=(connector,))
    if _of_dagster(document):
        return FileReading()
    if problem := _unreadable(document):
        return FileReading(findings=(problem,))
    return FileReading(hints=(document.finding(("kind",), "is not a flow: skipped"),))


def _of_connections(document: Document) -> FileReading:
    entries, findings = connections.read(document)
    target, of_target = targets.read(document)
    catalog, of_catalog = catalogs.read(document)
    return FileReading(
        names=tuple(entries),
        targets=(target,),
        catalogs=(catalog,) if document.get(catalogs.KEY) is not None else (),
        findings=(*findings, *of_target, *of_catalog),
    )


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
