"""YAML text -> documents: plain values, and where each of them stands.

Reads what `kubectl` reads: an unquoted yes, no, on or off is a boolean, an explicit null counts as
absent, an unquoted date is text, tags are not supported. Every mistake becomes a finding of its
own; neither a finding nor an exception ever carries a piece of the text, which may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from typing_extensions import override

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.yaml_bounds import MOST_DEPTH, TooDeep, TooMuch, Work
from dataflow_assets.languages.common.yaml_mistakes import PLAIN_KEY, TAG, explain
from dataflow_assets.languages.common.yaml_nodes import chunks, compose
from dataflow_assets.records.record import value_at

Path = tuple[str | int, ...]

_DEEP = "is nested too deeply, or an alias is inside its own anchor"
_TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_NO_TAGS = "YAML tags are not supported: write the value itself"
_TEMPLATE = "a key is text; `{{ }}` of a template must be rendered first"
_OBJECT = frozenset({"apiVersion", "kind", "metadata", "spec"})
_CORE = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class NodePlace:
    """The line and column of a value and of its key; both count from 1."""

    line: int
    column: int
    key_line: int
    key_column: int


@dataclass(frozen=True)
class Document:
    """One YAML document: its value without nulls, and the place of every value by its path."""

    file: str
    value: Any = field(repr=False)
    places: dict[Path, NodePlace] = field(repr=False)
    empty: frozenset[Path] = frozenset()
    spoiled: frozenset[Path] = frozenset()
    """Places whose value has a finding of its own already: nothing else is said about them."""
    sound: bool = True
    """False: it has findings of its own already, such as a key that is written twice."""

    def finding(self, path: Path, message: str, *, key: bool = False) -> Finding:
        """A finding at a value, or at its key; at the nearest parent where it is missing."""
        nearest = path
        while nearest not in self.places:
            nearest = nearest[:-1]
        place = self.places[nearest]
        line, column = place.line, place.column
        if key or nearest != path:
            line, column = place.key_line, place.key_column
        return Finding(self.file, line, column, dotted_path(path), message)

    def get(self, *path: str | int) -> Any:
        """The value at a path; None where there is nothing."""
        return value_at(self.value, path)


def items(document: Document) -> list[Document]:
    """The objects of a list, as `kubectl get -o yaml` prints several: each is a document."""
    listed = document.get("items")
    entries = enumerate(listed if isinstance(listed, list) else ())
    return [_item(document, ("items", number), value) for number, value in entries]


def _item(document: Document, at: Path, value: Any) -> Document:
    inside = len(at)
    places = {path[inside:]: one for path, one in document.places.items() if path[:inside] == at}
    empty = frozenset(path[inside:] for path in document.empty if path[:inside] == at)
    spoiled = frozenset(path[inside:] for path in document.spoiled if path[:inside] == at)
    return Document(document.file, value, places, empty, spoiled, document.sound)


@dataclass(frozen=True)
class Part(Document):
    """One flow of a file that declares several flows in a language of its own.

    Findings are about the places of a manifest; each is told where the file says the same.
    """

    moved: Mapping[Path, Path] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, document: Document, at: Path, moved: Mapping[Path, Path]) -> Part:
        """The part at a place. `moved`: by a place of a manifest the place in the file."""
        places = {**document.places, (): document.places[at]}
        return cls(document.file, document.value, places, moved=moved)

    @override
    def finding(self, path: Path, message: str, *, key: bool = False) -> Finding:
        sizes = range(len(path), 0, -1)
        moved = next((path[:size] for size in sizes if path[:size] in self.moved), ())
        place = (*self.moved[moved], *path[len(moved) :]) if moved else path
        return super().finding(place, message, key=key)


def dotted_path(path: Path) -> str:
    """A path as people write it: `spec.branches[0].sink`; keys that may be values are hidden."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if PLAIN_KEY.fullmatch(part) else ".(key)"
    return text.lstrip(".") or "document"


def parse(text: str, file: str) -> tuple[list[Document], list[Finding]]:
    """All documents of a text that can be read, and a finding for each mistake in the others."""
    documents: list[Document] = []
    findings: list[Finding] = []
    work = Work()
    for number, (line, chunk) in enumerate(chunks(text)):
        reader = _Reader(file, line, work)
        try:
            work.document(number)
            node = compose(chunk, work)
            if node is not None and not (isinstance(node, ScalarNode) and node.value == ""):
                documents.append(reader.document(node))
        except YAMLError as error:
            at, column, reason = explain(error, chunk, line)
            reader.complain(at, column, (), reason)
        except (RecursionError, TooDeep):
            reader.complain(1, 1, (), _DEEP)
        except TooMuch as error:
            return documents, [*findings, *reader.findings, reader.at(1, 1, (), str(error))]
        findings += reader.findings
    return documents, findings


