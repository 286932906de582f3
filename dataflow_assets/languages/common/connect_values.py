"""The values of a connector's file, each checked as it is read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dataflow_assets.languages.common.client_security import field_or_reference
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.notes import Notes


@dataclass(frozen=True)
class ConnectValues:
    """Reads values; what is wrong with them is in `notes` afterwards."""

    document: Document
    notes: Notes

    def text(self, key: str) -> str:
        """The value without blanks around it; empty where there is none."""
        value: str = self.document.value.get(key, "")
        return value.strip()

    def require(self, key: str, what: str) -> str:
        """The value; empty, with a finding, where there is none. `what`: what it should be."""
        value = self.document.value.get(key)
        where = (self.document, key)
        return self.text(key) if self.notes.require(where, value, what) else ""

    def matching(self, key: str, pattern: re.Pattern[str], allowed: str) -> str:
        text = self.require(key, f"allowed: {allowed}")
        if text and not pattern.fullmatch(text):
            self.notes.wrong((self.document, key), f"allowed: {allowed}")
        return text

    def list_of(self, key: str, what: str) -> tuple[str, ...]:
        """A list separated by commas; as in Java, empty items at its end do not count."""
        parts = [part.strip() for part in self.require(key, what).rstrip(", ").split(",")]
        if parts != [""] and not all(parts):
            self.notes.wrong((self.document, key), "has an empty item between two commas")
        return tuple(part for part in parts if part)

    def number(self, key: str, least: float, most: float | None) -> float | None:
        """A number between bounds, None where there is none."""
        text = self.text(key)
        if not text:
            return None
        whole = most is None
        bound = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
        try:
            parsed = int(text) if whole else float(text)
        except ValueError:
            parsed = math.nan
        if not least <= parsed <= (math.inf if most is None else most):
            self.notes.wrong((self.document, key), f"must be a number, {bound}")
            return None
        return parsed

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of a few words, in any case as in Connect; empty where there is none."""
        text = self.text(key).lower()
        if text and text not in allowed:
            self.notes.wrong((self.document, key), f"allowed: {', '.join(allowed)}")
            return ""
        return text

    def flag(self, key: str) -> bool:
        """True where a key says so; without a value it does not."""
        return self.choice(key, ("true", "false")) == "true"

    def commas(self, key: str) -> list[str]:
        return [part.strip() for part in self.text(key).split(",") if part.strip()]

    def secret(self, key: str, name: str) -> dict[str, Any]:
        """A field by its value, or by the reference to it; a blank at its end is part of it."""
        text: str = self.document.value.get(key, "")
        return field_or_reference(name, text, (self.document, key), self.notes) if text else {}
