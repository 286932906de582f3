"""Avro values of one schema, a field of all of them at a time.

fastavro makes Python objects, which take three times as long as the rest of a flow's work on a
record. Here every value has a cursor, and numpy moves all cursors over a field at once. What the
fields may be: numbers, texts, bytes, enums, records of these, and unions of one of these with null.
Schemas with anything else, and blocks with a value that does not fit, are read by fastavro
(`avro_blocks`), which also says what is wrong: this module only ever says that something is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.contracts import KIND
from dataflow_assets.formats import avro_logical
from dataflow_assets.formats.avro_logical import logical_type
from dataflow_assets.formats.avro_schema import AvroSchema, Schema
from dataflow_assets.formats.json_texts import json_texts

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Rows = Ints | None
"""The values that a field is read of; None: all of them."""

_PADDING = 16  # more than any number is wide: a cursor at the end may look that far
_LONGEST = 10  # bytes of a number
_SHORT = 48  # bytes of a text, on average, up to which numpy copies faster than slices do


class Misfit(Exception):
    """One of the values is none of the schema, or none that is read here."""


@dataclass
class Block:
    """Values, one behind the other or not: where each begins and ends."""

    data: Bytes
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, bodies: pa.Array) -> Block:
        """All bodies of a binary array; null ones are empty."""
        _, offsets, data = bodies.buffers()
        bounds = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
        found = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        places = bounds.astype(np.int64)
        return cls(found, places[:-1], places[1:])

    def part(self, first: int, count: int) -> Block:
        """Some of the values."""
        rows = slice(first, first + count)
        return Block(self.data, self.starts[rows], self.ends[rows])

    def values(self) -> list[bytes]:
        """Each value alone."""
        whole = memoryview(self.data)  # type: ignore[arg-type]
        pairs = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [bytes(whole[start:end]) for start, end in pairs]

    def __len__(self) -> int:
        return len(self.starts)


class Cursor:
    """Where the reading of each value is."""

    def __init__(self, block: Block) -> None:
        first, last = int(block.starts.min()), int(block.ends.max())
        padding = np.zeros(_PADDING, np.uint8)
        self.data = np.concatenate([block.data[first:last], padding])
        self.at, self.ends = block.starts - first, block.ends - first

    def take(self, rows: Rows) -> Ints:
        """The places of these values."""
        return self.at if rows is None else self.at[rows]

    def move(self, rows: Rows, to: Ints) -> None:
        """Behind what was read. Raises Misfit where a value has ended before."""
        if np.any(to > (self.ends if rows is None else self.ends[rows])):
            raise Misfit
        if rows is None:
            self.at = to
        else:
            self.at[rows] = to

    def longs(self, rows: Rows) -> Ints:
        """A number of each value."""
        at = self.take(rows)
        first = self.data[at]
        raw = (first & 0x7F).astype(np.uint64)
        width = np.ones(len(at), np.int64)
        more = np.flatnonzero(first & 0x80)
        for step in range(1, _LONGEST):
            if not len(more):
                break
            byte = self.data[at[more] + step]
            if step == _LONGEST - 1 and np.any(byte > 1):
                raise Misfit
            raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * step)
            width[more] += 1
            more = more[byte >= 0x80]
        self.move(rows, at + width)
        return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64)

    def wide(self, rows: Rows, size: int) -> Bytes:
        """So many bytes of each value, a row for each."""
        at = self.take(rows)
        self.move(rows, at + size)
        found: Bytes = self.data[at[:, None] + np.arange(size)]
        return found

    def slices(self, rows: Rows) -> pa.Array:
        """Bytes whose number stands before them."""
        lengths = self.longs(rows)
        at = self.take(rows)
        if np.any(lengths < 0) or np.any(lengths > len(self.data)):
            raise Misfit
        self.move(rows, at + lengths)
        bounds = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        total = int(bounds[-1])
        if total >= 2**31:
            raise Misfit
        if total > _SHORT * len(lengths):
            whole = memoryview(self.data)  # type: ignore[arg-type]
            pairs = zip(at.tolist(), (at + lengths).tolist(), strict=True)
            copied = b"".join([whole[start:end] for start, end in pairs])
        else:
            copied = self.data[np.repeat(at - bounds[:-1], lengths) + np.arange(total)].tobytes()
        offsets = pa.py_buffer(bounds.astype(np.int32))
        return pa.Array.from_buffers(
            pa.binary(), len(lengths), [None, offsets, pa.py_buffer(copied)]
        )


Read = Callable[[Cursor, Rows], pa.Array]
Column = tuple[pa.Field, Read]


@dataclass(frozen=True)
class Vectors:
    """Reads the fields of a record."""

    schema: pa.Schema
    reads: tuple[Read, ...]

    @classmethod
    def of(cls, schema: AvroSchema, as_json: frozenset[str] = frozenset()) -> Vectors | None:
        """None where a field is of a type that is not read here."""
        root = schema.resolved(schema.root)
        if not isinstance(root, dict) or root["type"] != "record" or not root["fields"]:
            return None
        made = []
        for one in root["fields"]:
            column = (
                None if schema.is_json(one["type"]) else _made(schema, one["name"], one["type"])
            )
            if column is None:
                return None
            is_text = one["name"] in as_json and schema.is_plain(one["type"])
            made.append(_as_json(column) if is_text else column)
        return cls(pa.schema([field for field, _ in made]), tuple(read for _, read in made))

    def __call__(self, block: Block) -> pa.RecordBatch:
        """The columns. Raises Misfit, or an error of Arrow, where fastavro must look."""
        cursor = Cursor(block)
        arrays = [read(cursor, None) for read in self.reads]
        if not np.array_equal(cursor.at, cursor.ends):
            raise Misfit
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _made(schema: AvroSchema, name: str, kind: Schema) -> Column | None:
    found = schema.resolved(kind)
    if isinstance(found, list):
        return _optional(schema, name, found)
    if isinstance(found, dict) and logical_type(found):
        return _logical(name, found)
    type_ = found if isinstance(found, str) else found["type"]
    if type_ == "record":
        return _record(schema, name, found)
    if type_ == "fixed":
        return pa.field(name, pa.binary()), _fixed(found["size"])
    if type_ == "enum":
        return pa.field(name, pa.string()), _enum(found["symbols"])
    if type_ not in _SIMPLE:
        return None
    arrow, read = _SIMPLE[type_]
    return pa.field(name, arrow), read


def _optional(schema: AvroSchema, name: str, union: Sequence[Schema]) -> Column | None:
    arms = [schema.resolved(one) for one in union]
    filled = [at for at, one in enumerate(arms) if one not in ("null", {"type": "null"})]
    made = _made(schema, name, union[filled[0]]) if len(filled) == 1 else None
    if made is None or len(union) != 2:
        return None
    field, inner = made
    there = filled[0]

    def read(cursor: Cursor, rows: Rows) -> pa.Array:
        arm = cursor.longs(rows)
        if np.any((arm < 0) | (arm > 1)):
            raise Misfit
        chosen = np.flatnonzero(arm == there)
        if len(chosen) == len(arm):
            return inner(cursor, rows)
        if not len(chosen):
            return pa.nulls(len(arm), field.type)
        found = inner(cursor, chosen if rows is None else rows[chosen])
        places = np.zeros(len(arm), np.int64)
        places[chosen] = np.arange(len(chosen))
        return found.take(pa.array(places, mask=arm != there))

    return field, read


def _record(schema: AvroSchema, name: str, found: Any) -> Column | None:
    made = [_made(schema, one["name"], one["type"]) for one in found["fields"]]
    columns = [one for one in made if one is not None]
    if len(columns) < len(made) or not made:
        return None
    fields = [field for field, _ in columns]

    def read(cursor: Cursor, rows: Rows) -> pa.Array:
        return pa.StructArray.from_arrays([one(cursor, rows) for _, one in columns], fields=fields)

    return pa.field(name, pa.struct(fields)), read


def _as_json(column: Column) -> Column:
    field, inner = column

    def read(cursor: Cursor, rows: Rows) -> pa.Array:
        return json_texts(inner(cursor, rows))

    return pa.field(field.name, pa.string(), metadata={KIND: b"json"}), read


def _logical(name: str, schema: Any) -> Column:
    field, build = avro_logical.column(name, schema)
    of_numbers = avro_logical.numeric(schema)
    raw = _RAW[schema["type"]] if schema["type"] != "fixed" else _fixed(schema["size"])
    if of_numbers is not None:
        return field, lambda cursor, rows: of_numbers(raw(cursor, rows))
    return field, lambda cursor, rows: build(raw(cursor, rows).to_pylist())


def _ints(cursor: Cursor, rows: Rows) -> pa.Array:
    found = cursor.longs(rows)
    if np.any(found != found.astype(np.int32)):
        raise Misfit
    return pa.array(found.astype(np.int32))


def _longs(cursor: Cursor, rows: Rows) -> pa.Array:
    return pa.array(cursor.longs(rows))


def _booleans(cursor: Cursor, rows: Rows) -> pa.Array:
    found = cursor.wide(rows, 1)[:, 0]
    if np.any(found > 1):
        raise Misfit
    return pa.array(found.astype(np.bool_))


def _fractions(kind: str) -> Read:
    size = int(kind[-1])
    return lambda cursor, rows: pa.array(
        np.ascontiguousarray(cursor.wide(rows, size)).view(kind)[:, 0]
    )


def _texts(cursor: Cursor, rows: Rows) -> pa.Array:
    return cursor.slices(rows).cast(pa.string())  # checks that it is UTF-8


def _fixed(size: int) -> Read:
    def read(cursor: Cursor, rows: Rows) -> pa.Array:
        data = pa.py_buffer(np.ascontiguousarray(cursor.wide(rows, size)))
        count = len(cursor.take(rows))
        return pa.Array.from_buffers(pa.binary(size), count, [None, data]).cast(pa.binary())

    return read


def _enum(symbols: Sequence[str]) -> Read:
    names = pa.array(symbols, pa.string())

    def read(cursor: Cursor, rows: Rows) -> pa.Array:
        found = cursor.longs(rows)
        if np.any((found < 0) | (found >= len(names))):
            raise Misfit
        return names.take(pa.array(found))

    return read


def _slices(cursor: Cursor, rows: Rows) -> pa.Array:
    return cursor.slices(rows)


_SIMPLE: dict[str, tuple[pa.DataType, Read]] = {
    "boolean": (pa.bool_(), _booleans),
    "int": (pa.int32(), _ints),
    "long": (pa.int64(), _longs),
    "float": (pa.float32(), _fractions("<f4")),
    "double": (pa.float64(), _fractions("<f8")),
    "string": (pa.string(), _texts),
    "bytes": (pa.binary(), _slices),
}
_RAW: dict[str, Read] = {name: read for name, (_, read) in _SIMPLE.items()}
