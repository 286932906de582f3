"""Connectors' files and the workers' beside them -> flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File

from dataflow_assets.errors import Finding, unexpected
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.connect_consumer import (
    BROKERS,
    beside,
    is_worker,
    other_keys,
)
from dataflow_assets.languages.common.connect_documents import ConnectorDocument
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.justone.reader.connector import flows
from dataflow_assets.languages.justone.reader.keys import CLASSES

MOVED: Mapping[Path, Path] = {
    ("metadata", "name"): ("name",),
    ("spec", "source", "config"): ("topics",),
    ("db.table", "passwordSecretRef"): ("db.password",),
}
"""Where rules between flows say that something is, and the key that says it here."""
_NO_WORKER = (
    "is in no *.properties file of this folder: put the Connect worker's file beside this one, "
    "with the brokers, like bootstrap.servers=kafka-1:9092"
)


@dataclass(frozen=True)
class Read:
    """What one connector's file came to; its flows share the document."""

    document: Document
    flows: tuple[Flow, ...]
    findings: tuple[Finding, ...]
    hints: tuple[Finding, ...]


def is_connector(document: Document) -> bool:
    """Returns whether it is a connector of JustOne's, or tries to be one."""
    value = document.value
    if not isinstance(value, dict):
        return False
    kind = value.get("connector.class")
    return str(kind).strip() in CLASSES or (kind is None and "db.json.parse" in value)


def read(own: Iterable[Document], near: Iterable[Document]) -> Iterator[Read]:
    """The connectors of the files that were named; `near` are those that lie beside them."""
    mine = list(own)
    workers = [one for one in [*mine, *near] if is_worker(one)]
    for document in mine:
        if is_connector(document):
            try:
                yield _one(document, beside(document, workers))
            except Exception as error:  # noqa: BLE001 - whatever it is, the other files go on
                said = f"cannot be read: {unexpected(error)}"
                yield Read(document, (), (document.finding((), said),), ())


def check_worker(document: Document) -> tuple[Finding, ...]:
    """Notes about the keys of a worker's file; none for another one."""
    notes = Notes()
    if is_worker(document):
        other_keys(document, notes)
    return tuple(notes.hints)


def _one(document: Document, workers: Sequence[Document]) -> Read:
    notes = Notes()
    if not workers:
        notes.wrong((document, BROKERS), _NO_WORKER)
    elif len(workers) > 1:
        names = ", ".join(File(one.file).name for one in workers)
        message = f"is in several files beside this one: {names}; keep one of them in this folder"
        notes.wrong((document, BROKERS), message)
    named = ConnectorDocument(
        document.file, document.value, document.places, sound=document.sound, moved=MOVED
    )
    found = flows(named, workers[0] if len(workers) == 1 else None, notes)
    if not document.sound:
        found = []
    return Read(named, tuple(found), tuple(notes.findings), tuple(notes.hints))
