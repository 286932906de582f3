"""The `kinesis` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kinesis.options import KinesisSourceOptions
from dataflow_assets.contracts import Slice, SourceSession, SourceTraits
from dataflow_assets.contracts.reading import ReadsParts


class KinesisSource(KinesisSourceOptions, ReadsParts):
    """Reads one stream of Amazon Kinesis Data Streams: each shard in the order of its records.

    Shards that were split or merged are read to their end before the shards that they became, so
    that the records of a partition key keep their order. The partition key is the key of the
    message.

    An aggregate, into which the Kinesis Producer Library has packed several user records, is taken
    apart: each of them is a message with its own partition key, and its sequence number is that of
    the aggregate with its place in it, such as `4957-0`. User records that are not of the shard in
    which the aggregate is are left out, with a warning: the producer has sent them again. An
    aggregate that is damaged is a rejected record.

    The driver reads each record once to fix where a micro-batch ends, and a task reads it again to
    store it. A shard gives 2 MB a second to all its readers together, so a flow reads at most 1 MB
    a second of each shard. Enhanced fan-out is not used.
    """

    type: ClassVar[str] = "kinesis"
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "entries"
    guarantee: ClassVar[str] = (
        "Each record of each shard exactly once, by its sequence number: the bounds of a "
        "micro-batch are stored before its records are read, and the same records are read again "
        "after a crash. Records that retention may have removed before they were read are an "
        "error, unless `onDataLoss: continue`; this is noticed only if the flow runs at least once "
        "in the stream's retention period. A stream that was deleted and re-created counts as "
        "another one (`onTopicRecreated`)."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset(
        {"key", "timestamp", "shardId", "sequenceNumber"}
    )
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "key": "the record's partition key",
        "timestamp": "when the record arrived, approximately",
        "shardId": "id of the shard",
        "sequenceNumber": "the record's sequence number, as text; in an aggregate with its place",
    }

    @property
    @override
    def traits(self) -> SourceTraits:
        # Nothing here writes to a stream.
        return replace(super().traits, poll_seconds=float(self.poll_interval), reads_back=False)

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.connectors.kinesis.source.session import KinesisSourceSession

        return KinesisSourceSession(self)

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.kinesis.source.read import read

        return read(self, piece, metadata)
