"""One slice while it is read by the plain client: where it has come to, and what it holds."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, Message

from dataflow_assets.connectors.kafka.errors import meaning
from dataflow_assets.connectors.kafka.headers import headers
from dataflow_assets.connectors.kafka.peek import SCHEMA
from dataflow_assets.contracts.reading import Asked
from dataflow_assets.errors import DataflowError, TransientError

BATCH_BYTES = 8 * 1024 * 1024  # of a batch; decoded, it takes several times as much
Place = tuple[str, int]
"""Topic and partition."""


class SmallSlice:
    """Takes the records of one slice in order, and nothing that lies outside of it.

    `over`: nothing more comes. Then there is an `error`, or all records of the slice have come.
    """

    def __init__(self, number: int, topic: str, asked: Asked) -> None:
        self.number, self.asked = number, asked
        self.planned = topic, asked.identity
        self.place: Place = topic, int(asked.piece.partition)
        self.restart()

    def restart(self) -> None:
        """Forgets what it holds: it is read again from its beginning."""
        self.error: DataflowError | None = None
        self.following = self.asked.piece.after  # what lies below has come, or is a gap
        self._end: int | None = None
        self.held = 0  # bytes
        self._batches: deque[pa.RecordBatch] = deque()
        self._open = _KafkaColumns(self.asked)

    @property
    def over(self) -> bool:
        return self.error is not None or self.following >= self.asked.piece.upto

    @property
    def ready(self) -> bool:
        return bool(self._batches)

    def take(self, message: Message) -> bool:
        """The next record, or one behind the slice, which ends it. False where it is neither."""
        offset = message.offset()
        if offset is None or offset < self.following or self.over:
            return False
        if offset < self.asked.piece.upto:
            self._hold(self._open.add(offset, message))
        self.following = offset + 1
        return True

    def take_all(self, messages: Sequence[Message]) -> None:
        """Records of its partition in their order, none of them an error; those it wants."""
        offsets = [message.offset() or 0 for message in messages]
        begin = bisect_left(offsets, self.following)
        end = bisect_left(offsets, self.asked.piece.upto, begin)
        while begin < end:
            cut = begin + _fitting(messages[begin:end], BATCH_BYTES - self._open.size)
            self._hold(self._open.add_all(offsets[begin:cut], messages[begin:cut]))
            begin = cut
        self.following = max(self.following, offsets[-1] + 1)

    def skip(self, low: int) -> None:
        """Goes on at this offset: what lies below it is lost."""
        self.following = max(self.following, low)

    def reach(self, end: int | None) -> bool:
        """The log ends at this offset for now: nothing else lies below it."""
        self._end = end
        news = end is not None and end > self.following
        self.following = max(self.following, end or 0)
        return news

    def silence_error(self, bootstrap: str, seconds: float) -> TransientError:
        """The error where nothing has come for so long, although the topic is there."""
        if self._end is None:
            return self._error(bootstrap, f"no answer for {seconds:g} seconds")
        return self._error(
            bootstrap,
            f"the log ends at offset {self._end}, but reached {self.asked.piece.upto} when the "
            "micro-batch was planned: a new leader is behind, or the log was truncated",
        )

    def failure(self, bootstrap: str, error: KafkaError) -> DataflowError:
        """Returns what the client says; the next plan finds out what is lost, if anything is."""
        cause = meaning(error, self._where(bootstrap))
        if isinstance(cause, TransientError):
            return self._error(bootstrap, error.str())
        return cause

    def _error(self, bootstrap: str, reason: str) -> TransientError:
        return TransientError(
            f"{self._where(bootstrap)}: {reason}; the flow reads again from its checkpoint"
        )

    def _where(self, bootstrap: str) -> str:
        topic, partition = self.place
        return (
            f"kafka {bootstrap}: reading {topic} partition {partition} from offset {self.following}"
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All that is held, and then the error, if there is one; nothing is held afterwards."""
        if self.error is None:
            self._seal()
            yield from self.full()
        if self.error is not None:
            raise self.error

    def full(self) -> Iterator[pa.RecordBatch]:
        while self._batches:
            batch = self._batches.popleft()
            self.held -= batch.nbytes
            yield batch

    def _hold(self, size: int) -> None:
        self.held += size
        if self._open.size >= BATCH_BYTES:
            self._seal()

    def _seal(self) -> None:
        if self._open.at:
            batch = self._open.batch()
            self.held += batch.nbytes - self._open.size
            self._batches.append(batch)
            self._open = _KafkaColumns(self.asked)


class _KafkaColumns:
    """The next records of a slice, column by column: only what is wanted is held."""

    def __init__(self, asked: Asked) -> None:
        self._asked, self.size = asked, 0
        self.at: list[int] = []
        self._wanted = {name: list[Any]() for name in _NAMES if name in {"body", *asked.columns}}

    def add(self, offset: int, message: Message) -> int:
        self.at.append(offset * self._asked.slices + self._asked.index)
        size = sum(self._put(name, message) for name in self._wanted)
        self.size += size
        return size

    def add_all(self, offsets: Sequence[int], messages: Sequence[Message]) -> int:
        slices, index = self._asked.slices, self._asked.index
        self.at += [offset * slices + index for offset in offsets]
        size = sum(self._put_all(name, messages) for name in self._wanted)
        self.size += size
        return size

    def _put_all(self, name: str, messages: Sequence[Message]) -> int:
        values = list(map(_VALUES[name], messages))
        self._wanted[name] += values
        return sum(map(_size, values)) if name == "headers" else _total(values)

    def _put(self, name: str, message: Message) -> int:
        value = _VALUES[name](message)
        self._wanted[name].append(value)
        return _size(value)

    def batch(self) -> pa.RecordBatch:
        schema = pa.schema([SCHEMA.field(name) for name in ("_at", *self._wanted)])
        arrays = [pa.array(self.at, pa.int64())]
        arrays += [pa.array(rows, schema.field(n).type) for n, rows in self._wanted.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fitting(messages: Sequence[Message], most: int) -> int:
    sizes = accumulate(map(len, messages))
    return next((n for n, size in enumerate(sizes, 1) if size >= most), len(messages))


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(len(each["key"]) + len(each["value"] or b"") for each in value)
    return len(value) if isinstance(value, bytes) else 8


def _total(values: Sequence[Any]) -> int:
    if not values or isinstance(values[0], int):
        return 8 * len(values)
    return sum(map(len, filter(None, values))) + 8 * len(values)


def _headers(message: Message) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in headers(message)]


_LAST = (2**63 - 1) // 1000  # milliseconds that are a number of microseconds in 64 bits
_VALUES = {
    "body": Message.value,
    "key": Message.key,
    "timestamp": lambda message: min(message.timestamp()[1], _LAST) * 1000,
    "headers": _headers,
}
_NAMES = tuple(_VALUES)  # in the order of the frame
