"""Records too large to travel from Spark to its Python worker among others of their like.

Spark sends batches of so many records, whatever their size: letting it weigh what it has after
every record costs a seventh to a third of its work. So a record that is much larger than those the
slice was planned for is left out of its batch, and the task reads it by itself.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa
from confluent_kafka import Message

from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.connectors.kafka.peek import Peek, as_batch
from dataflow_assets.errors import TransientError
from dataflow_assets.spark.server import ARROW_RECORDS

BATCH = 128 * 1024 * 1024  # bytes of a batch of Spark's; twice what a slice is planned for
_LENGTHS = {
    "body": "coalesce(octet_length(value), 0)",
    "key": "coalesce(octet_length(key), 0)",
    "headers": "IF(size(headers) > 0, octet_length(CAST(headers AS STRING)), 0)",
}

# Per process, for Spark's workers are forked and stay: connecting takes longer than reading.
_peeks: dict[tuple[int, str, str], Peek] = {}


def condition(bounds: Mapping[str, tuple[int, int]], columns: Collection[str]) -> str:
    """SQL that is true for a large record of slices with these bounds."""
    longest = max(end - start for start, end in bounds.values())
    size = " + ".join(sql for name, sql in _LENGTHS.items() if name in columns or name == "body")
    return f"{size} > {BATCH // min(longest, ARROW_RECORDS)}"


def read(
    source: KafkaSourceOptions, partition: int, offsets: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Each of these records in a batch of its own; TransientError where one is not there."""
    awaited = iter(offsets)
    wanted = next(awaited)
    for message in _peek(source).all(partition, wanted):
        if _offset(message) > wanted:
            break  # it was removed since Spark has read it
        if _offset(message) == wanted:
            yield as_batch([message])
            if (following := next(awaited, None)) is None:
                return
            wanted = following
    raise TransientError(
        f"topic {source.topic} partition {partition} offset {wanted}: the record is large, and "
        "gone since Spark has read its neighbours"
    )


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _peek(source: KafkaSourceOptions) -> Peek:
    place = (os.getpid(), source.bootstrap(), source.topic)
    if place not in _peeks:
        _peeks[place] = Peek(source.bootstrap(), source.topic)
    return _peeks[place]
