"""Reading inside a task: rows of a part of the spool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataflow_assets.connectors.kafka_connect.options import KafkaConnectSourceOptions
from dataflow_assets.connectors.kafka_connect.parts import ConnectPart
from dataflow_assets.connectors.kafka_connect.source.position import Piece
from dataflow_assets.connectors.kafka_connect.spool import Spool, has_schemas, is_plain
from dataflow_assets.contracts import REFUSED_ROW, PartSlice, Slice, metadata_column
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.place import constant, with_place

_ROWS = 10_000  # of one batch
_NULL = msgspec.Raw(b"null")


def read(
    source: KafkaConnectSourceOptions, piece: Slice, metadata: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """The records of a piece, each an object with `topic`, `id` and `record`."""
    assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
    if not piece.part:
        return  # parts whose records were all dropped, or thrown away
    one = Piece.parse(piece.part)
    try:
        file = Spool(source.spool).read(one.part)
    except FileNotFoundError:
        raise PermanentError(missing(source, one.part.number)) from None
    with file:
        _check_form(source, file, one.part.number)
        at = 0
        for batch in file.iter_batches(_ROWS):
            begin, end = max(one.begin - at, 0), min(one.end - at, batch.num_rows)
            if begin < end:
                reach("connect.read")
                rows = batch.slice(begin, end - begin)
                yield _batch(_bodies(source, rows), rows, one.part, at + begin, metadata)
            at += batch.num_rows


def _check_form(source: KafkaConnectSourceOptions, file: pq.ParquetFile, number: int) -> None:
    envelope, schemas = not is_plain(file), has_schemas(file)
    differs = [f"envelope: {str(envelope).lower()}"] if envelope != source.envelope else []
    differs += [f"schemas: {str(schemas).lower()}"] if schemas != source.schemas else []
    if differs:
        raise PermanentError(
            f"part {number} of the spool {source.spool} was made with {' and '.join(differs)}: set "
            "it back until the flow has read what waits there"
        )


def missing(source: KafkaConnectSourceOptions, number: int) -> str:
    """A part that a flow still needs is not there."""
    return (
        f"part {number} of the spool {source.spool} is gone, and {source.title} may count its "
        "records as delivered: put the folder back, or start from earliest with "
        "table: truncate; every Spark worker must see the folder under this name"
    )


def _bodies(source: KafkaConnectSourceOptions, rows: pa.RecordBatch) -> pa.Array:
    if not source.envelope:
        return rows.column("record")
    columns = [rows.column(name).to_pylist() for name in ("topic", "id", "record")]
    bodies = pa.array([_body(*row) for row in zip(*columns, strict=True)], pa.binary())
    if not _has_refused(rows):
        return bodies
    return pc.if_else(rows.column("refused").is_null(), bodies, rows.column("record"))


def _has_refused(rows: pa.RecordBatch) -> bool:
    has_column = "refused" in rows.schema.names
    return has_column and rows.column("refused").null_count < rows.num_rows


def _batch(
    bodies: pa.Array, rows: pa.RecordBatch, part: ConnectPart, begin: int, metadata: frozenset[str]
) -> pa.RecordBatch:
    columns: dict[str, tuple[pa.Field, Any]] = {
        "key": (pa.field("key", pa.binary()), rows.column("id").cast(pa.binary())),
        "topic": (
            metadata_column("topic", pa.string()),
            rows.column("topic"),
        ),
        "task": (
            metadata_column("task", pa.int64()),
            pa.array([part.task] * rows.num_rows, pa.int64()),
        ),
    }
    chosen = [columns[name] for name in sorted(metadata & columns.keys())]
    schema = pa.schema([pa.field("body", pa.binary()), *(field for field, _ in chosen)])
    arrays = [bodies, *(array for _, array in chosen)]
    numbers = pa.array([str(begin + n) for n in range(rows.num_rows)])
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if _has_refused(rows):
        batch = batch.append_column(pa.field(REFUSED_ROW, pa.string()), rows.column("refused"))
    return with_place(batch, {"part": constant(str(part.number), rows.num_rows), "row": numbers})


def _body(topic: str | None, key: str | None, value: bytes | None) -> bytes:
    return msgspec.json.encode(
        {
            "topic": topic,
            "id": _NULL if key is None else msgspec.Raw(key.encode()),
            "record": _NULL if value is None else msgspec.Raw(value),
        }
    )