class _Reader:
    """Turns one document's nodes into values; the findings gather here."""

    def __init__(self, file: str, offset: int, work: Work) -> None:
        self.file, self.offset, self.work = file, offset, work
        self.findings: list[Finding] = []
        self.places: dict[Path, NodePlace] = {}
        self.empty: set[Path] = set()
        self.spoiled: set[Path] = set()

    def document(self, node: Node) -> Document:
        self._place((), node, node)
        value = self._value(node, ())
        empty, spoiled = frozenset(self.empty), frozenset(self.spoiled)
        return Document(self.file, value, self.places, empty, spoiled, not self.findings)

    def complain(self, line: int, column: int, path: Path, message: str) -> None:
        self.findings.append(self.at(line, column, path, message))

    def at(self, line: int, column: int, path: Path, message: str) -> Finding:
        return Finding(self.file, line + self.offset, column, dotted_path(path), message)

    def _at(self, node: Node, path: Path, message: str) -> None:
        self.spoiled.add(path)
        self.complain(node.start_mark.line + 1, node.start_mark.column + 1, path, message)

    def _place(self, path: Path, node: Node, key: Node) -> None:
        at, before = node.start_mark, key.start_mark
        lines = at.line + 1 + self.offset, before.line + 1 + self.offset
        self.places[path] = NodePlace(lines[0], at.column + 1, lines[1], before.column + 1)

    def _value(self, node: Node, path: Path) -> Any:
        if len(path) > MOST_DEPTH:
            raise TooDeep
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self._item(child, (*path, i)) for i, child in enumerate(node.value)]
        if not isinstance(node, ScalarNode):
            raise MarkedYAMLError(problem="", problem_mark=node.start_mark)
        return self._scalar(node, path)

    def _item(self, node: Node, path: Path) -> Any:
        self.work.node()
        self._place(path, node, node)
        return self._value(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, child in self._pairs(node, path, lines):
            here = (*path, key.value)
            self._place(here, child, key)
            value = self._value(child, here)
            if value is None:
                self.empty.add(here)
            else:
                result[key.value] = value
        return result

    def _pairs(
        self, node: MappingNode, path: Path, lines: dict[str, int]
    ) -> Iterator[tuple[ScalarNode, Node]]:
        merged: list[Node] = []
        second = _second_manifest(node) if path == () else None
        for key, child in node.value:
            self.work.node()
            if key is second and second is not None:
                line = second.start_mark.line + 1
                self.complain(line, 1, (), "a second manifest begins here: put `---` before it")
                return
            if not isinstance(key, ScalarNode):
                template = isinstance(key, MappingNode) and key.flow_style
                self._at(key, path, _TEMPLATE if template else "a key is text")
            elif key.tag == f"{_CORE}merge":
                merged += child.value if isinstance(child, SequenceNode) else [child]
            elif key.value in lines:
                first = lines[key.value]
                self._at(key, (*path, key.value), f"is written twice; first in line {first}")
            else:
                lines[key.value] = key.start_mark.line + 1 + self.offset
                yield key, child
        yield from self._merge(merged, path, lines)

    def _merge(
        self, nodes: list[Node], path: Path, lines: dict[str, int]
    ) -> Iterator[tuple[ScalarNode, Node]]:
        for node in nodes:
            self.work.node()
            if not isinstance(node, MappingNode):
                self._at(node, path, "`<<` takes a mapping, or a list of them")
                continue
            for key, child in self._pairs(node, path, {}):
                if key.value not in lines:
                    lines[key.value] = key.start_mark.line + 1 + self.offset
                    yield key, child

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        tag, text = str(node.tag), str(node.value)
        at = node.start_mark.pointer
        if re.match(r"!(?!!)", node.start_mark.buffer[at : at + 2]) and tag.startswith(_CORE):
            self._at(node, path, TAG)  # `! $.a`: YAML drops the sign and keeps the rest
            return None
        plain = node.style not in {"'", '"', "|", ">"}
        if not tag.startswith(_CORE) or tag == f"{_CORE}binary":
            self._at(node, path, TAG if not tag.startswith(_CORE) else _NO_TAGS)
            return None
        try:
            return _value_of(tag.removeprefix(_CORE), text, plain)
        except ValueError:
            self._at(node, path, "the value does not fit its tag")
            return None


def _second_manifest(node: MappingNode) -> ScalarNode | None:
    """The key at which another object begins in the same document: `---` was forgotten."""
    keys = [key for key, _ in node.value if isinstance(key, ScalarNode)]
    names = [key.value for key in keys]
    again = [key for at, key in enumerate(keys) if key.value in _OBJECT & {*names[:at]}]
    return again[0] if len(again) > 1 else None


def _value_of(kind: str, text: str, plain: bool) -> Any:
    if kind == "null":
        return None
    if kind == "bool" or (plain and kind == "str" and text in _TRUE | _FALSE):
        return text in _TRUE
    if kind == "int":
        return int(text, 0 if text.lstrip("+-")[:2].lower() in {"0x", "0o", "0b"} else 10)
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
