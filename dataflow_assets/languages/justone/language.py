"""The properties of JustOne's connectors among the languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.languages.common.connect_consumer import is_worker
from dataflow_assets.languages.common.connect_documents import connector
from dataflow_assets.languages.common.documents import Document, NodePlace
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.justone import reference
from dataflow_assets.languages.justone.reader import read as justone
from dataflow_assets.languages.justone.reader.keys import CLASSES
from dataflow_assets.languages.language import Language, Neighbours, Parsed


class JustOneLanguage(Language):
    """A file is a connector, or the Connect worker's beside it."""

    name: ClassVar[str] = "justone"
    title: ClassVar[str] = "JustOne's connectors"
    suffixes: ClassVar[frozenset[str]] = frozenset({".properties", ".json"})
    connectors: ClassVar[tuple[str, ...]] = ("kafka", "postgresql")
    connector_classes: ClassVar[frozenset[str]] = frozenset(CLASSES)

    @override
    def claims(self, document: Document) -> NodePlace | None:
        own: object = connector(document, CLASSES, justone.MOVED)
        if document.file.endswith(".properties"):
            own = justone.is_connector(document) or is_worker(document)
        return document.places[()] if own else None

    @override
    def parse(self, document: Document) -> Parsed:
        content = connector(document, CLASSES, justone.MOVED) or document
        return Parsed(content, content, hints=justone.check_worker(content))

    @override
    def flows(self, parsed: Parsed, beside: Neighbours) -> Iterable[Reading]:
        return justone.read(parsed.content, [one.content for one in beside.parsed])

    @override
    def reference(self) -> str:
        return reference.render()
