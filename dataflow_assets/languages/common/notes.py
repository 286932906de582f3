"""Collects findings and notes about the keys of one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document, NodePlace
from dataflow_assets.languages.common.key_tables import placeholder

Where = tuple[Document, str]
"""A document and the key in it as it is written there."""


@dataclass
class Notes:
    """Findings and hints, while a file is read."""

    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)
    _idle: dict[tuple[str, NodePlace], list[Where]] = field(default_factory=dict)

    def wrong(self, where: Where, message: str, *, key: bool = False) -> None:
        """Reports one mistake, at a value or at its key."""
        document, name = where
        self.findings.append(document.finding((name,), message, key=key))

    def note(self, where: Where, message: str) -> None:
        """Notes at a key what happens instead of what it says."""
        document, name = where
        self.hints.append(document.finding((name,), message, key=True))

    def idle(self, where: Where) -> None:
        """Notes a key that is known and has no effect: one note names all of a document's."""
        document, name = where
        entries = self._idle.setdefault((document.file, document.places[()]), [])
        if entries:
            self.hints.remove(_of_idle(entries))
        entries += [] if name in (one for _, one in entries) else [where]
        self.hints.append(_of_idle(entries))

    def require(self, where: Where, text: str | None, what: str) -> bool:
        if text is None:
            self.wrong(where, f"is required: {what}", key=True)
        elif not text.strip():
            self.wrong(where, f"is required, but has no value: {what}", key=True)
        elif unwritten := placeholder(text):
            self.wrong(where, f"{unwritten}: write the value: {what}")
        else:
            return True
        return False

    def refuse(self, error: ValidationError, places: Mapping[str, Where], other: Where) -> None:
        """Reports what a connector's model refuses, at the keys that its fields were made from."""
        for details in error.errors(include_url=False, include_input=False):
            parts = [str(part) for part in details["loc"]]
            where = next((places[part] for part in parts if part in places), other)
            context = details.get("ctx", {})
            self.wrong(
                where, str(context.get("error", details["msg"])).removeprefix("Value error, ")
            )


def _of_idle(places: Sequence[Where]) -> Finding:
    (document, first), names = places[0], [name for _, name in places]
    several = f"{len(names)} keys have no effect here: {', '.join(names)}"
    return document.finding((first,), several if names[1:] else "has no effect here", key=True)
