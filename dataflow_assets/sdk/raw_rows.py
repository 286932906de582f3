"""Shapes: what raw mode stores of a record, in the sink's columns.

The columns say how a value is written: one of the kind JSON gets it as JSON, one of text gets JSON
as text, and a body that is no JSON as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts import EVERYTHING, HEADER_LIST, Kind, Note, kind_of
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, Record, encode, text_form
from dataflow_assets.records.times.instant import Instant, read, rfc3339_nano
from dataflow_assets.records.wrapped import METADATA, VALUE, is_wrapped
from dataflow_assets.sdk.raw_keys import RawKey

DATA = "data"
_MOST_NOTES = 100

Write = Callable[[Any], Any]


class Shape(ABC):
    """The form in which a sink stores a record, where that is not simply its body (raw mode).

    Made once per slice, inside the task.
    """

    reads: ClassVar[frozenset[str]] = frozenset()
    """The metadata keys that it looks at."""

    def __init__(self) -> None:
        self.notes: set[str] = set()
        """What a person should be told once."""

    @abstractmethod
    def __call__(self, record: Record) -> Any:
        """Returns what the sink stores of a record.

        Called inside tasks, once for each record.

        Returns:
            A JSON object of the sink's columns; of a null message its own body.

        Raises:
            RejectedRecord("encode", reason).
        """

    def key(self, record: Record) -> dict[str, Any]:  # noqa: ARG002 - what overrides need
        """The columns by which the row of a record is matched, where it upserts.

        Called inside tasks for each record that deletes its row.

        Returns:
            A JSON object; empty where rows are appended.

        Raises:
            RejectedRecord("encode", reason).
        """
        return {}


class Raw(Shape):
    """Body and metadata in two columns."""

    reads: ClassVar = frozenset({EVERYTHING})

    def __init__(
        self, data: pa.Field, metadata: pa.Field, schema: pa.Schema, key: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._data, self._metadata = data.name, metadata.name
        self._key = RawKey({name: (name, _converter(schema.field(name))) for name in key})
        self._write, self._write_metadata = _writer(data), _writer(metadata)

    @override
    def __call__(self, record: Record) -> Any:
        if _is_null(record):
            return record.body
        body, metadata = _parts(record)
        if metadata is record.metadata:
            given = sorted(one for one in metadata.items() if one[0] != HEADER_LIST)
            metadata = {k: _stamp(v) if v.__class__ is datetime else v for k, v in given}
        return self._key.of(metadata) | {
            self._data: self._write(body),
            self._metadata: None if metadata is None else self._write_metadata(metadata),
        }

    @override
    def key(self, record: Record) -> dict[str, Any]:
        return self._key.of(_parts(record)[1])


class Flat(Shape):
    """The body in one column, each metadata key in one of its own."""

    reads: ClassVar = frozenset({EVERYTHING})

    def __init__(
        self,
        data: pa.Field,
        schema: pa.Schema,
        prefix: str | None,
        own: Iterable[str],
        key: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._data, self._write = data.name, _writer(data)
        self._prefix, self._own = prefix or "", frozenset(own) | {data.name}
        names = [name for name in schema.names if name.startswith(self._prefix)]
        given = {name: _converter(schema.field(name)) for name in names}
        self._columns = {n: to for n, to in given.items() if n.casefold() not in self._own}
        self._key = RawKey({n: (n.removeprefix(self._prefix), self._columns[n]) for n in key})
        fields = map(schema.field, self._columns)
        # Said to be null, not left out: rows that carry the same columns are written at once.
        self._empty = {f.name: None for f in fields if f.nullable and not has_default(f)}

    @override
    def __call__(self, record: Record) -> Any:
        if _is_null(record):
            return record.body
        body, metadata = _parts(record)
        row = {**self._empty, **self._key.of(metadata), self._data: self._write(body)}
        for key, value in (metadata or {}).items():
            name = self._prefix + key
            convert = self._columns.get(name)
            if convert is not None:
                row[name] = _convert(convert, key, value)
            else:
                self._left_out(key, name)
        return row

    @override
    def key(self, record: Record) -> dict[str, Any]:
        return self._key.of(_parts(record)[1])

    def _left_out(self, key: str, name: str) -> None:
        if name.casefold() in self._own:
            raise RejectedRecord(
                "encode",
                f"metadata {key} would fill the table's own column {name}; "
                "set flattenMetadataColumnsPrefix",
            )
        if len(self.notes) < _MOST_NOTES:
            self.notes.add(f"metadata {key} has no column {name}: it is left out")


class Sampled(Shape):
    """The metadata of a table that is still to be made: its types are all that is not known."""

    reads: ClassVar = frozenset({EVERYTHING})

    def __init__(self, prefix: str | None, key: Sequence[str] = ()) -> None:
        super().__init__()
        self._prefix, self._key = prefix, frozenset(key)

    @override
    def __call__(self, record: Record) -> Any:
        if _is_null(record):
            return {}
        known = (_parts(record)[1] or {}).items()
        if self._prefix is None:
            return {key: _typical(key, value) for key, value in known if key in self._key}
        return {self._prefix + key: _typical(key, value) for key, value in known}


class Whole(Shape):
    """The body in `data`, unless it names the table's columns itself."""

    def __init__(self, data: pa.Field, schema: pa.Schema) -> None:
        super().__init__()
        self._write = _writer(data)
        self._names = frozenset(schema.names)
        self._required = frozenset(f.name for f in schema if not f.nullable and not has_default(f))

    @override
    def __call__(self, record: Record) -> Any:
        body = record.body
        if _is_null(record):
            return body
        if isinstance(body, dict) and self._required <= body.keys() <= self._names:
            return body
        return {DATA: self._write(body)}


