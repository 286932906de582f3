"""Tables of keys as sections of a page. Only what does something else than it says is marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dataflow_assets.manifests.dialects.key_tables import Key
from dataflow_assets.reference.blocks import escaped, sentence


def section(title: str, about: str, keys: Sequence[Key]) -> str:
    """A table of keys."""
    head = ["| Key | Default | Meaning |", "|---|---|---|"]
    rows = [
        f"| `{one.name}` | {one.default} | {escaped(marked(one.verdict, one.says))} |"
        for one in keys
    ]
    return "\n".join([f"## {title}", "", *([about, ""] if about else []), *head, *rows, ""])


def marked(verdict: str, says: str) -> str:
    """What is said about a key or a statement, with its verdict where it does not do that."""
    return sentence(says) if verdict == "used" else f"*{verdict.capitalize()}.* {sentence(says)}"


def statements(rows: Iterable[tuple[str, str, str]]) -> str:
    """A table of statements: how each is written, its verdict, what is said about it."""
    lines = [f"| {written} | {marked(verdict, says)} |" for written, verdict, says in rows]
    return "\n".join(["| Statement | Meaning |", "|---|---|", *lines])
