"""The rows of one slice, kept until the border of their chunk is known."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.clickhouse.sink.chunks import ClickhousePiece
from dataflow_assets.connectors.clickhouse.sink.insert import Facts
from dataflow_assets.connectors.clickhouse.sink.upsert_rules import deletes
from dataflow_assets.connectors.clickhouse.table.unfit_values import unfit
from dataflow_assets.contracts import (
    ABSENT,
    OFFSET,
    OP,
    UNKNOWN,
    Chunk,
    N,
    Rejection,
    Sent,
    written_name,
)
from dataflow_assets.sdk.sink.slice_commit import rejections

_NO_DELETES = "a delete needs upsertMode: true with deleteMode: hard or soft"
_GAPS = ((ABSENT, pa.binary()), (UNKNOWN, pa.string()))


@dataclass(frozen=True)
class ClickhouseCut:
    """What goes into one chunk: rows in the sink's schema with OFFSET, N and OP."""

    rows: pa.Table
    rejected: tuple[Rejection, ...]
    size: int


@dataclass
class ClickhouseBuffer:
    """Takes a slice's chunks as they come; nothing is stored yet."""

    schema: pa.Schema
    facts: Facts
    rejected: list[Rejection] = field(default_factory=list)
    _batches: list[pa.RecordBatch] = field(default_factory=list)
    _sent: list[Mapping[int, Sent]] = field(default_factory=list)
    _sizes: list[tuple[int, int]] = field(default_factory=list)

    def add(self, chunk: Chunk) -> list[Rejection]:
        """Takes a chunk's rows; returns those that the table cannot hold."""
        self._sent.append(chunk.sent)
        rows, refused = self._fitting(chunk.rows)
        self.rejected += [*chunk.rejected, *refused]
        self._sizes.append((chunk.seen, chunk.size))
        self._batches.append(rows)
        return refused

    def cut(self, piece: ClickhousePiece) -> ClickhouseCut:
        """Returns what lies between the borders of a piece."""
        rows = pa.Table.from_batches(self._batches, self._full)
        after, upto = piece.after, piece.upto
        if not isinstance(after, int) or not isinstance(upto, int):
            return ClickhouseCut(rows, tuple(self.rejected), sum(size for _, size in self._sizes))
        low, high = np.searchsorted(rows.column(OFFSET).to_numpy(), [after, upto])
        rejected = tuple(one for one in self.rejected if after <= one.offset < upto)
        size = sum(size for seen, size in self._sizes if after < seen <= upto)
        return ClickhouseCut(rows.slice(int(low), int(high - low)), rejected, size)

    def digest(self, piece: ClickhousePiece) -> str:
        """Tells the rows of a piece from any others."""
        rows = self.cut(piece).rows
        if rows.column(UNKNOWN).null_count == rows.num_rows:
            rows = rows.drop_columns([ABSENT, UNKNOWN])  # what a row leaves out has its default
        rows = rows.rename_columns([written_name(one) for one in rows.schema.names])
        rows = rows.combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        return hashlib.sha256(sink.getvalue()).hexdigest()[:32]

    def rejections(
        self, rows: pa.RecordBatch | pa.Table, found: Mapping[int, str]
    ) -> list[Rejection]:
        """Rejections of rows, by their index, for the reasons given."""
        return rejections(rows, found, *self._sent)

    def _fitting(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Rejection]]:
        rows = _complete(rows, self._full)
        found = unfit(rows, self.schema)
        if self.facts.deleted is None:
            found |= {int(at): _NO_DELETES for at in np.flatnonzero(deletes(rows))}
        return (without(rows, found), self.rejections(rows, found)) if found else (rows, [])

    @property
    def _full(self) -> pa.Schema:
        beside = [(OFFSET, pa.int64()), (N, pa.int32()), (OP, pa.int8()), *_GAPS]
        # Null is what the table turns into the column's default.
        columns = [_loose(one).with_nullable(True) for one in self.schema]
        return pa.schema([*columns, *(pa.field(*one) for one in beside)])


def without(
    rows: pa.RecordBatch | pa.Table, refused: Mapping[int, str]
) -> pa.RecordBatch | pa.Table:
    """The rows but those of these indexes."""
    kept = np.ones(rows.num_rows, np.bool_)
    kept[list(refused)] = False
    return rows.filter(pa.array(kept))


def _loose(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_loose(kind.value_field)))
    if pa.types.is_struct(kind) and field.nullable:
        return field.with_type(pa.struct([_loose(each.with_nullable(True)) for each in kind]))
    return field


def _complete(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Exactly these columns; what is not given of the system's is 0, or null."""
    arrays = [
        rows.column(one.name) if one.name in rows.schema.names else _nothing(one, rows.num_rows)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _nothing(field: pa.Field, rows: int) -> pa.Array:
    if not pa.types.is_integer(field.type):
        return pa.nulls(rows, field.type)
    return pa.array(np.zeros(rows, field.type.to_pandas_dtype()))
