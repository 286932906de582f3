"""Records that are too large for a batch from Spark to its Python worker.

Spark's batches are bounded in records and not in bytes (docs/decisions.md, Kafka). If a record is
so large that a batch of such records would exceed BATCH_BYTES, the frame delivers its position
without its values, and the task reads the record with the plain client.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from math import ceil, floor, log2

import pyarrow as pa

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.connectors.kafka.peek import Peek, as_batch
from dataflow_assets.errors import TransientError
from dataflow_assets.spark.server import ARROW_RECORDS

BATCH_BYTES = 128 * 1024 * 1024  # the most of a batch from Spark
_LENGTHS = {
    "body": "coalesce(octet_length(value), 0)",
    "key": "coalesce(octet_length(key), 0)",
    # As one text: close enough, and names and values are not measured one by one.
    "headers": "IF(size(headers) > 0, octet_length(CAST(headers AS STRING)), 0)",
}

# Per process, for Spark's workers are forked and stay: connecting takes longer than reading.
_peeks: dict[tuple[int, Cluster, str], Peek] = {}


def is_large(longest: int, most_bytes: int, columns: Collection[str]) -> str:
    """SQL that is true for a large record: a batch of such records would have too many bytes.

    `longest`: records of the longest slice. `most_bytes`: what a slice is planned for; a batch may
    have twice as much, like the slice, but never more than BATCH_BYTES.
    """
    size = " + ".join(sql for name, sql in _LENGTHS.items() if name in columns or name == "body")
    return f"{size} > {min(BATCH_BYTES, 2 * most_bytes) // _round(longest)}"


def _round(records: int) -> int:
    """The most records of a batch, as one of few numbers: Spark compiles each text of SQL anew."""
    halves = floor(2 * log2(ARROW_RECORDS / min(records, ARROW_RECORDS)))
    return ceil(ARROW_RECORDS / 2 ** (halves / 2))


def read(
    source: KafkaSourceOptions, partition: int, offsets: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Each of these records in a batch of its own; TransientError where one is not there."""
    missing = deque(offsets)
    # What lies between them is read too, which is cheaper than a seek for each.
    place = (os.getpid(), source.cluster(), source.topic)
    if place not in _peeks:
        _peeks[place] = Peek(source.cluster(), source.topic)
    for message in _peeks[place].records(partition, offsets[0], offsets[-1]):
        if missing and message.offset() == missing[0]:
            missing.popleft()
            yield as_batch([message])
    if missing:
        raise TransientError(
            f"topic {source.topic} partition {partition} offset {missing[0]}: this large record "
            "was seen by Spark, and is no longer there for the task; the flow reads again from its "
            "checkpoint"
        )
