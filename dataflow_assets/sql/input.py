"""Messages as rows of the table that they are records of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, Record, parse
from dataflow_assets.sql.bytes.layout import Layout
from dataflow_assets.sql.bytes.messages import SKIPPED_KEY
from dataflow_assets.sql.bytes.read import Reader
from dataflow_assets.sql.casts import cutter
from dataflow_assets.sql.function import Row
from dataflow_assets.sql.texts import parsed_moment
from dataflow_assets.sql.types import Type

KEY = "key"
_SKIP = object()


@dataclass(frozen=True)
class Cell:
    """Where a column of the source's row comes from."""

    name: str
    place: Literal["value", "key", "metadata"]
    at: int = 0
    """In the layout of the value, or of the key."""
    key_at: int | None = None
    """Of a column that is in both: where it is in the key."""
    metadata: str = ""
    type: Type | None = None
    """Of metadata."""

    @property
    def of_key(self) -> bool:
        """Whether a deleted row has it, too."""
        return self.place == "key" or self.key_at is not None


@dataclass(frozen=True)
class Taken:
    """A row of the table."""

    row: Row
    gone: bool = False
    """A null message has deleted it: of its columns only those of the key have values."""


class Input:
    """Reads messages; compiled once for each task."""

    def __init__(
        self, value: Layout, key: Layout | None, cells: Sequence[Cell], *, changelog: bool
    ) -> None:
        """`changelog`: a message replaces the one of the same key, and a null one deletes it."""
        self._layout, self._cells, self._changelog = value, cells, changelog
        self._value = Reader(value)
        self._key = Reader(key) if key is not None else None
        self._metadata = [_metadata(one) for one in cells]

    def __call__(self, record: Record) -> Taken | None:
        """None for what is to be skipped. Raises RejectedRecord."""
        key = self._key_of(record)
        if key is _SKIP:
            return None
        body = record.body
        if isinstance(body, NotJson):
            if body.raw is not None:
                return None  # nothing between the ends of the message, or what is to be skipped
            if self._changelog:
                return Taken(self._row(record, None, key), gone=True)
            if self._layout.kind != "raw":
                return None
            body = None
        values = self._values(body)
        if values is None:
            return None
        return Taken(self._row(record, values, key, body))

    def _key_of(self, record: Record) -> Sequence[Any] | object | None:
        if self._key is None:
            return None
        text = record.metadata.get(KEY, "")
        if text == SKIPPED_KEY.decode():
            return _SKIP
        if not text:
            raise RejectedRecord("step", "the record has no key, and key.format needs one")
        try:
            found = self._key(parse(str(text).encode()))
        except ValueError as error:
            raise RejectedRecord("step", f"key: {error}") from None
        return _SKIP if found is None else found

    def _values(self, body: Any) -> Sequence[Any] | None:
        try:
            return self._value(body)
        except ValueError as error:
            raise RejectedRecord("step", str(error)) from None

    def _row(self, record: Record, values: Sequence[Any] | None, key: Any, body: Any = None) -> Row:
        """A key's column that the value lacks is the key's: else deletes would miss the row."""
        row: list[Any] = []
        present = self._value.present(body) if values is not None and key is not None else ()
        for cell, metadata in zip(self._cells, self._metadata, strict=True):
            if cell.place == "metadata":
                row.append(metadata(record.metadata))
            elif cell.place == "key":
                row.append(key[cell.at])
            elif values is None or (cell.key_at is not None and not present[cell.at]):
                row.append(None if cell.key_at is None else key[cell.key_at])
            else:
                row.append(values[cell.at])
        return row


def _metadata(cell: Cell) -> Callable[[Mapping[str, Any]], Any]:
    name = cell.metadata
    if name == "timestamp" and cell.type is not None:
        cut = cutter(cell.type)

        def time(metadata: Mapping[str, Any]) -> Any:
            found = metadata.get(name)
            if isinstance(found, int):
                raise RejectedRecord("step", "the record's timestamp is beyond the year 9999")
            if isinstance(found, str):  # of a rejected record that is put back
                found = parsed_moment(found.removesuffix("Z")).replace(tzinfo=UTC)
            return None if found is None else cut(found.astimezone(UTC))

        return time
    return lambda metadata: metadata.get(name)
