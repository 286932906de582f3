"""What is said about the keys of one document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from dataflow_assets.errors import Finding
from dataflow_assets.manifests.dialects.documents import Document
from dataflow_assets.manifests.dialects.justone.keys import (
    PLACEHOLDER,
    Key,
    entry,
    is_placeholder,
    names,
)
from dataflow_assets.manifests.dialects.keys import suggest

Where = tuple[Document, str]
"""A document and the key in it as it is written there."""


@dataclass
class Notes:
    """Findings and hints, while a file is read."""

    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)

    def wrong(self, where: Where, message: str, *, key: bool = False) -> None:
        """One mistake, at a value or at its key."""
        document, name = where
        self.findings.append(document.finding((name,), message, key=key))

    def note(self, where: Where, message: str) -> None:
        """What happens instead of what a key says."""
        document, name = where
        self.hints.append(document.finding((name,), message, key=True))

    def unknown(self, where: Where, tables: Iterable[Sequence[Key]]) -> None:
        """A key that Connect would ignore in silence."""
        meant = suggest(where[1], names(*tables))
        advice = f"; did you mean {meant}?" if meant else ""
        self.note(where, f"is ignored, as Connect does it: no such key is known here{advice}")

    def by_tables(self, where: Where, key: str, *tables: Sequence[Key]) -> None:
        """What the tables say about a key: refusals, and keys that are not known."""
        found = entry(key, *tables)
        if found is None:
            self.unknown(where, tables)
        elif found.verdict == "refused":
            self.wrong(where, found.says, key=True)

    def required(self, where: Where, text: str | None, what: str) -> bool:
        """Whether a value is there."""
        if text is None:
            self.wrong(where, f"is required: {what}", key=True)
        elif not text.strip():
            self.wrong(where, f"is required, but has no value: {what}", key=True)
        elif is_placeholder(text):
            self.wrong(where, f"still has {PLACEHOLDER}: {what}")
        else:
            return True
        return False

    def refused(self, error: ValidationError, places: Mapping[str, Where], other: Where) -> None:
        """What a connector's own model says, at the keys that its fields were made from."""
        for details in error.errors(include_url=False, include_input=False):
            said = [str(part) for part in details["loc"]]
            where = next((places[part] for part in said if part in places), other)
            self.wrong(where, _sentence(details))


def _sentence(details: Any) -> str:
    context = details.get("ctx", {})
    return str(context.get("error", details["msg"])).removeprefix("Value error, ")
