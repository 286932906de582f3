"""The one module that talks to Kinesis: a stream, its shards, the records of a shard.

A shard answers five requests and gives 2 MB in a second to all its readers together: `pages` keeps
to that as if it were alone, and waits where others were faster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, NamedTuple

from dataflow_assets.connectors.kinesis.errors import EXPIRED, THROTTLED, KinesisFailure, failing
from dataflow_assets.connectors.kinesis.options import KinesisSourceOptions
from dataflow_assets.sdk.server_failure import translate_errors

MOST_RECORDS = 10_000  # of one answer
_PER_REQUEST = 0.2  # seconds between two requests to one shard
_PER_BYTE = 1 / 2_000_000  # seconds
_PATIENCE = 30.0  # seconds in which a shard that is busy gives something
_THREADS = 16


class HashKeys(NamedTuple):
    """The hash keys of a shard, both ends included."""

    first: int = 0
    last: int = (1 << 128) - 1

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and self.first <= key <= self.last


@dataclass(frozen=True)
class Description:
    """The stream as it is now. `now`: the time of the service, in ms since 1970, whole seconds."""

    identity: str
    retention: int
    """Milliseconds that records are kept."""
    now: int


@dataclass(frozen=True)
class Shard:
    """A shard whose records are still there, open or closed."""

    id: str
    parents: tuple[str, ...] = ()
    """The shards, one or two, that were split or merged into it."""
    closed: bool = False
    keys: HashKeys = HashKeys()


@dataclass(frozen=True)
class KinesisRecord:
    """A record. `arrived`: ms since 1970, by the clock of the service; approximate, says AWS."""

    sequence: str
    key: str = field(repr=False)
    data: bytes = field(repr=False)
    arrived: int
    refused: str = ""
    """Why it cannot be read."""


@dataclass(frozen=True)
class KinesisPage:
    """The answer to one request."""

    records: Sequence[KinesisRecord]
    at_tip: bool
    """There is nothing behind these records now."""
    ended: bool
    """Nothing will ever be: the shard is closed."""
    behind: int = 0
    """Milliseconds from these records to the tip."""


class KinesisStream:
    """A stream, connected. May be used by several threads at a time."""

    def __init__(self, source: KinesisSourceOptions) -> None:
        self._name, self._title = source.stream, source.title
        with translate_errors(f"cannot open {self._title}"), failing():
            self._client = _client(source)

    def describe(self) -> Description:
        """Raises PermanentError where there is no such stream."""
        with translate_errors(f"cannot open {self._title}"), failing():
            answer = self._client.describe_stream_summary(StreamName=self._name)
        summary = answer["StreamDescriptionSummary"]
        created: datetime = summary["StreamCreationTimestamp"]
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        now = parsedate_to_datetime(date).timestamp() if date else time.time()
        hours = int(summary["RetentionPeriodHours"])
        return Description(
            f"{summary['StreamARN']}@{int(created.timestamp())}",
            hours * 3_600_000,
            int(now) * 1_000,
        )

    def shards(self) -> list[Shard]:
        listed, request = list[Shard](), {"StreamName": self._name}
        while request:
            with translate_errors(f"cannot list the shards of {self._title}"), failing():
                answer = self._client.list_shards(**request)
            listed += map(_shard, answer["Shards"])
            following = answer.get("NextToken")
            request = {"NextToken": following} if following else {}
        return listed

    def pages(self, shard: str, begin: Mapping[str, Any], most: int) -> Iterator[KinesisPage]:
        """The records of a shard from an iterator's beginning on, page after page.

        Ends behind the last record of a closed shard only: at the tip of an open one the caller
        stops, or waits for more.

        Args:
            shard: its id.
            begin: the arguments of `GetShardIterator` that say where.
            most: records of a page.
        """
        iterator = self._iterator(shard, begin)
        while iterator:
            try:
                answer = self._records(shard, iterator, min(most, MOST_RECORDS))
            except _Expired:
                iterator = self._iterator(shard, begin)
                continue
            asked_at = time.monotonic()
            records = [_record(one) for one in answer["Records"]]
            if records:
                last = records[-1].sequence
                begin = {
                    "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                    "StartingSequenceNumber": last,
                }
            iterator = answer.get("NextShardIterator")
            full = len(records) == min(most, MOST_RECORDS)
            behind = int(answer.get("MillisBehindLatest", 0))
            yield KinesisPage(records, not full and not behind, iterator is None, behind)
            size = sum(len(record.data) for record in records)
            due = asked_at + max(_PER_REQUEST, size * _PER_BYTE)
            time.sleep(max(0.0, due - time.monotonic()))

    def keeps(self, shard: str, sequence: str) -> bool:
        """Returns whether a record is still there; retention removes the oldest ones."""
        begin = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": sequence}
        for page in self.pages(shard, begin, 1):
            if page.records or page.at_tip:
                return any(record.sequence == sequence for record in page.records)
        return False

    def _iterator(self, shard: str, begin: Mapping[str, Any]) -> str | None:
        with translate_errors(f"cannot read shard {shard} of {self._title}"), failing():
            answer = self._client.get_shard_iterator(StreamName=self._name, ShardId=shard, **begin)
        iterator: str | None = answer.get("ShardIterator")
        return iterator

    def _records(self, shard: str, iterator: str, most: int) -> Mapping[str, Any]:
        """One answer; waits where other readers have used up what the shard gives."""
        until, pause = time.monotonic() + _PATIENCE, _PER_REQUEST
        with translate_errors(f"cannot read shard {shard} of {self._title}"):
            while True:
                try:
                    with failing():
                        answer: Mapping[str, Any] = self._client.get_records(
                            ShardIterator=iterator, Limit=most
                        )
                        return answer
                except KinesisFailure as failure:
                    if failure.code == EXPIRED:
                        raise _Expired from None
                    if failure.code not in THROTTLED or time.monotonic() > until:
                        raise
                time.sleep(pause)
                pause = min(2 * pause, 5.0)


class _Expired(Exception):
    """The iterator was too old: whoever read on slowly asks for another one."""


def _shard(found: Mapping[str, Any]) -> Shard:
    parents = (found.get("ParentShardId"), found.get("AdjacentParentShardId"))
    closed = "EndingSequenceNumber" in found["SequenceNumberRange"]
    ends = (found["HashKeyRange"][name] for name in ("StartingHashKey", "EndingHashKey"))
    present = tuple(parent for parent in parents if parent)
    return Shard(found["ShardId"], present, closed, HashKeys(*map(int, ends)))


def _record(found: Mapping[str, Any]) -> KinesisRecord:
    arrived: datetime = found["ApproximateArrivalTimestamp"]
    return KinesisRecord(
        found["SequenceNumber"],
        found["PartitionKey"],
        found["Data"],
        round(arrived.timestamp() * 1_000),
    )


def _client(source: KinesisSourceOptions) -> Any:
    keys = None
    if source.access_key and source.secret_access_key:
        keys = source.access_key.get_secret_value(), source.secret_access_key.get_secret_value()
    return _connect(os.getpid(), source.known_region, source.endpoint, keys)


@lru_cache(maxsize=16)
def _connect(
    process: int,  # noqa: ARG001 - sockets are not shared with a process that was forked
    region: str | None,
    endpoint: str | None,
    keys: tuple[str, str] | None,
) -> Any:
    """A client for all streams of a region; making one takes longer than most requests."""
    from botocore.config import Config
    from botocore.session import get_session

    return get_session().create_client(
        "kinesis",
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=keys[0] if keys else None,
        aws_secret_access_key=keys[1] if keys else None,
        config=Config(
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=_THREADS,
            retries={"mode": "standard", "total_max_attempts": 2},
        ),
    )
