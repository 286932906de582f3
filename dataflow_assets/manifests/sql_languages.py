"""Which language a `.sql` file is in: Flink's tables or SingleStore's pipelines.

Its statements decide, each by its first words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.tokens import Place, Token, Unreadable, tokens
from dataflow_assets.languages.singlestore.reader.tokens import SINGLESTORE

Language = Literal["flink", "pipelines"]
_NAMES = {"flink": "Flink's SQL", "pipelines": "SingleStore's pipelines"}
_PIPELINES: tuple[tuple[str, ...], ...] = (
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
_FLINK: tuple[tuple[str, ...], ...] = (
    ("INSERT",),
    ("EXECUTE",),
    ("BEGIN", "STATEMENT"),
    ("CREATE", "VIEW"),
    ("CREATE", "TEMPORARY"),
)


def language(text: str, file: str) -> Language | Finding:
    """The language; a finding for a file that mixes both. What is neither is read as Flink's."""
    found: dict[Language, Place] = {}
    for statement in _statements(text):
        one = _of(statement)
        if one is not None:
            found.setdefault(one, statement[0].place)
    if len(found) < 2:
        return next(iter(found), "flink")
    (first, _), (second, place) = found.items()
    message = (
        f"this statement is of {_NAMES[second]}, and those above are of {_NAMES[first]}: a file "
        "is in one language, so move it to a file of its own"
    )
    return Finding(file, place.line, place.column, "SQL", message)


def _of(statement: list[Token]) -> Language | None:
    words = [one.text.upper() for one in statement if one.kind in ("word", "symbol", "text")]
    if any(words[: len(begin)] == list(begin) for begin in _PIPELINES):
        return "pipelines"
    if any(words[: len(begin)] == list(begin) for begin in _FLINK):
        return "flink"
    if statement[0].says("SET") and len(statement) > 1 and statement[1].kind == "text":
        return "flink"
    if words[:2] == ["CREATE", "TABLE"] and "WITH" in words:
        return "flink"
    return None


def _statements(text: str) -> Iterator[list[Token]]:
    """Their tokens, as far as they can be read; the body of a procedure belongs to it."""
    read: list[Token] = []
    blocks = 0
    try:
        for token in tokens(text, SINGLESTORE):
            if token.kind == "end":
                break
            blocks += token.says("BEGIN") and _is_procedure(read)
            blocks -= blocks and token.says("END")
            if not token.says(";"):
                read.append(token)
            elif read and not blocks:
                yield read
                read = []
    except Unreadable:
        pass
    if read:
        yield read


def _is_procedure(read: list[Token]) -> bool:
    return any(token.says("PROCEDURE") for token in read[:4])
