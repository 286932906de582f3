"""The values of a connector's file, each checked as it is read."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow_assets.languages.common.connect_values import ConnectValues
from dataflow_assets.languages.common.key_tables import entry
from dataflow_assets.languages.justone.messages.parse_path import ParsePath
from dataflow_assets.languages.justone.reader.keys import CONNECTOR

_SPACE = "ends with a space, which is part of the last key: remove it, unless the key has it"


@dataclass(frozen=True)
class Values(ConnectValues):
    """Reads values, parse paths too; what is wrong with them is in `notes` afterwards."""

    def paths(self, columns: int) -> tuple[str, ...]:
        """The parse paths, as many as there are columns."""
        key, what = "db.json.parse", "a parse path for each column, like /@id"
        where = (self.document, key)
        if not self.require(key, what):
            return ()
        texts = self.document.value[key].rstrip(",").split(",")
        if texts[0].startswith("$."):
            self.notes.wrong(where, "JSONPath is not read: $.a.b[0] is written /@a/@b/#0")
            return ()
        for number, text in enumerate(texts, 1):
            try:
                ParsePath.parse(text)
            except ValueError as error:
                self.notes.wrong(where, f"path {number} {error}")
            if text != text.rstrip():
                self.notes.note(where, f"path {number} {_SPACE}")
        if columns and len(texts) != columns:
            paths = f"{len(texts)} path{'' if len(texts) == 1 else 's'}"
            message = f"has {paths}, and db.columns {columns}: one path for each column"
            self.notes.wrong(where, message)
        return tuple(texts)

    def note(self, key: str, unless: str = "") -> None:
        """Notes what happens instead of what a key says, unless it says what happens anyway."""
        key_entry = entry(key, CONNECTOR)
        if key_entry is not None and self.text(key) not in {"", unless}:
            self.notes.note((self.document, key), key_entry.says)
