"""Java properties -> one document: each key with its text, and where both are in the file.

javaproperties reads them by the rules of java.util.Properties. What is valid UTF-8 is read so;
anything else is ISO 8859-1, as Java reads every such file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import StringIO

from javaproperties import InvalidUEscapeError, KeyValue, PropertiesElement
from javaproperties import parse as elements

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document, NodePlace, Path

_BEFORE_KEY = re.compile(r"[ \t\f]*")
_BEFORE_VALUE = re.compile(
    r"[ \t\f]*(?:\\\r?\n|\\\r|\\.|[^\s:=\\])*"  # the key
    r"(?:[ \t\f]|\\\r?\n|\\\r)*[:=]?(?:[ \t\f]|\\\r?\n|\\\r)*",
    re.DOTALL,
)
_ESCAPE = "\\u must be followed by four hexadecimal digits; a backslash itself is written \\\\"


@dataclass(frozen=True)
class Properties:
    """The keys and values of one file. The last of several equal keys counts, as in Java."""

    document: Document
    findings: tuple[Finding, ...] = ()
    hints: tuple[Finding, ...] = ()


def decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def parse(text: str, file: str) -> Properties:
    """The document of a text; its value is a mapping from keys to texts."""
    value: dict[str, str] = {}
    places: dict[Path, NodePlace] = {(): NodePlace(1, 1, 1, 1)}
    hints: list[Finding] = []
    try:
        for line, element in _number_lines(text):
            place = _place(element.source, line)
            key = element.key
            if key in value:
                first = places[key,].key_line
                message = f"is written twice: line {first} has no effect, the later one counts"
                hints.append(Finding(file, place.key_line, place.key_column, key, message))
            value[key], places[key,] = element.value, place
    except InvalidUEscapeError:
        line = 1 + text.count("\n", 0, _broken_escape(text))
        finding = Finding(file, line, 1, "document", f"not valid properties: {_ESCAPE}")
        return Properties(Document(file, value, places, sound=False), (finding,))
    return Properties(Document(file, value, places), (), tuple(hints))


def _number_lines(text: str) -> list[tuple[int, KeyValue]]:
    """Each key with the line, from 1, in which its source begins."""
    numbered: list[tuple[int, KeyValue]] = []
    line = 1
    element: PropertiesElement
    for element in elements(StringIO(text, newline="")):
        if isinstance(element, KeyValue):
            numbered.append((line, element))
        line += len(re.findall(r"\r\n|\r|\n", element.source))
    return numbered


def _place(source: str, line: int) -> NodePlace:
    key, value = _BEFORE_KEY.match(source), _BEFORE_VALUE.match(source)
    start, end = (found.end() if found else 0 for found in (key, value))
    lines = re.split(r"\r\n|\r|\n", source[:end])
    return NodePlace(line + len(lines) - 1, len(lines[-1]) + 1, line, start + 1)


def _broken_escape(text: str) -> int:
    match = re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", text)
    return match.start() if match else 0
