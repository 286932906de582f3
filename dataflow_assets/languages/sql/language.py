"""Flink's SQL among the languages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.documents import Document, Place
from dataflow_assets.languages.common.first_words import begins_with, statements, words_of
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.common.statements import lines
from dataflow_assets.languages.common.tokens import Token
from dataflow_assets.languages.language import Language, Neighbours, Parsed
from dataflow_assets.languages.sql.engine.explained import explain
from dataflow_assets.languages.sql.engine.query import SqlQuery
from dataflow_assets.languages.sql.engine.view_rows import ViewRows
from dataflow_assets.languages.sql.reader.folder import SqlFile, read_file
from dataflow_assets.languages.sql.reader.shared_targets import overwriting
from dataflow_assets.languages.sql.reference import page

_BEGINS: tuple[tuple[str, ...], ...] = (
    ("INSERT",),
    ("EXECUTE",),
    ("BEGIN", "STATEMENT"),
    ("CREATE", "VIEW"),
    ("CREATE", "TEMPORARY"),
)


class FlinkLanguage(Language):
    """A file of statements; its tables may be declared in the files beside it."""

    name: ClassVar[str] = "sql"
    title: ClassVar[str] = "Flink's SQL"
    suffixes: ClassVar[frozenset[str]] = frozenset({".sql"})
    default_of: ClassVar[frozenset[str]] = frozenset({".sql"})

    @override
    def claims(self, document: Document) -> Place | None:
        own = (one for one in statements(document.value) if _is_own(one))
        claim = next(own, None)
        return lines(claim[0].place) if claim else None

    @override
    def parse(self, document: Document) -> Parsed:
        return Parsed(document, SqlFile(document.file, document.value))

    @override
    def flows(self, parsed: Parsed, beside: Neighbours) -> Iterable[Reading]:
        return read_file(parsed.content, [one.content for one in beside.parsed])

    @override
    def reference(self) -> str:
        return page.render()

    @override
    def conflicts(
        self, flows: Sequence[tuple[Flow, Document]]
    ) -> Iterable[tuple[Document, Finding]]:
        return overwriting(flows)

    @override
    def describe(self, flow: Flow) -> Mapping[str, str]:
        """The INSERT, and what it does with each record."""
        for step in (one.step for one in flow.transformations):
            if isinstance(step, SqlQuery | ViewRows):
                plan = step.plan if isinstance(step, SqlQuery) else step.view
                return {
                    "query": f"```sql\n{step.text}\n```",
                    "plan": f"```text\n{explain(plan)}\n```",
                }
        return {}


def _is_own(statement: Sequence[Token]) -> bool:
    words = words_of(statement)
    if begins_with(statement, _BEGINS) or (words[:2] == ["CREATE", "TABLE"] and "WITH" in words):
        return True
    return statement[0].says("SET") and len(statement) > 1 and statement[1].kind == "text"
