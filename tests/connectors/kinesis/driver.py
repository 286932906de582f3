"""Streams of the test server for tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import devservers

Config = dict[str, Any]
_TOGETHER = 500  # records that one request may put


class Stream:
    """A fresh stream, and what a producer and its owner do with it."""

    def __init__(self, server: devservers.Kinesis, shards: int = 2) -> None:
        self.server, self.client = server, server.client()
        self.name = f"stream-{uuid.uuid4().hex[:8]}"
        self.make(shards)

    def make(self, shards: int = 2) -> None:
        self.client.create_stream(StreamName=self.name, ShardCount=shards)

    def remove(self) -> None:
        self.client.delete_stream(StreamName=self.name)

    def put(self, bodies: Iterable[bytes], key: Callable[[int], str] = str) -> None:
        """In their order; by default every one has a key of its own."""
        records = [{"PartitionKey": key(n), "Data": body} for n, body in enumerate(bodies)]
        for at in range(0, len(records), _TOGETHER):
            together = records[at : at + _TOGETHER]
            answer = self.client.put_records(StreamName=self.name, Records=together)
            assert answer["FailedRecordCount"] == 0

    @property
    def shards(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.list_shards(StreamName=self.name)["Shards"]
        return found

    def split(self, shard: str) -> None:
        """In the middle of its keys."""
        (keys,) = (one["HashKeyRange"] for one in self.shards if one["ShardId"] == shard)
        middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2 + 1
        self.client.split_shard(
            StreamName=self.name, ShardToSplit=shard, NewStartingHashKey=str(middle)
        )

    def merge(self, one: str, other: str) -> None:
        self.client.merge_shards(StreamName=self.name, ShardToMerge=one, AdjacentShardToMerge=other)

    def trim(self, sequence: str) -> None:
        """Retention removes the records with lower numbers."""
        self.client.add_tags_to_stream(StreamName=self.name, Tags={"trimmed": sequence})

    @property
    def config(self) -> Config:
        """Of a source that reads it."""
        return {
            "stream": self.name,
            "region": self.server.region,
            "endpoint": self.server.uri,
            "accessKey": self.server.access_key,
            "secretAccessKey": self.server.secret_key,
        }


SHARDS = tuple(f"shardId-{number:012}" for number in range(10))
