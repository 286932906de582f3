"""One file by itself: each of its documents goes to the language that claims it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import chain
from pathlib import Path

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common import properties
from dataflow_assets.languages.common.documents import Document, NodePlace, items, parse
from dataflow_assets.languages.common.packages import not_installed
from dataflow_assets.languages.language import Language, Parsed, form_of, languages
from dataflow_assets.manifests import connections, kubernetes, unexpected

MOST_BYTES = 512 * 1024  # twice as much as `kubectl apply` takes for one object
MOST_ENTRIES = 10_000  # some other YAML in the folder must not cost a tick more than a second
ConfigMaps = Mapping[tuple[str, str], Mapping[str, str]]
"""The texts of ConfigMaps by (namespace, name)."""
_LISTS = ("List", "DataFlowList", "DataFlowCronList")  # what `kubectl get` prints for several


@dataclass(frozen=True)
class FileReading:
    """One file by itself; what depends on other files comes later."""

    parsed: tuple[tuple[str, Parsed], ...] = field(default=(), repr=False)
    """Documents of languages, each with the name of its language."""
    secrets: tuple[kubernetes.SecretDocument, ...] = field(default=(), repr=False)
    config_maps: tuple[ConfigMaps, ...] = field(default=(), repr=False)
    connections: tuple[connections.Connections, ...] = field(default=(), repr=False)
    findings: tuple[Finding, ...] = ()
    hints: tuple[Finding, ...] = ()


def read_file(path: Path) -> FileReading:
    """Reads a file by itself; it is parsed again only when it has changed, or its place has.

    Called for every file of a folder, at every look of a sensor. Throws nothing: one file that
    cannot be read takes no other one down.
    """
    try:
        stat = path.stat()
        real = os.path.realpath(path)
        return _parse(str(path), real, stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        return FileReading(findings=(Finding(str(path), 1, 1, "file", message),))


@lru_cache(maxsize=4096)
def _parse(file: str, _real: str, _modified: int, size: int, _inode: int) -> FileReading:
    try:
        return _read(file, size)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other files go on
        return FileReading(findings=(unexpected.of_file(file, error),))


def _read(file: str, size: int) -> FileReading:
    if not Path(file).is_file():
        return _refusal(file, "is not a regular file")
    if size > MOST_BYTES:
        return _refusal(file, f"is larger than {MOST_BYTES // 1024} KiB: split it")
    form = form_of(file)
    if form == ".properties":
        parsed = properties.parse(properties.decode(Path(file).read_bytes()), file)
        whole = FileReading(findings=parsed.findings, hints=parsed.hints)
        return _join((whole, _of_language(parsed.document, ".properties")))
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return _refusal(file, "is not UTF-8 text")
    if form != ".yaml":
        return _of_language(Document(file, text, {(): NodePlace(1, 1, 1, 1)}), form)
    if text.count(":") + text.count(",") > MOST_ENTRIES:
        return _refusal(file, f"has more than {MOST_ENTRIES} entries: split it")
    documents, findings = parse(text, file)
    if not documents and not findings:
        return FileReading(hints=(Finding(file, 1, 1, "file", "no manifest in this file"),))
    reading = FileReading(findings=tuple(findings))
    return _join((reading, *(_guard(document) for document in documents)))


def _refusal(file: str, message: str) -> FileReading:
    return FileReading(findings=(Finding(file, 1, 1, "file", message),))


def _join(parts: Iterable[FileReading]) -> FileReading:
    every = list(parts)
    return FileReading(
        **{
            one.name: tuple(chain.from_iterable(getattr(part, one.name) for part in every))
            for one in fields(FileReading)
        }
    )


def _guard(document: Document) -> FileReading:
    try:
        return _of_yaml(document)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other documents go on
        return FileReading(findings=(document.finding((), unexpected.message(error)),))


def _of_yaml(document: Document) -> FileReading:
    """A document of YAML may also be a Secret, a ConfigMap, or the location's connections."""
    if document.get("kind") in _LISTS:
        several = items(document)
        empty = () if several else (document.finding(("kind",), "has no items: nothing to read"),)
        return _join((FileReading(hints=empty), *map(_guard, several)))
    if connections.reads(document):
        connection, findings = connections.read(document)
        return FileReading(connections=(connection,), findings=tuple(findings))
    if kubernetes.reads(document):
        secret, findings = kubernetes.read(document)
        return FileReading(secrets=(secret,) if secret else (), findings=tuple(findings))
    if texts := kubernetes.config_map(document):
        return FileReading(config_maps=(texts,))
    return _of_language(document, ".yaml")


