"""A manifest language: how its files are recognised, parsed, and turned into flows.

A language is a package beside this module with a `language.py` that defines one class derived from
`Language`. It is found there by name; nothing is registered by hand. All of it runs on the driver
and touches nothing but files.
"""

from __future__ import annotations

import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any, ClassVar

from dataflow_assets import languages as packages
from dataflow_assets.contracts import Lag
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.documents import Document, NodePlace
from dataflow_assets.languages.common.json_schema import DocumentSchema
from dataflow_assets.languages.common.reading import Reading


@dataclass(frozen=True)
class Parsed:
    """One document, read by itself; kept until its file changes."""

    document: Document
    content: Any = field(default=None, repr=False)
    """The language's own value; None where nothing more can be read."""
    findings: tuple[Finding, ...] = ()
    hints: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Neighbours:
    """The documents beside one, which may say what it means."""

    parsed: Sequence[Parsed] = ()
    """Other documents of the same language, in files of the location and in folders beside them."""
    connections: Sequence[Parsed] = ()
    """The location's connections.yaml, as `Language.parse_connections` has read it."""


@dataclass(frozen=True)
class LagMetric:
    """One value of a metric about the lag of a flow, as the language's own tool has it."""

    name: str
    help: str
    """What the values of this name say, with their unit: one text for all of them."""
    tags: Mapping[str, str]
    """The same names in one order for all values of a metric, as its documentation has them."""
    value: float


class Language(ABC):
    """A manifest language, asked whenever manifests are loaded: at every tick of a sensor."""

    name: ClassVar[str]
    """`Flow.language`, and the name of its page in docs/reference."""
    title: ClassVar[str]
    """The name of the language in messages."""
    suffixes: ClassVar[frozenset[str]]
    """The endings of its files: `.yaml` (also for `.yml`), `.json`, `.properties`; a file with any
    other one, such as `.sql`, is one document, whose value is the text."""
    connectors: ClassVar[tuple[str, ...]] = ()
    """The extras that every flow of it needs."""
    connector_classes: ClassVar[frozenset[str]] = frozenset()
    """The `connector.class` of its files: of *.json only files that name such a class are read."""
    connection_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of connections.yaml that are its own, and no names of connections."""
    default_of: ClassVar[frozenset[str]] = frozenset()
    """Suffixes of files that it reads where no language claims them."""

    @abstractmethod
    def claims(self, document: Document) -> NodePlace | None:
        """Recognises a document of this language.

        Args:
            document: of a file with one of the suffixes. The value of a YAML document is what it
                says; that of properties maps keys to texts; any other is the text.

        Returns:
            Where the document shows that it is of this language: a document that two languages
            claim at different places is refused at the later of them. None: it is of another one.
        """

    @abstractmethod
    def parse(self, document: Document) -> Parsed:
        """Reads a document that it claims, by itself, once for each change of the file."""

    @abstractmethod
    def flows(self, parsed: Parsed, beside: Neighbours) -> Iterable[Reading]:
        """Turns a document into flows, or says what is wrong with it.

        Called at each load for each document whose `content` is not None. What it raises becomes
        a finding of this document; all others go on.
        """

    @abstractmethod
    def reference(self) -> str:
        """Writes the page docs/reference/<name>.md from the models, for `make docs`."""

    def document_schema(self) -> DocumentSchema | None:
        """Describes its documents of YAML for editors; None: it has none that an editor knows."""
        return None

    def parse_connections(self, document: Document) -> Parsed:
        """Reads this language's keys in a document of connections.yaml."""
        return Parsed(document)

    def conflicts(
        self, flows: Sequence[tuple[Flow, Document]]
    ) -> Iterable[tuple[Document, Finding]]:
        """Finds flows of this language that must not run beside each other.

        Args:
            flows: those of all languages, with the names that connections give them.

        Returns:
            A finding for each flow that is to be left out.
        """
        del flows
        return ()

    def describe(self, flow: Flow) -> Mapping[str, str]:
        """Says what the asset of one of its flows shows besides: Markdown, by name."""
        del flow
        return {}

    def lag_metrics(self, flow: Flow, lag: Lag) -> Iterable[LagMetric]:
        """Yields the metrics that the language's own tool has about the lag of a flow.

        Called on the driver after commits, by the sensor of lags, and for each scrape of metrics.

        Args:
            flow: one of this language.
            lag: of one of its branches.
        """
        del flow, lag
        return ()


@cache
def suffixes() -> frozenset[str]:
    """The suffixes of files of manifests; connections and Secrets are YAML."""
    return frozenset({".yaml"}.union(*(one.suffixes for one in languages().values())))


def form_of(file: str) -> str:
    """Returns the suffix that says how a file is read: `.yaml` for JSON and all others, too."""
    suffix = PurePath(file).suffix
    return suffix if suffix in suffixes() - {".json"} else ".yaml"


@cache
def languages() -> Mapping[str, Language]:
    by_name = {language.name: language for language in _languages()}
    return dict(sorted(by_name.items()))


def _languages() -> Iterator[Language]:
    for package in pkgutil.iter_modules(packages.__path__):
        name = f"{packages.__name__}.{package.name}.language"
        if package.ispkg and find_spec(name) is not None:
            for _, cls in inspect.getmembers(import_module(name), inspect.isclass):
                if issubclass(cls, Language) and cls.__module__ == name:
                    yield cls()
