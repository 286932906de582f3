"""Tables of keys as sections of a page."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow_assets.manifests.dialects.key_tables import Key
from dataflow_assets.reference.blocks import escaped


def section(title: str, about: str, keys: Sequence[Key]) -> str:
    """A table of keys with their verdicts."""
    head = ["| Key | Default | Verdict | Meaning |", "|---|---|---|---|"]
    rows = [
        f"| `{one.name}` | {one.default} | {one.verdict} | {escaped(_sentence(one.says))} |"
        for one in keys
    ]
    return "\n".join([f"## {title}", "", *([about, ""] if about else []), *head, *rows, ""])


def _sentence(text: str) -> str:
    """The half sentences of messages as whole ones."""
    begun = text[:1].upper() + text[1:]
    return begun if begun.endswith(".") else f"{begun}."
