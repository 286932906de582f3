"""Rows of the target that have changed, and what could not be stored: frozen in files.

Each file is a part of a span, which the sink's checkpoint names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.contracts import (
    ONE_ROW,
    REFUSED_ROW,
    Note,
    PartSlice,
    metadata_column,
    system_name,
)
from dataflow_assets.languages.sql.state.files import StateFiles
from dataflow_assets.languages.sql.state.manifest import StateFile
from dataflow_assets.languages.sql.state.tables import decode, encode
from dataflow_assets.records.decoding import decode_json

UPSERTED, DELETED, REFUSED = "upsert", "delete", "refused"
BATCH = 10_000


class OutputRow(NamedTuple):
    """One row of a file."""

    body: bytes | None
    """JSON; of a record that is refused its own body."""
    operation: str
    reason: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    group: str | None = None
    """Of a row that cannot be computed: when, and of which group."""
    key: str | None = None
    """Of a record that is refused."""
    table: int | None = None
    """Of a topic that several tables of a UNION ALL read: which of them it is; None: the first."""


_FILE = pa.schema(
    [
        ("body", pa.binary()),
        ("operation", pa.string()),
        ("reason", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
        ("group", pa.string()),
        ("key", pa.string()),
        ("table", pa.int64()),
    ]
)
_BESIDE = ("operation", "topic", "partition", "offset", "key")
_PLACE = ["topic", "partition", "offset", "group"]
"""What tells a record, or a group, that is refused from all others."""
METADATA_KEYS: Mapping[str, str] = {
    "operation": "`upsert`, `delete` or `refused`",
    "topic": "of a record that is refused: its topic",
    "partition": "its partition",
    "offset": "its offset",
    "key": "its key as text",
}


def write_rows(rows: Sequence[OutputRow]) -> bytes:
    columns = zip(*rows, strict=True) if rows else [()] * len(_FILE)
    arrays = [pa.array(one, field.type) for one, field in zip(columns, _FILE, strict=True)]
    return encode(pa.Table.from_arrays(arrays, schema=_FILE))


def batches(content: bytes) -> Iterator[pa.RecordBatch]:
    return map(_entries, decode(content).combine_chunks().to_batches(BATCH))


def _entries(batch: pa.RecordBatch) -> pa.RecordBatch:
    fields: list[pa.Field] = [pa.field("body", pa.binary())]
    arrays: list[pa.Array] = [batch.column("body")]
    for name in _BESIDE:
        fields.append(metadata_column(name, batch.schema.field(name).type))
        arrays.append(batch.column(name))
    names = _place(batch)
    place = pa.StructArray.from_arrays([batch.column(one) for one in names], names)
    fields.append(pa.field(system_name("place"), place.type, metadata={Note.PLACE: ONE_ROW}))
    fields.append(pa.field(REFUSED_ROW, pa.string()))
    return pa.RecordBatch.from_arrays(
        [*arrays, place, batch.column("reason")], schema=pa.schema(fields)
    )


def _place(batch: pa.RecordBatch) -> list[str]:
    """The first table of a topic has no number: so its ids are those that it had alone."""
    first = "table" not in batch.schema.names or batch.column("table").null_count
    return _PLACE if first else [*_PLACE, "table"]


class OutputPart(msgspec.Struct, frozen=True):
    """A part as the sink's checkpoint names it."""

    flow: str
    file: StateFile | None = None
    """None: nothing has changed, and the position moves all the same."""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def read(location: FilesConnection, piece: PartSlice) -> Iterator[pa.RecordBatch]:
    """The rows of a part. Raises PermanentError where its file is lost or damaged."""
    part = decode_json(piece.part, OutputPart)
    if part.file is not None:
        yield from batches(StateFiles(location, part.flow).read(part.file.name, part.file.digest))
