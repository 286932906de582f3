"""A connector's file and the worker's beside it -> flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as File

from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.connect_consumer import BROKERS, OVERRIDE, beside
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
    notes, made = Notes(), list[Flow]()
    near = beside(document, workers)
    if len(near) > 1:
        names = ", ".join(File(one.file).name for one in near)
        message = f"is in several files beside this one: {names}; keep one of them in this folder"
        notes.wrong((document, BROKERS), message)
    elif not near and not document.value.get(f"{OVERRIDE}{BROKERS}", "").strip():
        notes.wrong((document, BROKERS), _NO_BROKERS)
    else:
        made = flows(document, near[0] if near else None, notes)
    findings = tuple(dict.fromkeys(notes.findings))  # each topic has come to the same ones
    yield Reading(document, findings, tuple(notes.hints))
    if document.sound:
        yield from (Reading(document, flow=flow) for flow in made)
