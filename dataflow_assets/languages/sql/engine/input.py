"""Messages as rows of the table that they are records of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from zoneinfo import ZoneInfo

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.bytes.envelopes import FlinkChanges
from dataflow_assets.languages.sql.engine.bytes.layout import ChangeLayout, FlinkLayout
from dataflow_assets.languages.sql.engine.bytes.messages import SKIPPED_KEY
from dataflow_assets.languages.sql.engine.bytes.read import FlinkReader
from dataflow_assets.languages.sql.engine.bytes.read_columns import ColumnsReader
from dataflow_assets.languages.sql.engine.columns import FlinkColumns, take_places
from dataflow_assets.languages.sql.engine.function import Row
from dataflow_assets.languages.sql.engine.metadata import in_envelope, reader
from dataflow_assets.languages.sql.engine.plan import KEY, Cell
from dataflow_assets.records.record import NotJson, Record, parse, parse_all

_SKIP = object()
Keys = Sequence[Sequence[Any]] | None
"""The columns of keys; None: they are not read."""


@dataclass(frozen=True)
class Source:
    """The records of a table: their layout and columns."""

    value: FlinkLayout
    key: FlinkLayout | None
    cells: tuple[Cell, ...]
    changelog: bool
    """A message replaces the one of the same key, and a null one deletes it; but for messages that
    are changes themselves."""


@dataclass(frozen=True)
class FlinkMessages:
    """Many messages of a table."""

    bodies: Sequence[bytes | None]
    """As JSON; None: a null message."""
    keys: Sequence[bytes | None]
    """As JSON; empty where nobody reads them."""
    metadata: Callable[[], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Together:
    """The rows of many messages."""

    rows: FlinkColumns
    places: Sequence[int]
    """Of the rows among the changes, ascending."""
    gone: FlinkColumns
    """Rows that were deleted: only the columns of the key need have values."""
    gone_places: Sequence[int]
    owners: Sequence[int]
    """Of each change the message that it came of."""


class Input:
    """Reads messages; compiled once for each task.

    A row that is given back with `True` is gone: where a null message has deleted it, only columns
    of the key have values. A JSON array of a table whose rows only come is a row for each item; a
    message that is a change is all rows that come and go with it.
    """

    def __init__(self, source: Source, zone: ZoneInfo, used: frozenset[int] | None = None) -> None:
        """`used`: the columns of the row that somebody looks at, all by default."""
        value = source.value
        self._changes = FlinkChanges(value) if isinstance(value, ChangeLayout) else None
        self._upserts = source.changelog and self._changes is None
        self._raw = value.kind == "raw"
        self._takes_arrays = value.kind == "json" and not source.changelog
        cells = source.cells if used is None else [source.cells[at] for at in used]
        self._reads_envelope = any(in_envelope(one.metadata) for one in cells)
        in_value = frozenset(one.at for one in cells if one.place == "value")
        self._value = FlinkReader(source.value, in_value)
        self._key = FlinkReader(source.key) if source.key is not None else None
        self._values_of = ColumnsReader(source.value, in_value)
        self._keys_of = None if source.key is None else ColumnsReader(source.key)
        self._cells = _Cells(source, self._value, self._values_of, zone)

    def __call__(self, record: Record) -> Sequence[tuple[Row, bool]]:
        """Its rows, and whether each is gone; none of what is skipped. Raises RejectedRecord."""
        key = None if self._key is None else self._key_of(record)
        if key is _SKIP:
            return ()
        body = record.body
        if body.__class__ is NotJson:
            if body.raw is not None:
                return ()  # nothing between the ends of the message, or what is to be skipped
            if self._upserts:
                return ((self._cells.row(record, None, key), True),)
            if not self._raw:
                return ()
            body = None
        if self._changes is not None:
            changes = self._changes(body)
            record = self._with_envelope(record, body) if changes else record
            return [row for one, gone in changes for row in self._row(record, key, one, gone=gone)]
        if body.__class__ is list and self._takes_arrays:
            return [row for one in body for row in self._row(record, key, one)]
        return self._row(record, key, body)

    def _row(
        self, record: Record, key: Any, body: Any, *, gone: bool = False
    ) -> Sequence[tuple[Row, bool]]:
        values = self._values(body)
        if values is None:
            return ()
        return ((self._cells.row(record, values, key, body), gone),)

    def _with_envelope(self, record: Record, body: Any) -> Record:
        if self._changes is None or not self._reads_envelope:
            return record
        return Record(body, {**record.metadata, **self._changes.metadata(body)}, record.route)

    def together(self, given: FlinkMessages) -> Together:
        """The rows of many messages at once, as they come of each of them.

        Raises an error of any kind where a message is rejected, or skipped for its bytes: messages
        are to be read one by one then.
        """
        count = len(given.bodies)
        there = [at for at, body in enumerate(given.bodies) if body is not None]
        if self._raw and len(there) < count:
            raise ValueError("a null message is a row")
        keys = None if self._keys_of is None else self._keys_of(parse_all(_known_keys(given.keys)))
        metadata = given.metadata() if self._cells.reads_metadata else [{}] * count
        bodies = parse_all(_known_keys(take_places(given.bodies, there)))
        if self._changes is not None:
            return self._change(
                self._changes, list(zip(there, bodies, strict=True)), keys, metadata
            )
        gone = sorted(set(range(count)).difference(there)) if self._upserts else []
        rows = self._columns(there, bodies, keys, metadata)
        return Together(rows, there, self._columns(gone, None, keys, metadata), gone, range(count))

    def _change(
        self,
        changes: FlinkChanges,
        messages: Sequence[tuple[int, Any]],
        keys: Keys,
        metadata: Sequence[Mapping[str, Any]],
    ) -> Together:
        """`messages`: each with its place among those that `keys` and `metadata` are of."""
        own_metadata, changed_rows = list(metadata), []
        for at, body in messages:
            rows = changes(body)
            changed_rows += [(at, *one) for one in rows]
            if rows and self._reads_envelope:
                own_metadata[at] = {**own_metadata[at], **changes.metadata(body)}
        owners = [at for at, _, _ in changed_rows]
        keys = keys and [[one[at] for at in owners] for one in keys]
        own_metadata = [own_metadata[at] for at in owners]
        come = [n for n, (_, _, gone) in enumerate(changed_rows) if not gone]
        gone = [n for n, (_, _, gone) in enumerate(changed_rows) if gone]
        columns, others = (
            self._columns(places, [changed_rows[n][1] for n in places], keys, own_metadata)
            for places in (come, gone)
        )
        return Together(columns, come, others, gone, owners)

    def _columns(
        self,
        places: Sequence[int],
        bodies: Sequence[Any] | None,
        keys: Keys,
        metadata: Sequence[Mapping[str, Any]],
    ) -> FlinkColumns:
        key = keys and [take_places(one, places) for one in keys]
        return self._cells.columns(bodies, key, take_places(metadata, places), len(places))

    def _key_of(self, record: Record) -> Sequence[Any] | object | None:
        assert self._key is not None  # noqa: S101 - that is what this is called for
        text = record.metadata.get(KEY, "")
        if text == SKIPPED_KEY.decode():
            return _SKIP
        if not text:
            raise RejectedRecord("step", "the record has no key, and key.format needs one")
        try:
            key = self._key(parse(str(text).encode()))
        except ValueError as error:
            raise RejectedRecord("step", f"key: {error}") from None
        return _SKIP if key is None else key

    def _values(self, body: Any) -> Sequence[Any] | None:
        try:
            return self._value(body)
        except ValueError as error:
            raise RejectedRecord("step", str(error)) from None


def _known_keys(texts: Sequence[bytes | None]) -> Sequence[bytes]:
    if None in texts:
        raise ValueError("a message has no key")
    return cast("Sequence[bytes]", texts)


class _Cells:
    """The row of a record: its columns in the order of the table."""

    def __init__(
        self, source: Source, value: FlinkReader, values_of: ColumnsReader, zone: ZoneInfo
    ) -> None:
        self._value, self._values_of = value, values_of
        cells = list(enumerate(source.cells))
        self._width = len(cells)
        self._of_value = [(n, one.at, one.key_at) for n, one in cells if one.place == "value"]
        self._of_key = [(n, one.at) for n, one in cells if one.place == "key"]
        self._metadata = [
            (n, reader(one.metadata, one.type, zone)) for n, one in cells if one.type is not None
        ]
        plain = [one.at for one in source.cells if one.place == "value" and one.key_at is None]
        self._plain = plain == list(range(self._width)) == list(range(len(source.value.names)))

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

    @property
    def reads_metadata(self) -> bool:
        return bool(self._metadata)

    def columns(
        self,
        bodies: Sequence[Any] | None,
        key: Sequence[Sequence[Any]] | None,
        metadata: Sequence[Mapping[str, Any]],
        count: int,
    ) -> FlinkColumns:
        """Returns `count` records as columns; `bodies` is None for records without values."""
        cells: list[Sequence[Any]] = [[None] * count] * self._width
        values = None if bodies is None else self._values_of(bodies)
        for n, at, key_at in self._of_value:
            if bodies is None or values is None:
                cells[n] = cells[n] if key_at is None or key is None else key[key_at]
            elif key_at is None or key is None:
                cells[n] = values[at]
            else:
                cells[n] = self._values_of.or_else(bodies, at, values[at], key[key_at])
        for n, at in self._of_key:
            assert key is not None  # noqa: S101 - the column is read from it
            cells[n] = key[at]
        for n, read in self._metadata:
            cells[n] = list(map(read, metadata))
        return FlinkColumns(count, cells)
