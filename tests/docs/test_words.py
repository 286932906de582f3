"""Plain words in what users read: pages, the command line, messages."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import cache

import pytest

from dataflow_assets.cli.parser import command_line
from tests import ROOT
from tests.docs.program import texts

INSTEAD = {
    r"\banew\b": "again, from scratch",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bparted by\b": "separated by",
    r"\bblanks?\b": "spaces, empty",
    r"\b[Ww]hat (becomes|became|shall become) of\b": "what happens to",
    r"\bwanted is\b|\bis wanted\b|\bwants (a|an|the|text|letters|one)\b": "must be",
    r"\bstands? (in|beside|below|there|twice)\b": "is, is stored, is a duplicate",
    r"\b(is|are) no\s+(JSON|objects?|numbers?|texts?|lists?|times?|keys?|records?)\b": "is not a",
    r"\bmade (anew|again)\b": "re-created",
    r"\bcame to nothing\b": "were aborted",
    r"\b[Aa]ddresses to begin with\b": "bootstrap servers",
    r"\b(is|are) told\b": "is reported",
    r"\bput back\b": "replayed",
    r"\bputs? (it|them) back; they\b|\bcount all the same\b": "stores them; they still count",
    r"\blog was cut off\b": "the log was truncated",
    r"\bticks? of the change column\b": "the current second",
    r"\bwithout its \(|\bnothing leaks\b|\badds none\b": "say what happens",
    r"\b[Mm]ind (that|upserts)\b": "careful with",
}
"""What is hard to read for people who learn the product, and what to say."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "flows/README.md",
    ROOT / "examples/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/guarantees").glob("*.md")),
    *sorted((ROOT / "docs/connectors").glob("*.md")),
    *sorted((ROOT / "docs/reference").glob("*.md")),
]
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def pages() -> Iterator[tuple[str, str]]:
    """Prose, without code."""
    for page in PAGES:
        yield page.name, _CODE.sub("", page.read_text(encoding="utf-8"))


def helps() -> Iterator[tuple[str, str]]:
    """What `dataflow COMMAND --help` prints."""
    (several,) = [a for a in command_line()._actions if isinstance(a, argparse._SubParsersAction)]
    yield "dataflow --help", command_line().format_help()
    for name, parser in several.choices.items():
        yield f"dataflow {name} --help", parser.format_help()


@cache
def readable() -> tuple[tuple[str, str], ...]:
    """All of it; docstrings of models are on the generated pages."""
    strings = (one for one in texts() if one.kind == "string" and " " in one.text)
    return (*pages(), *helps(), *((one.place, one.text) for one in strings))


@pytest.mark.parametrize("banned", INSTEAD)
def test_nobody_reads_a_hard_word(banned: str) -> None:
    assert len(readable()) > 500
    found = [(place, hit[0]) for place, text in readable() for hit in re.finditer(banned, text)]
    assert found == [], f"say: {INSTEAD[banned]}"
