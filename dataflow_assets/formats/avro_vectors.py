"""Avro values of one schema, a field of all of them at a time.

fastavro makes Python objects, which take three times as long as the rest of a flow's work on a
record. Here every value has a cursor, and numpy moves all cursors over a field at once. What the
fields may be: numbers, texts, bytes, enums, records of these, and unions of one of these with null.
Schemas with anything else, and blocks with a value that does not fit, are read by fastavro
(`avro_blocks`), which also says what is wrong: this module only ever says that something is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import Kind
from dataflow_assets.formats import avro_logical
from dataflow_assets.formats.avro_cursor import AvroCursor, Block, Misfit, Rows
from dataflow_assets.formats.avro_logical import logical_type
from dataflow_assets.formats.avro_schema import AvroSchema, Schema
from dataflow_assets.records.record import exact_json

Read = Callable[[AvroCursor, Rows], pa.Array]
Column = tuple[pa.Field, Read]
_QUOTE, _BACKSLASH, _BLANK = b'"\\ '


@dataclass(frozen=True)
class Vectors:
    """Reads the fields of a record."""

    schema: pa.Schema
    reads: tuple[Read, ...]

    @classmethod
    def of(cls, schema: AvroSchema, as_json: frozenset[str] = frozenset()) -> Vectors | None:
        """Returns None where a field is of a type that cannot be read by columns."""
        root = schema.resolve(schema.root)
        if not isinstance(root, dict) or root["type"] != "record" or not root["fields"]:
            return None
        columns = []
        for one in root["fields"]:
            column = _column(schema, one["name"], one["type"])
            if column is None:
                return None
            is_text = one["name"] in as_json and schema.is_plain(one["type"])
            columns.append(_as_json(column) if is_text else column)
        return cls(pa.schema([field for field, _ in columns]), tuple(read for _, read in columns))

    def __call__(self, block: Block) -> pa.RecordBatch:
        """The columns. Raises Misfit, or an error of Arrow, where fastavro must look."""
        cursor = AvroCursor(block)
        arrays = [read(cursor, None) for read in self.reads]
        if not np.array_equal(cursor.at, cursor.ends):
            raise Misfit
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _column(schema: AvroSchema, name: str, kind: Schema) -> Column | None:
    if schema.is_json(kind):  # also a record that goes on without end
        return None
    resolved = schema.resolve(kind)
    if isinstance(resolved, list):
        return _optional(schema, name, resolved)
    if isinstance(resolved, dict) and logical_type(resolved):
        return _logical(name, resolved)
    type_ = resolved if isinstance(resolved, str) else resolved["type"]
    if type_ == "record":
        return _record(schema, name, resolved)
    if type_ == "fixed":
        return pa.field(name, pa.binary()), _read_fixed(resolved["size"])
    if type_ == "enum":
        return pa.field(name, pa.string()), _enum(resolved["symbols"])
    if type_ not in _SIMPLE:
        return None
    arrow, read = _SIMPLE[type_]
    return pa.field(name, arrow), read


def _optional(schema: AvroSchema, name: str, union: Sequence[Schema]) -> Column | None:
    arms = [schema.resolve(one) for one in union]
    filled = [at for at, one in enumerate(arms) if one not in ("null", {"type": "null"})]
    column = _column(schema, name, union[filled[0]]) if len(filled) == 1 else None
    if column is None or len(union) != 2:
        return None
    field, inner = column
    there = filled[0]

    def read(cursor: AvroCursor, rows: Rows) -> pa.Array:
        arm = cursor.longs(rows)
        if np.any((arm < 0) | (arm > 1)):
            raise Misfit
        chosen = np.flatnonzero(arm == there)
        if len(chosen) == len(arm):
            return inner(cursor, rows)
        if not len(chosen):
            return pa.nulls(len(arm), field.type)
        values = inner(cursor, chosen if rows is None else rows[chosen])
        places = np.zeros(len(arm), np.int64)
        places[chosen] = np.arange(len(chosen))
        return values.take(pa.array(places, mask=arm != there))

    return field, read


def _record(schema: AvroSchema, name: str, resolved: Any) -> Column | None:
    members = [_column(schema, one["name"], one["type"]) for one in resolved["fields"]]
    columns = [one for one in members if one is not None]
    if len(columns) < len(members) or not members:
        return None
    fields = [field for field, _ in columns]

    def read(cursor: AvroCursor, rows: Rows) -> pa.Array:
        return pa.StructArray.from_arrays([one(cursor, rows) for _, one in columns], fields=fields)

    return pa.field(name, pa.struct(fields)), read


def _as_json(column: Column) -> Column:
    field, inner = column

    def read(cursor: AvroCursor, rows: Rows) -> pa.Array:
        return json_texts(inner(cursor, rows))

    return Kind.JSON.field(field.name), read


def _logical(name: str, schema: Any) -> Column:
    field, build = avro_logical.column(name, schema)
    of_numbers = avro_logical.numeric(schema)
    raw = _RAW[schema["type"]] if schema["type"] != "fixed" else _read_fixed(schema["size"])
    if of_numbers is not None:
        return field, lambda cursor, rows: of_numbers(raw(cursor, rows))
    return field, lambda cursor, rows: build(raw(cursor, rows).to_pylist())


def _ints(cursor: AvroCursor, rows: Rows) -> pa.Array:
    numbers = cursor.longs(rows)
    if np.any(numbers != numbers.astype(np.int32)):
        raise Misfit
    return pa.array(numbers.astype(np.int32))


def _longs(cursor: AvroCursor, rows: Rows) -> pa.Array:
    return pa.array(cursor.longs(rows))


def _booleans(cursor: AvroCursor, rows: Rows) -> pa.Array:
    octets = cursor.wide(rows, 1)[:, 0]
    if np.any(octets > 1):
        raise Misfit
    return pa.array(octets.astype(np.bool_))


def _fractions(kind: str) -> Read:
    size = int(kind[-1])
    return lambda cursor, rows: pa.array(
        np.ascontiguousarray(cursor.wide(rows, size)).view(kind)[:, 0]
    )


def _texts(cursor: AvroCursor, rows: Rows) -> pa.Array:
    return cursor.slices(rows).cast(pa.string())  # checks that it is UTF-8


def _read_fixed(size: int) -> Read:
    def read(cursor: AvroCursor, rows: Rows) -> pa.Array:
        data = pa.py_buffer(np.ascontiguousarray(cursor.wide(rows, size)))
        count = len(cursor.take(rows))
        return pa.Array.from_buffers(pa.binary(size), count, [None, data]).cast(pa.binary())

    return read


def _enum(symbols: Sequence[str]) -> Read:
    names = pa.array(symbols, pa.string())

    def read(cursor: AvroCursor, rows: Rows) -> pa.Array:
        numbers = cursor.longs(rows)
        if np.any((numbers < 0) | (numbers >= len(names))):
            raise Misfit
        return names.take(pa.array(numbers))

    return read


def _slices(cursor: AvroCursor, rows: Rows) -> pa.Array:
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


def json_texts(column: pa.Array) -> pa.Array:
    """Values of numbers, booleans, texts, and structs of these, as JSON; null stays null."""
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if pa.types.is_string(column.type):
        if _plain(column):
            return pc.binary_join_element_wise('"', column, '"', "")
        texts = [None if one is None else exact_json(one) for one in column.to_pylist()]
        return pa.array(texts, pa.string())
    assert pa.types.is_struct(column.type), column.type  # noqa: S101 - nothing else is asked for
    pieces: list[Any] = []
    for index, field in enumerate(column.type):
        comma = "," if index else "{"
        pieces.append(f"{comma}{json.dumps(field.name, ensure_ascii=False)}:")
        member = json_texts(column.field(index))
        pieces.append(pc.fill_null(member, "null") if member.null_count else member)
    joined = pc.binary_join_element_wise(*pieces, "}", "")
    return pc.if_else(column.is_valid(), joined, None) if column.null_count else joined


def _plain(column: pa.Array) -> bool:
    _, offsets, data = column.buffers()
    if data is None:
        return True
    bounds = np.frombuffer(offsets, np.int32)
    first, last = bounds[column.offset], bounds[column.offset + len(column)]
    letters = np.frombuffer(data, np.uint8)[first:last]
    return not np.any((letters < _BLANK) | (letters == _QUOTE) | (letters == _BACKSLASH))
