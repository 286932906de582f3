"""Flink's SQL among the languages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.documents import Document, NodePlace
from dataflow_assets.languages.common.first_words import begins_with, statements, words_of
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.common.statements import lines
from dataflow_assets.languages.common.tokens import Token
from dataflow_assets.languages.language import Language, Neighbours, Parsed
from dataflow_assets.languages.sql.engine.explained import explain
from dataflow_assets.languages.sql.engine.query import SqlQuery, ViewRows
from dataflow_assets.languages.sql.reader.read import read, tables_of
from dataflow_assets.languages.sql.reader.shared_targets import overwriting
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared
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
    def claims(self, document: Document) -> NodePlace | None:
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


@dataclass(frozen=True, eq=False)
class SqlFile:
    """One file, the same object as long as it is unchanged: what it comes to is kept by it."""

    file: str
    text: str

    @cached_property
    def folder(self) -> Path:
        """The folder without links; resolved once, as all files of a folder are compared."""
        return Path(self.file).resolve().parent


def read_file(own: SqlFile, every: Sequence[SqlFile]) -> Sequence[Reading]:
    """The readings of a file; `every` has those that lie beside it, among others."""
    beside = tuple(two for two in every if two is not own and two.folder == own.folder)
    return _readings(own, beside)


@lru_cache(maxsize=1024)
def _readings(own: SqlFile, beside: tuple[SqlFile, ...]) -> tuple[Reading, ...]:
    declared: dict[str, list[tuple[str, FlinkDeclared | None]]] = {}
    for other in beside:
        for name, table in _tables(other).items():
            declared.setdefault(name, []).append((Path(other.file).name, table))
    return tuple(read(own.text, own.file, declared))


@lru_cache(maxsize=1024)
def _tables(one: SqlFile) -> Mapping[str, FlinkDeclared | None]:
    return tables_of(one.text, one.file)