def _is_null(record: Record) -> bool:
    """A null message: what that means is not for the shape to say."""
    return isinstance(record.body, NotJson) and record.body.raw is None


def _parts(record: Record) -> tuple[Any, Mapping[str, Any] | None]:
    body = record.body
    if is_wrapped(body):
        return body[VALUE], body[METADATA]
    return body, record.metadata


def has_default(field: pa.Field) -> bool:
    """Returns whether the database fills the column itself."""
    return Note.HAS_DEFAULT.marks(field)


def _writer(field: pa.Field) -> Write:
    def as_json(value: Any) -> Any:
        if value.__class__ is NotJson:
            raise RejectedRecord("encode", f"the body is not JSON, which column {field.name} needs")
        return _require(value)

    def as_text(value: Any) -> str:
        if value.__class__ is NotJson:
            return (value.raw or b"").decode()
        return encode(_require(value)).decode()

    def _require(value: Any) -> Any:
        if value is None:
            raise RejectedRecord("encode", f"nothing to store: null in column {field.name}")
        return value

    return as_json if kind_of(field) == Kind.JSON else as_text


def _converter(field: pa.Field) -> Write:
    if pa.types.is_timestamp(field.type):
        return _moment
    if field.type == pa.string() and kind_of(field) in (None, Kind.TEXT):
        return lambda value: text_form(_stamp(value))
    return _stamp


def _convert(convert: Write, key: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        return convert(value)
    except ValueError as error:
        raise RejectedRecord("encode", f"metadata {key} {error}") from None


def _stamp(value: Any) -> Any:
    """A time as RFC 3339 with all its digits; anything else as it is."""
    if value.__class__ is datetime:
        return rfc3339_nano(Instant.of(value.astimezone(UTC)))
    return value


def _moment(value: Any) -> str:
    if isinstance(value, datetime):
        return str(_stamp(value))
    return rfc3339_nano(read(value, UTC))


def _typical(key: str, value: Any) -> Any:
    """A value of the same category: what is no single value will be text."""
    if isinstance(value, dict | list):
        return ""
    if key == "timestamp" and isinstance(value, str):
        try:
            return read(value, UTC).second
        except ValueError:
            return value
    return value
