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
"""Under which the metadata of a record has its key."""
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
        """Whether a record without a value has it too."""
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
        self._changelog, self._raw = changelog, value.kind == "raw"
        self._value = Reader(value)
        self._key = Reader(key) if key is not None else None
        self._cells = _Cells(value, cells, self._value)

    def __call__(self, record: Record) -> Taken | None:
        """None for what is to be skipped. Raises RejectedRecord."""
        key = None if self._key is None else self._key_of(record)
        if key is _SKIP:
            return None
        body = record.body
        if body.__class__ is NotJson:
            if body.raw is not None:
                return None  # nothing between the ends of the message, or what is to be skipped
            if self._changelog:
                return Taken(self._cells.row(record, None, key), gone=True)
            if not self._raw:
                return None
            body = None
        values = self._values(body)
        if values is None:
            return None
        return Taken(self._cells.row(record, values, key, body))

    def _key_of(self, record: Record) -> Sequence[Any] | object | None:
        assert self._key is not None  # noqa: S101 - that is what this is called for
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


class _Cells:
    """The row of a record: its columns in the order of the table."""

    def __init__(self, layout: Layout, given: Sequence[Cell], value: Reader) -> None:
        self._value = value
        cells = list(enumerate(given))
        self._width = len(cells)
        self._of_value = [(n, one.at, one.key_at) for n, one in cells if one.place == "value"]
        self._of_key = [(n, one.at) for n, one in cells if one.place == "key"]
        self._metadata = [(n, _metadata(one)) for n, one in cells if one.place == "metadata"]
        plain = [one.at for one in given if one.place == "value" and one.key_at is None]
        self._plain = plain == list(range(self._width)) == list(range(len(layout.names)))

    def row(self, record: Record, values: Row | None, key: Any, body: Any = None) -> Row:
        """`values`: None of a record without a value; `body`: what they were read from.

        A key's column that the value lacks is the key's: else deletes would miss the row.
        """
        if self._plain and values is not None:
            return values
        row: list[Any] = [None] * self._width
        for n, at, key_at in self._of_value:
            if key_at is not None and (values is None or not self._value.has(body, at)):
                row[n] = key[key_at]
            elif values is not None:
                row[n] = values[at]
        for n, at in self._of_key:
            row[n] = key[at]
        for n, read in self._metadata:
            row[n] = read(record.metadata)
        return row


def _metadata(cell: Cell) -> Callable[[Mapping[str, Any]], Any]:
    name = cell.metadata
    if name == "timestamp" and cell.type is not None:
        return _timestamp(cutter(cell.type))
    return lambda metadata: metadata.get(name)


def _timestamp(cut: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    def time(metadata: Mapping[str, Any]) -> Any:
        found = metadata.get("timestamp")
        if isinstance(found, int):
            raise RejectedRecord("step", "the record's timestamp is beyond the year 9999")
        if isinstance(found, str):  # of a rejected record that is put back
            found = parsed_moment(found.removesuffix("Z")).replace(tzinfo=UTC)
        return None if found is None else cut(found.astimezone(UTC))

    return time
