"""Reading inside a task: the records of a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.kinesis.aggregates import deaggregate
from dataflow_assets.connectors.kinesis.client import KinesisRecord, KinesisStream
from dataflow_assets.connectors.kinesis.options import KinesisSourceOptions
from dataflow_assets.connectors.kinesis.source.planning import KinesisRange
from dataflow_assets.contracts import REFUSED_ROW, PartSlice, Slice, metadata_column
from dataflow_assets.errors import TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.place import constant, with_place

_TIME = pa.timestamp("ms", "UTC")


def read(
    source: KinesisSourceOptions, piece: Slice, metadata: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """The records of a part; ends only when they are those that were read ahead."""
    assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
    one = KinesisRange.parse(piece.part)
    if one is None:
        yield _batch(source, "", (), metadata)
        return
    left = one.records
    for page in KinesisStream(source).pages(one.shard, one.start.iterator, left):
        records = [each for each in page.records if int(each.sequence) <= int(one.last)]
        left -= len(records)
        reach("kinesis.read")
        messages = [each for record in records for each in deaggregate(record, one.keys).records]
        yield _batch(source, one.shard, messages, metadata)
        if page.ended or page.at_tip or left <= 0 or len(records) < len(page.records):
            break
    if left or records[-1].sequence != one.last:
        raise TransientError(
            f"shard {one.shard} of {source.title} no longer shows the {one.records} records from "
            f"{one.first} to {one.last} that were planned"
        )


def _batch(
    source: KinesisSourceOptions,
    shard: str,
    records: Sequence[KinesisRecord],
    metadata: frozenset[str],
) -> pa.RecordBatch:
    sequences = pa.array([one.sequence for one in records], pa.string())
    wraps = source.envelope
    bodies = [_envelope(shard, one) if wraps and not one.refused else one.data for one in records]
    columns: dict[str, tuple[pa.Field, Any]] = {
        "key": (pa.field("key", pa.binary()), [one.key.encode() for one in records]),
        "timestamp": (pa.field("timestamp", _TIME), [one.arrived for one in records]),
        "shardId": (metadata_column("shardId", pa.string()), [shard] * len(records)),
        "sequenceNumber": (metadata_column("sequenceNumber", pa.string()), sequences),
    }
    chosen = [columns[name] for name in sorted(metadata & columns.keys())]
    fields = [pa.field("body", pa.binary()), *(field for field, _ in chosen)]
    arrays = [pa.array(bodies, pa.binary()), *(pa.array(v, f.type) for f, v in chosen)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    if any(one.refused for one in records):
        reasons = pa.array([one.refused or None for one in records], pa.string())
        batch = batch.append_column(REFUSED_ROW, reasons)
    return with_place(batch, {"shard": constant(shard, len(records)), "record": sequences})


def _envelope(shard: str, record: KinesisRecord) -> bytes:
    return msgspec.json.encode(
        {
            "partitionKey": record.key,
            "sequenceNumber": record.sequence,
            "shardId": shard,
            "data": record.data,
        }
    )
