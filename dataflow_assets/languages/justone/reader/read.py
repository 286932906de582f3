"""Connectors' files and the workers' beside them -> flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.connect_consumer import is_worker, other_keys, worker_beside
from dataflow_assets.languages.common.connect_documents import ConnectorDocument
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.common.reading import Reading
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


def is_connector(document: Document) -> bool:
    """Returns whether it is a connector of JustOne's, or tries to be one."""
    value = document.value
    if not isinstance(value, dict):
        return False
    kind = value.get("connector.class")
    return str(kind).strip() in CLASSES or (kind is None and "db.json.parse" in value)


def read(document: Document, others: Iterable[Document]) -> Iterator[Reading]:
    """Reads a connector's file; of the others the Connect worker's beside it counts."""
    if not is_connector(document):
        return
    notes = Notes()
    worker = worker_beside(document, filter(is_worker, others), notes, _NO_WORKER)
    connector_document = ConnectorDocument(
        document.file, document.value, document.places, sound=document.sound, moved=MOVED
    )
    built = flows(connector_document, worker, notes)
    yield Reading(connector_document, tuple(notes.findings), tuple(notes.hints))
    if document.sound:
        yield from (Reading(connector_document, flow=flow) for flow in built)


def check_worker(document: Document) -> tuple[Finding, ...]:
    """Notes about the keys of a worker's file; none for another one."""
    notes = Notes()
    if is_worker(document):
        other_keys(document, notes)
    return tuple(notes.hints)
