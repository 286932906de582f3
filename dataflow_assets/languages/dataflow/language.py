"""DataFlow manifests among the languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.languages.common.documents import Document, NodePlace
from dataflow_assets.languages.common.json_schema import DocumentSchema
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.dataflow import document as dataflow
from dataflow_assets.languages.dataflow import json_schema, reference
from dataflow_assets.languages.language import Language, Neighbours, Parsed


class DataFlowLanguage(Language):
    """Each document is a flow."""

    name: ClassVar[str] = "dataflow"
    title: ClassVar[str] = "DataFlow manifests"
    suffixes: ClassVar[frozenset[str]] = frozenset({".yaml"})

    @override
    def claims(self, document: Document) -> NodePlace | None:
        return document.places[()] if dataflow.reads(document) else None

    @override
    def parse(self, document: Document) -> Parsed:
        return Parsed(document, dataflow.read(document))

    @override
    def flows(self, parsed: Parsed, beside: Neighbours) -> Iterable[Reading]:
        return [parsed.content]

    @override
    def document_schema(self) -> DocumentSchema:
        return json_schema.document_schema()

    @override
    def reference(self) -> str:
        return reference.render()
