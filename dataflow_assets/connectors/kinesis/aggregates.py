"""Aggregates of the Kinesis Producer Library: records that have several user records in them.

An aggregate is four bytes, a message of Protobuf, and the MD5 of that message. Producers group user
records by the shard that they expect; after a split some of them may not be of the shard in which
the aggregate has arrived. The library learns of it and sends those again, so they are left out
here. (The Kinesis Client Library drops the whole aggregate, and with it those that nobody sends
again.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from dataflow_assets.connectors.kinesis.client import HashKeys, KinesisRecord

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16  # bytes


@dataclass(frozen=True)
class Contents:
    """The messages inside of one record of a shard."""

    records: Sequence[KinesisRecord]
    """User records, whose numbers are that of the aggregate and their place in it: `4957-0`."""
    foreign: int = 0
    """How many were left out, because their hash keys are those of other shards."""


def deaggregate(record: KinesisRecord, keys: HashKeys) -> Contents:
    """Takes an aggregate apart.

    Called by the driver, which counts, and by tasks, which store.

    Args:
        record: of a shard, whatever is in it.
        keys: of that shard.

    Returns:
        The record itself where it is no aggregate; with the reason where it is a damaged one.
    """
    if not record.data.startswith(_MAGIC):
        return Contents((record,))
    try:
        packed = list(_user_records(record.data))
    except ValueError as error:
        return Contents((replace(record, refused=f"a damaged aggregate: {error}"),))
    kept = [
        replace(record, sequence=f"{record.sequence}-{place}", key=key, data=data)
        for place, (key, hash_key, data) in enumerate(packed)
        if hash_key in keys
    ]
    return Contents(kept, len(packed) - len(kept))


def _user_records(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Partition key, hash key and data of each; ValueError where the aggregate is damaged."""
    from google.protobuf.message import DecodeError

    body = data[len(_MAGIC) : -_DIGEST]
    if hashlib.md5(body, usedforsecurity=False).digest() != data[-_DIGEST:]:
        raise ValueError("its checksum is not that of its content")
    try:
        aggregated = _parse(body)
        keys = [key.decode() for key in aggregated.partition_key_table]
        explicit = [int(key) for key in aggregated.explicit_hash_key_table]
        hashed = [
            int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest())
            for key in keys
        ]
        for one in aggregated.records:
            at = one.partition_key_index
            own = one.HasField("explicit_hash_key_index")
            yield keys[at], explicit[one.explicit_hash_key_index] if own else hashed[at], one.data
    except (DecodeError, ValueError, IndexError):
        raise ValueError("its content is not a list of user records with their keys") from None


def _parse(body: bytes) -> Any:
    message = _aggregated_record().FromString(body)
    if not message.IsInitialized():
        raise ValueError("a user record without its key or its data")
    return message


@cache
def _aggregated_record() -> Any:
    """The class of the message, by the library's documents; keys are read as bytes and checked."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    described = text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("AggregatedRecord"))


_SCHEMA = """
name: "aggregated_record.proto"
message_type {
  name: "AggregatedRecord"
  field { name: "partition_key_table" number: 1 label: LABEL_REPEATED type: TYPE_BYTES }
  field { name: "explicit_hash_key_table" number: 2 label: LABEL_REPEATED type: TYPE_BYTES }
  field { name: "records" number: 3 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Record" }
}
message_type {
  name: "Record"
  field { name: "partition_key_index" number: 1 label: LABEL_REQUIRED type: TYPE_UINT64 }
  field { name: "explicit_hash_key_index" number: 2 label: LABEL_OPTIONAL type: TYPE_UINT64 }
  field { name: "data" number: 3 label: LABEL_REQUIRED type: TYPE_BYTES }
}
"""
