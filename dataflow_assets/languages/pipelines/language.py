"""SingleStore's pipelines among the languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.languages.common.documents import Document, NodePlace
from dataflow_assets.languages.common.first_words import first
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.common.statements import lines
from dataflow_assets.languages.language import Language, Neighbours, Parsed
from dataflow_assets.languages.pipelines import reference, targets
from dataflow_assets.languages.pipelines.reader import read as pipelines

_BEGINS: tuple[tuple[str, ...], ...] = (
    ("CREATE", "PIPELINE"),
    ("CREATE", "INFERRED"),
    ("CREATE", "OR", "REPLACE", "PIPELINE"),
    ("CREATE", "OR", "REPLACE", "INFERRED"),
    ("CREATE", "PROCEDURE"),
    ("CREATE", "OR", "REPLACE", "PROCEDURE"),
    ("CREATE", "ROWSTORE"),
    ("CREATE", "INDEX"),
    ("ALTER", "PIPELINE"),
    ("DROP", "PIPELINE"),
    ("START", "PIPELINE"),
    ("STOP", "PIPELINE"),
    ("START", "ALL"),
    ("STOP", "ALL"),
    ("TEST", "PIPELINE"),
    ("SET", "GLOBAL"),
    ("DELIMITER",),
)


class SingleStoreLanguage(Language):
    """A file of pipelines; connections.yaml says where its tables live."""

    name: ClassVar[str] = "pipelines"
    title: ClassVar[str] = "SingleStore's pipelines"
    suffixes: ClassVar[frozenset[str]] = frozenset({".sql"})
    connection_keys: ClassVar[frozenset[str]] = frozenset(targets.KEYS)

    @override
    def claims(self, document: Document) -> NodePlace | None:
        word = first(document.value, _BEGINS)
        return lines(word.place) if word else None

    @override
    def parse(self, document: Document) -> Parsed:
        return Parsed(document, pipelines.read(document.value, document.file))

    @override
    def parse_connections(self, document: Document) -> Parsed:
        found, findings = targets.read(document)
        return Parsed(document, found, tuple(findings))

    @override
    def flows(self, parsed: Parsed, beside: Neighbours) -> Iterable[Reading]:
        named_targets = targets.Targets(one.content for one in beside.connections)
        return pipelines.flows(parsed.content, named_targets)

    @override
    def reference(self) -> str:
        return reference.render()
