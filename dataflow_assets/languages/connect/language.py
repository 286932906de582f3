"""Sink connectors of Kafka Connect among the languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.languages.common.connect_consumer import is_worker
from dataflow_assets.languages.common.connect_documents import ConnectorDocument, connector
from dataflow_assets.languages.common.documents import Document, Place
from dataflow_assets.languages.common.packages import not_installed
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.connect import reference
from dataflow_assets.languages.connect.reader.documents import MOVED, read
from dataflow_assets.languages.connect.reader.keys import CONFLUENT, CONNECTORS, DEBEZIUM
from dataflow_assets.languages.language import Language, Neighbours, Parsed


class ConnectSinkLanguage(Language):
    """A file is a connector, or the Connect worker's beside it."""

    name: ClassVar[str] = "connect"
    title: ClassVar[str] = "Kafka Connect's sinks"
    suffixes: ClassVar[frozenset[str]] = frozenset({".properties", ".json", ".yaml"})
    connectors: ClassVar[tuple[str, ...]] = ("kafka",)
    connector_classes: ClassVar[frozenset[str]] = frozenset(CONNECTORS)

    @override
    def claims(self, document: Document) -> Place | None:
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
        jdbc = document.value["connector.class"].strip() in (DEBEZIUM, CONFLUENT)
        if missing := not_installed(["postgresql" if jdbc else "iceberg"]):
            return [Reading(document, (document.finding(("connector.class",), missing),))]
        return read(document, [one.content for one in beside.parsed if is_worker(one.content)])

    @override
    def reference(self) -> str:
        return reference.render()
