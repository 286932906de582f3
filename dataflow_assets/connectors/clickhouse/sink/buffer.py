"""The rows of one slice, kept until the border of their chunk is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.clickhouse.sink.chunks import Piece
from dataflow_assets.connectors.clickhouse.sink.insert import Facts
from dataflow_assets.connectors.clickhouse.sink.upsert_rules import deletes
from dataflow_assets.connectors.clickhouse.type_names import Type
from dataflow_assets.connectors.clickhouse.types import CLICKHOUSE_TYPE
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

_NO_DELETES = "a delete needs upsertMode: true with deleteMode: hard or soft"
_GAPS = ((ABSENT, pa.binary()), (UNKNOWN, pa.string()))
_DAYS = (date(1970, 1, 1), date(2149, 6, 6))
_SECONDS = (datetime(1970, 1, 1, tzinfo=UTC), datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC))
_LIMITS = {"Date": _DAYS, "DateTime": _SECONDS, "DateTime32": _SECONDS}


@dataclass(frozen=True)
class Cut:
    """What goes into one chunk: rows in the sink's schema with OFFSET, N and OP."""

    rows: pa.Table
    rejected: tuple[Rejection, ...]
    size: int


@dataclass
class Buffer:
    """Takes a slice's chunks as they come; nothing is stored yet."""

    schema: pa.Schema
    facts: Facts
    rejected: list[Rejection] = field(default_factory=list)
    _batches: list[pa.RecordBatch] = field(default_factory=list)
    _sent: list[Mapping[int, Sent]] = field(default_factory=list)
    _sizes: list[tuple[int, int]] = field(default_factory=list)

    def add(self, chunk: Chunk, first: int) -> None:
        """Takes a chunk's rows from `first` on; those that the table cannot hold are rejected."""
        offsets = chunk.rows.column(OFFSET).to_numpy()
        rows = chunk.rows.slice(int(np.searchsorted(offsets, first)))
        self._sent.append(chunk.sent)
        self.rejected += [one for one in chunk.rejected if one.offset >= first]
        self._sizes.append((chunk.seen, chunk.size))
        self._batches.append(self._fitting(rows))

    def cut(self, piece: Piece) -> Cut:
        """What lies between the borders of a piece."""
        rows = pa.Table.from_batches(self._batches, self._full)
        after, upto = piece.after, piece.upto
        if not isinstance(after, int) or not isinstance(upto, int):
            return Cut(rows, tuple(self.rejected), sum(size for _, size in self._sizes))
        low, high = np.searchsorted(rows.column(OFFSET).to_numpy(), [after, upto])
        rejected = tuple(one for one in self.rejected if after <= one.offset < upto)
        size = sum(size for seen, size in self._sizes if after < seen <= upto)
        return Cut(rows.slice(int(low), int(high - low)), rejected, size)

    def digest(self, piece: Piece) -> str:
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

    def refused(self, rows: pa.Table, found: Mapping[int, str]) -> list[Rejection]:
        """Rejections of rows, by their index, for the reasons given."""
        offsets, numbers = rows.column(OFFSET), rows.column(N)
        return [
            self._rejection(offsets[at].as_py(), numbers[at].as_py(), reason)
            for at, reason in sorted(found.items())
        ]

    def _fitting(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        rows = _complete(rows, self._full)
        found = _beyond(rows, self.schema)
        if self.facts.deleted is None:
            found |= {int(at): _NO_DELETES for at in np.flatnonzero(deletes(rows))}
        if not found:
            return rows
        self.rejected += self.refused(pa.Table.from_batches([rows]), found)
        return without(pa.Table.from_batches([rows]), found).combine_chunks().to_batches()[0]

    def _rejection(self, offset: int, n: int, reason: str) -> Rejection:
        sent = next((found for found in self._found(offset)), Sent(None))
        return Rejection(offset, "sink", reason, None, n).of(sent)

    def _found(self, offset: int) -> Iterator[Sent]:
        for sent in self._sent:
            if (found := sent.get(offset)) is not None:
                yield found

    @property
    def _full(self) -> pa.Schema:
        beside = [(OFFSET, pa.int64()), (N, pa.int32()), (OP, pa.int8()), *_GAPS]
        # Null is what the table turns into the column's default.
        columns = [one.with_nullable(True) for one in self.schema]
        return pa.schema([*columns, *(pa.field(*one) for one in beside)])


def without(rows: pa.Table, refused: Mapping[int, str]) -> pa.Table:
    """The rows but those of these indexes."""
    kept = np.ones(rows.num_rows, np.bool_)
    kept[list(refused)] = False
    return rows.filter(pa.array(kept))


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


def _beyond(rows: pa.RecordBatch, schema: pa.Schema) -> dict[int, str]:
    """By row: why a time does not fit its column, which would turn it into another one."""
    found: dict[int, str] = {}
    for one in schema:
        text = (one.metadata or {}).get(CLICKHOUSE_TYPE, b"").decode()
        limits = _LIMITS.get(Type.of(text).bare.name if text else "")
        if limits is None or not pa.types.is_temporal(one.type):
            continue
        low, high = (pa.scalar(limit, one.type) for limit in limits)
        column = rows.column(one.name)
        wrong = pc.or_(pc.less(column, low), pc.greater(column, high)).fill_null(False)
        for at in np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist():
            reason = f"{column[at]} lies outside {limits[0]} to {limits[1]}"
            found.setdefault(at, f"column {one.name}: {reason}")
    return found