def _of_language(document: Document, form: str) -> FileReading:
    """A document goes to the languages that claim it: a Connect worker's file is for several."""
    forms = {".yaml", ".json"} if form == ".yaml" else {form}
    able = [one for one in languages().values() if forms & one.suffixes]
    claims = [(place, one) for one in able if (place := one.claims(document)) is not None]
    claims.sort(key=lambda claim: (claim[0].line, claim[0].column))
    if not claims:
        rest = [one for one in able if form in one.default_of]
        return _join([_of(one, document) for one in rest] or [_of_none(document, form)])
    (first, language), (last, other) = claims[0], claims[-1]
    if last != first:
        message = (
            f"this statement is of {other.title}, and those above are of {language.title}: a file "
            "is in one language, so move it to a file of its own"
        )
        finding = Finding(document.file, last.line, last.column, "SQL", message)
        return FileReading(findings=(finding,))
    return _join(_of(one, document) for _, one in claims)


def _of(language: Language, document: Document) -> FileReading:
    """A document is not read where its connectors have no client: it is a finding."""
    if lacks := not_installed(language.connectors):
        return FileReading(findings=(document.finding((), lacks),))
    parsed = language.parse(document)
    return FileReading(((language.name, parsed),), findings=parsed.findings, hints=parsed.hints)


def _of_none(document: Document, form: str) -> FileReading:
    if not document.sound:
        return FileReading()
    problem, note = explain_unclaimed(document, form)
    return FileReading(
        findings=(problem,) if problem else (),
        hints=(note,) if note else (),
    )


_OF_DEFS = {"type", "attributes", "requirements", "post_processing", "template_vars_module"}
_CLASS = "connector.class"


def explain_unclaimed(document: Document, form: str) -> tuple[Finding | None, Finding | None]:
    """Says why a document is not read: as a mistake, as a note, or, of Dagster's files, not at all.

    Args:
        document: that no language claims.
        form: `.properties` or `.yaml`.
    """
    if form == ".properties":
        return None, _of_properties(document)
    # A component of a Dagster project, as in its `defs.yaml`: manifests may be below it.
    keys = set(document.value) if isinstance(document.value, dict) else set()
    if keys <= _OF_DEFS and "." in str(document.get("type")):
        return None, None
    if problem := _unreadable(document):
        return problem, None
    return None, document.finding(("kind",), "is not a flow: skipped")


def _of_properties(document: Document) -> Finding:
    """Java programs have others than connectors and workers."""
    if not document.get(_CLASS):
        message = "is neither a connector that is read nor a Connect worker's file: skipped"
        return document.finding((), message)
    names = sorted(name for one in languages().values() for name in one.connector_classes)
    whole = ", ".join(name for name in names if "." in name)  # Connect takes their last part, too
    message = f"is another connector than {whole}: skipped"
    return document.finding((_CLASS,), message)


def _unreadable(document: Document) -> Finding | None:
    """Why a document is nothing that Kubernetes would take either."""
    if not isinstance(document.value, dict):
        return document.finding((), "must be a mapping with apiVersion, kind, metadata and spec")
    for key in ("apiVersion", "kind"):
        if not isinstance(document.get(key), str):
            return document.finding((key,), "is required, as text", key=True)
    return None
