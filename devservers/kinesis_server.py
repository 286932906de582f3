"""Moto's Kinesis as a program, with resharding as AWS has it.

Moto moves the records of a shard that is split or merged into other shards, goes on writing into
shards that are closed, numbers records from 1 in each shard, and hands out iterators behind the
end of a closed shard. AWS does none of that, so the classes below do not either.
"""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from itertools import count
from typing import Any, ClassVar

from moto import settings
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.kinesis import models
from moto.kinesis.utils import decompose_shard_iterator
from moto.server import main
from typing_extensions import override

from devservers.kinesis import Kinesis

_POLICY = (
    '{"Version": "2012-10-17", "Statement": '
    '[{"Effect": "Allow", "Action": "kinesis:*", "Resource": "*"}]}'
)
_FIRST = 49_600_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000
_STEP = 11


class AwsShard(models.Shard):
    """Its records have numbers of 56 digits that grow through all shards of all streams."""

    numbers: ClassVar[count[int]] = count(_FIRST, _STEP)

    @override
    def put_record(self, partition_key: str, data: str, explicit_hash_key: str) -> str:
        number = next(self.numbers)
        self.records[number] = models.Record(partition_key, data, number, explicit_hash_key)
        return str(number)


class AwsStream(models.Stream):
    """Records stay where they are when shards are split or merged."""

    @override
    def split_shard(self, shard_to_split: str, new_starting_hash_key: str) -> None:
        shard = self.shards[shard_to_split]
        records, shard.records = shard.records, OrderedDict()
        super().split_shard(shard_to_split, new_starting_hash_key)
        shard.records = records

    @override
    def merge_shards(self, shard_to_merge: str, adjacent_shard_to_merge: str) -> None:
        both = self.shards[shard_to_merge], self.shards[adjacent_shard_to_merge]
        kept = [shard.records for shard in both]
        for shard in both:
            shard.records = OrderedDict()
        super().merge_shards(shard_to_merge, adjacent_shard_to_merge)
        for shard, records in zip(both, kept, strict=True):
            shard.records = records

    @override
    def get_shard_for_key(self, partition_key: str, explicit_hash_key: str) -> models.Shard | None:
        digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).hexdigest()
        key = int(explicit_hash_key) if explicit_hash_key else int(digest, 16)
        return next(
            shard
            for shard in self.shards.values()
            if shard.is_open and shard.starting_hash <= key <= shard.ending_hash
        )


_moto_records = models.KinesisBackend.get_records


def _get_records(
    self: models.KinesisBackend, stream_arn: str | None, shard_iterator: str, limit: int | None
) -> Any:
    """A closed shard that was read to its end has no further iterator.

    The tag `trimmed` of a stream is the number below which retention has removed the records.
    """
    stream, shard_id = decompose_shard_iterator(shard_iterator)[:2]
    _trim(self.describe_stream(stream_arn, stream), shard_id)
    following, records, behind = _moto_records(self, stream_arn, shard_iterator, limit)
    name, shard_id, last = decompose_shard_iterator(following)
    shard = self.describe_stream(stream_arn, name).get_shard(shard_id)
    at_end = not shard.is_open and int(last) >= shard.get_max_sequence_number()
    return (None if at_end else following), records, behind


def _trim(stream: models.Stream, shard_id: str) -> None:
    horizon, shard = int(stream.tags.get("trimmed", 0)), stream.get_shard(shard_id)
    for number in [one for one in shard.records if one < horizon]:
        del shard.records[number]


def serve() -> None:
    """The program: puts the classes in the place of moto's own, then serves as it does."""
    models.Shard = AwsShard  # type: ignore[misc]
    models.Stream = AwsStream  # type: ignore[misc]
    models.KinesisBackend.get_records = _get_records  # type: ignore[method-assign]
    _admit_one()
    main(sys.argv[1:])


def _admit_one() -> None:
    """One user who may do all with streams, and nobody else: moto checks signatures."""
    backend = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    backend.create_user("us-east-1", "flow")
    backend.put_user_policy("flow", "all", _POLICY)
    key = backend.create_access_key("flow")
    key.access_key_id, key.secret_access_key = Kinesis.access_key, Kinesis.secret_key
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
