"""The position of a reader of a stream: how far it has come in each shard.

The position of the stream is one JSON object. What a span adds is such an object too, with the
shards that it reads: the checkpoint has the others already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from dataflow_assets.errors import PermanentError
from dataflow_assets.records.decoding import decode_json


class ShardPosition(
    msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """In one shard; the default is before its oldest record. Times are ms since 1970."""

    sequence_number: str = ""
    """The last record that was read."""
    begin: int = 0
    """As long as none was read: from the first record on that arrived then or later."""
    read: int = 0
    """All that had arrived by then was read: what retention removes of it is no loss."""
    finished: bool = False
    """The shard is closed, and was read to its end."""

    @property
    def iterator(self) -> Mapping[str, Any]:
        """The arguments of `GetShardIterator` for what comes next."""
        if self.sequence_number:
            return {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "StartingSequenceNumber": self.sequence_number,
            }
        if self.begin:
            moment = datetime.fromtimestamp(self.begin / 1_000, UTC)
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
        return {"ShardIteratorType": "TRIM_HORIZON"}

    @property
    def known_until(self) -> int:
        """The time before which all was read, or is not wanted; 0 where nothing was read yet."""
        return max(self.read, self.begin)

    @property
    def place(self) -> tuple[bool, int, int]:
        """For comparisons: what is greater has read more."""
        return self.finished, int(self.sequence_number or 0), self.begin

    def has(self, sequence_number: str) -> bool:
        return self.finished or int(sequence_number) <= int(self.sequence_number or 0)


class StreamPosition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """In all shards of a stream; the default is before the oldest record of each."""

    shards: dict[str, ShardPosition] = {}
    """By the id of the shard. A shard is read once those that it was made of are finished."""
    begin: int = 0
    """Shards that are missing are read from the first record on that arrived then or later, in ms
    since 1970 by the clock of the service; 0: from their oldest one."""
    visible: int = 0
    """Of an end alone: behind all that could be read then, in ms since 1970 by the clock of the
    reader. The service names no last record, so only reading tells whether somebody has come there.
    """

    @classmethod
    def parse(cls, text: object) -> StreamPosition:
        """Returns what `text` wrote; None for the beginning. PermanentError for anything else."""
        try:
            return decode_json(str(text or "{}"), cls)
        except msgspec.MsgspecError:
            raise PermanentError(f"{text} is not a position in a Kinesis stream") from None

    @property
    def text(self) -> str:
        return msgspec.json.encode(self, order="sorted").decode()

    def of(self, shard: str) -> ShardPosition:
        return self.shards.get(shard) or ShardPosition(begin=self.begin or self.visible)

    @property
    def finished_shards(self) -> frozenset[str]:
        return frozenset(name for name, one in self.shards.items() if one.finished)

    def then(self, added: StreamPosition) -> StreamPosition:
        return StreamPosition({**self.shards, **added.shards}, self.begin or self.visible)

    def without(self, gone: Collection[str]) -> StreamPosition:
        """Without shards that are no longer there."""
        shards = {name: one for name, one in self.shards.items() if name not in gone}
        return StreamPosition(shards, self.begin)

    def lags(self, other: StreamPosition) -> bool:
        """Returns whether the other one has read more of a shard."""
        return any(self.of(name).place < one.place for name, one in other.shards.items())
