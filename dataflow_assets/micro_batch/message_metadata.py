"""The messages of a batch with their metadata, as steps and conditions see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import (
    DELETE,
    EVERYTHING,
    HEADER_LIST,
    OFFSET,
    OP,
    Chunk,
    Note,
    Slice,
    Source,
)
from dataflow_assets.formats.rows import is_beside, objects, table_columns, values
from dataflow_assets.records.record import parse

ORDINAL = "ordinal"
"""The column of an entry's place in its part."""
COLUMNS = b"dataflow.columns"
"""In the schema's own metadata: the columns of the rows that the messages were, as Arrow
serializes a schema."""


@dataclass(frozen=True)
class MetadataRows:
    """Reads the batches of one slice. Metadata that costs and that nobody reads is left out."""

    source: Source
    piece: Slice
    slices: int
    reads: frozenset[str]

    def offsets(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        numbers: npt.NDArray[np.int64] = batch.column("_at").to_numpy() // self.slices
        return numbers

    def records(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, Mapping[str, Any]]]:
        bodies = batch.column("body").to_pylist()
        if "metadata" in batch.schema.names:
            metadata = batch.column("metadata").to_pylist()
            return (
                (body, _entry_metadata(text)) for body, text in zip(bodies, metadata, strict=True)
            )
        static = self.source.metadata(self.piece)
        columns = dict(self._columns(batch))
        if not columns:
            return ((body, static) for body in bodies)
        names, rows = list(columns), zip(*columns.values(), strict=True)
        return (
            (body, _with_headers({**static, **dict(zip(names, row, strict=True))}))
            for body, row in zip(bodies, rows, strict=True)
        )

    def again(self, batch: pa.RecordBatch) -> list[tuple[int, int | None] | None] | None:
        """Metadata of replayed entries, with the number of each record among those of its message.

        None for a whole message, and where nothing is replayed.
        """
        if "only" not in batch.schema.names:
            return None
        pairs = zip(batch.column("only").to_pylist(), batch.column("of").to_pylist(), strict=True)
        return [None if n is None else (n, of) for n, of in pairs]

    def _columns(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Any]]]:
        if self.source.delivers == "messages" and self.reads & {"offset", EVERYTHING}:
            yield "offset", self.offsets(batch).tolist()
        for field in batch.schema:
            name, key = field.name, Note.METADATA.of(field)
            if key is not None:
                yield key, values(batch.column(name), field)
            elif name in _VALUES and self.reads & {name, EVERYTHING}:
                yield name, _VALUES[name](batch.column(name))
                if name == "headers" and HEADER_LIST in self.reads:
                    yield HEADER_LIST, batch.column(name).to_pylist()


def as_messages(
    batches: Iterable[pa.RecordBatch], index: int, slices: int
) -> Iterator[pa.RecordBatch]:
    """Typed rows as messages: each a JSON object, its offset the ordinal inside the part."""
    filled = (batch for batch in batches if batch.num_rows)
    return with_ordinals(map(as_message, filled), index, slices)


def as_message(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of one batch as messages, without numbers."""
    fields = [field for field in batch.schema if is_beside(field) or field.name == OP]
    arrays = [pa.array(objects(batch), pa.binary()), *(batch.column(f.name) for f in fields)]
    columns = pa.schema(table_columns(batch.schema)).serialize().to_pybytes()
    schema = pa.schema([("body", pa.binary()), *fields], {COLUMNS: columns})
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def deletions(batch: pa.RecordBatch) -> frozenset[int]:
    """The rows of a batch that are deletions, where the source tells what each row is."""
    if OP not in batch.schema.names:
        return frozenset()
    return frozenset(np.flatnonzero(batch.column(OP).to_numpy() == DELETE).tolist())


def with_ordinals(
    batches: Iterable[pa.RecordBatch], index: int, slices: int
) -> Iterator[pa.RecordBatch]:
    """Messages of a part with their ordinals as offsets; entries have ordinals of their own."""
    seen = 0
    for batch in batches:
        ordinals = np.arange(seen, seen + batch.num_rows)
        if ORDINAL in batch.schema.names:
            ordinals = batch.column(ORDINAL).to_numpy()
        seen += batch.num_rows
        yield batch.append_column("_at", pa.array(ordinals * slices + index, pa.int64()))


def metadata_to_read(source: Source, reads: frozenset[str]) -> frozenset[str]:
    """The columns to ask the source for."""
    return source.metadata_columns if EVERYTHING in reads else source.metadata_columns & reads


def _keys(column: pa.Array) -> list[str]:
    return [_text(key) for key in column.to_pylist()]


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _times(column: pa.Array) -> list[Any]:
    """Aware times; one that a producer has set beyond the year 9999 is a number of milliseconds."""
    times = column.cast(pa.timestamp("us", "UTC"))
    try:
        values: list[Any] = times.to_pylist()
    except OverflowError:
        values = [_time(each) for each in times]
    return values


def _time(value: pa.TimestampScalar) -> Any:
    try:
        return value.as_py()
    except OverflowError:
        return value.value // 1000


def _headers(column: pa.Array) -> list[dict[str, str]]:
    return [{one["key"]: _text(one["value"]) for one in row or ()} for row in column.to_pylist()]


def _entry_metadata(text: bytes) -> Mapping[str, Any]:
    """The metadata of an entry, in which times are text."""
    metadata: dict[str, Any] = parse(text)
    if isinstance(time := metadata.get("timestamp"), str):
        metadata["timestamp"] = datetime.fromisoformat(time)
    return metadata


def _with_headers(metadata: dict[str, Any]) -> dict[str, Any]:
    """A record without headers has no such key."""
    if not metadata.get("headers", True):
        del metadata["headers"]
    return metadata


_VALUES = {"key": _keys, "timestamp": _times, "headers": _headers}


TIMESTAMP = "timestamp"
"""The column of a batch of messages, of all sources of messages."""


def with_time(chunk: Chunk, batch: pa.RecordBatch, offsets: pa.Array, name: str) -> Chunk:
    """The chunk with one more column: the time of the message that each row comes from.

    Called inside tasks for each batch of messages, for a sink with `record_time`.

    Args:
        chunk: what the branch gets of the batch, fewer rows than messages where some are rejected.
        batch: the messages.
        offsets: of the messages.
        name: of the column; null where a rejected record is put back, whose time was not kept.
    """
    kind = pa.timestamp("us", "UTC")
    if TIMESTAMP in batch.schema.names:
        times = batch.column(TIMESTAMP).cast(kind)
    else:
        times = pa.nulls(batch.num_rows, kind)
    column = times.take(pc.index_in(chunk.rows.column(OFFSET), offsets))
    return replace(chunk, rows=chunk.rows.append_column(name, column))
