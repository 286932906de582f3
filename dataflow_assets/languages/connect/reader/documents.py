"""A connector's file and the worker's beside it -> flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dataflow_assets.languages.common.connect_consumer import BROKERS, OVERRIDE, worker_beside
from dataflow_assets.languages.common.connect_documents import ConnectorDocument
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.connect.reader.connector import flows

MOVED: Mapping[Path, Path] = {
    ("metadata", "name"): ("name",),
    ("spec", "source", "config"): ("topics",),
}
"""Where rules between flows say that something is, and the key that says it here."""
_NO_BROKERS = (
    "is in no *.properties file of this folder: put the Connect worker's file beside this one, or "
    "write consumer.override.bootstrap.servers, like kafka-1:9092, into this one"
)


def read(document: ConnectorDocument, workers: Iterable[Document]) -> Iterator[Reading]:
    """Reads a connector's file with the Connect worker's beside it.

    Args:
        document: the connector.
        workers: files of Connect workers, of which the one in the same folder counts.

    Returns:
        A reading for each flow, and one of everything that is wrong or worth a note.
    """
    notes = Notes()
    brokers = document.value.get(f"{OVERRIDE}{BROKERS}", "").strip()
    worker = worker_beside(document, workers, notes, "" if brokers else _NO_BROKERS)
    built = [] if notes.findings else flows(document, worker, notes)
    findings = tuple(dict.fromkeys(notes.findings))  # each topic has come to the same ones
    yield Reading(document, findings, tuple(notes.hints))
    if document.sound:
        yield from (Reading(document, flow=flow) for flow in built)
