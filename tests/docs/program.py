"""The texts of the program, read once for all tests that look for words or messages in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from tests import ROOT

FOLDERS = ("dataflow_assets", "sensors", "jobs", "resources")


@dataclass(frozen=True)
class Text:
    """A string of a module."""

    place: str
    """File and line."""
    text: str
    kind: Literal["string", "f-string", "docstring"]
    """An f-string is a whole one: what is filled in is a NUL. Its pieces are strings as well."""


@cache
def texts() -> tuple[Text, ...]:
    """All of them."""
    return tuple(
        text
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in _of(path)
    )


def _of(path: Path) -> Iterator[Text]:
    module, name = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT)
    docs = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            yield Text(f"{name}:{node.lineno}", "".join(map(_part, node.values)), "f-string")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            kind: Literal["string", "docstring"] = "docstring" if id(node) in docs else "string"
            yield Text(f"{name}:{node.lineno}", node.value, kind)


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "\0"
