"""The result of reading one document: a flow, or everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.documents import Document


@dataclass(frozen=True)
class Reading:
    """The result for one document: a flow unless there are findings, and notes."""

    document: Document
    findings: tuple[Finding, ...] = ()
    hints: tuple[Finding, ...] = ()
    flow: Flow | None = None
    tables: DeclaredTables | None = None
    """Where the language keeps the tables of a whole file, which outlast their declaration."""


class TablesPlace(Protocol):
    """The place where a language keeps tables that files declare."""

    @property
    def catalog(self) -> str:
        """The name of the catalog, equal for all files with tables in one place."""
        ...

    def stored_tables(self) -> Mapping[str, str]:
        """The place of each table that is stored, by its name. Raises DataflowError."""
        ...


@dataclass(frozen=True)
class DeclaredTables:
    """The tables that one file declares, with mistakes or without."""

    place: TablesPlace
    names: frozenset[str]
