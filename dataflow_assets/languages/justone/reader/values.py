"""The values of a connector's file, each checked as it is read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dataflow_assets.languages.common.client_security import referred
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.key_tables import entry
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.justone.reader.keys import CONNECTOR
from dataflow_assets.records.paths.parse_path import ParsePath

_SPACE = "ends with a space, which is part of the last key: remove it, unless the key has it"


@dataclass(frozen=True)
class Values:
    """Reads values; what is wrong with them is in `notes` afterwards."""

    document: Document
    notes: Notes

    def text(self, key: str) -> str:
        """The value without blanks around it; empty where there is none."""
        found: str = self.document.value.get(key, "")
        return found.strip()

    def required(self, key: str, what: str) -> str:
        """The value; empty, with a finding, where there is none. `what`: what it should be."""
        given = self.document.value.get(key)
        where = (self.document, key)
        return self.text(key) if self.notes.required(where, given, what) else ""

    def matching(self, key: str, pattern: re.Pattern[str], allowed: str) -> str:
        """A value of a certain form."""
        found = self.required(key, f"allowed: {allowed}")
        if found and not pattern.fullmatch(found):
            self.notes.wrong((self.document, key), f"allowed: {allowed}")
        return found

    def listed(self, key: str, what: str) -> tuple[str, ...]:
        """A list separated by commas; as in Java, empty items at its end do not count."""
        found = [part.strip() for part in self.required(key, what).rstrip(", ").split(",")]
        if found != [""] and not all(found):
            self.notes.wrong((self.document, key), "has an empty item between two commas")
        return tuple(part for part in found if part)

    def paths(self, columns: int) -> tuple[str, ...]:
        """The parse paths, as many as there are columns."""
        key, what = "db.json.parse", "a parse path for each column, like /@id"
        where = (self.document, key)
        if not self.required(key, what):
            return ()
        found = self.document.value[key].rstrip(",").split(",")
        if found[0].startswith("$."):
            self.notes.wrong(where, "JSONPath is not read: $.a.b[0] is written /@a/@b/#0")
            return ()
        for number, text in enumerate(found, 1):
            try:
                ParsePath.parse(text)
            except ValueError as error:
                self.notes.wrong(where, f"path {number} {error}")
            if text != text.rstrip():
                self.notes.note(where, f"path {number} {_SPACE}")
        if columns and len(found) != columns:
            paths = f"{len(found)} path{'' if len(found) == 1 else 's'}"
            message = f"has {paths}, and db.columns {columns}: one path for each column"
            self.notes.wrong(where, message)
        return tuple(found)

    def number(self, key: str, least: float, most: float | None) -> float | None:
        """A number between bounds, None where there is none."""
        text = self.text(key)
        if not text:
            return None
        whole = most is None
        bound = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
        try:
            found = int(text) if whole else float(text)
        except ValueError:
            found = math.nan
        if not least <= found <= (math.inf if most is None else most):
            self.notes.wrong((self.document, key), f"must be a number, {bound}")
            return None
        return found

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of a few words; empty where there is none."""
        text = self.text(key)
        if text and text not in allowed:
            self.notes.wrong((self.document, key), f"allowed: {', '.join(allowed)}")
            return ""
        return text

    def secret(self, key: str, name: str) -> dict[str, Any]:
        """A field by its value, or by the reference to it; a blank at its end is part of it."""
        text: str = self.document.value.get(key, "")
        return referred(name, text, (self.document, key), self.notes) if text else {}

    def noted(self, key: str, unless: str = "") -> None:
        """What happens instead of what a key says, unless it says what happens anyway."""
        found = entry(key, CONNECTOR)
        if found is not None and self.text(key) not in {"", unless}:
            self.notes.note((self.document, key), found.says)
