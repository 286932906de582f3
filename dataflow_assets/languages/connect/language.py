"""Sink connectors of Kafka Connect among the languages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.languages.common.connect_consumer import (
    BROKERS,
    OVERRIDE,
    is_worker,
    worker_beside,
)
from dataflow_assets.languages.common.connect_documents import ConnectorDocument, connector
from dataflow_assets.languages.common.documents import Document, NodePlace, Path
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.common.packages import not_installed
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.connect import reference
from dataflow_assets.languages.connect.reader.connector import flows
from dataflow_assets.languages.connect.reader.jdbc import MYSQL
from dataflow_assets.languages.connect.reader.keys import CONFLUENT, CONNECTORS, DEBEZIUM
from dataflow_assets.languages.language import Language, Neighbours, Parsed

MOVED: Mapping[Path, Path] = {
    ("metadata", "name"): ("name",),
    ("spec", "source", "config"): ("topics",),
}
"""Where rules between flows say that something is, and the key that says it here."""
_NO_BROKERS = (
    "is in no *.properties file of this folder: put the Connect worker's file beside this one, or "
    "write consumer.override.bootstrap.servers, like kafka-1:9092, into this one"
)


class ConnectSinkLanguage(Language):
    """A file is a connector, or the Connect worker's beside it."""

    name: ClassVar[str] = "connect"
    title: ClassVar[str] = "Kafka Connect's sinks"
    suffixes: ClassVar[frozenset[str]] = frozenset({".properties", ".json", ".yaml"})
    connectors: ClassVar[tuple[str, ...]] = ("kafka",)
    connector_classes: ClassVar[frozenset[str]] = frozenset(CONNECTORS)

    @override
    def claims(self, document: Document) -> NodePlace | None:
        worker = document.file.endswith(".properties") and is_worker(document)
        return document.places[()] if worker or connector(document, CONNECTORS, MOVED) else None

    @override
    def parse(self, document: Document) -> Parsed:
        content = connector(document, CONNECTORS, MOVED) or document
        return Parsed(content, content)

    @override
    def flows(self, parsed: Parsed, beside: Neighbours) -> Iterable[Reading]:
        document = parsed.content
        if not isinstance(document, ConnectorDocument):
            return []
        if missing := not_installed([_target(document)]):
            return [Reading(document, (document.finding(("connector.class",), missing),))]
        return read(document, [one.content for one in beside.parsed if is_worker(one.content)])

    @override
    def reference(self) -> str:
        return reference.render()


def _target(document: ConnectorDocument) -> str:
    """The connector that a file's tables need."""
    if document.value["connector.class"].strip() not in (DEBEZIUM, CONFLUENT):
        return "iceberg"
    return "mysql" if MYSQL.match(document.value.get("connection.url", "")) else "postgresql"


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
