"""The number of records that fit into a number of bytes: guessed from a look at the next ones.

A guess: where much larger records follow, the task stops at its bytes, and the rest is planned
again from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from dataflow_assets.connectors.kafka.peek import KafkaSeen
from dataflow_assets.contracts import Limit

LARGEST = 1024 * 1024  # bytes; the broker's own bound for a batch of records
Look = Callable[[Mapping[int, int], float], dict[int, list[KafkaSeen]]]

BELIEVED_SECONDS = 5.0
GROWTH = 16  # times larger than they were: records of a backlog are judged again, a few are not
LOOK_SECONDS = 2.0  # without an answer a slice has records of any size, maxRecordsPerBatch


class Sizes:
    """Average sizes of the records ahead, by partition; looked at only when they matter."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._average: dict[int, float] = {}
        self._planned: dict[int, tuple[int, int]] = {}
        self._taken = float("-inf")

    def most(self, ahead: Mapping[int, tuple[int, int]], limit: Limit) -> dict[int, int]:
        """The most records to take from each partition; `ahead` holds (next offset, end)."""
        safe = limit.bytes // LARGEST
        long = {p: start for p, (start, end) in ahead.items() if end - start > safe}
        if long and (
            self._was_misjudged(long) or any(self._doubtful(p, *ahead[p], limit) for p in long)
        ):
            seen = self._look(long, LOOK_SECONDS)
            for partition in long:  # one that has not answered is not waited for again
                average = self._average.get(partition, 0.0)
                sizes = [record.size for record in seen.get(partition, ())]
                self._average[partition] = sum(sizes) / len(sizes) if sizes else average
            self._taken = time.monotonic()
        most = {p: self._fitting(p, limit) if p in long else limit.records for p in ahead}
        self._planned = {p: (start, min(start + most[p], end)) for p, (start, end) in ahead.items()}
        return most

    def known_bytes(self, records: Mapping[int, int]) -> float:
        """The bytes of so many records by partition, as far as any were looked at."""
        return sum(count * self._average.get(p, 0.0) for p, count in records.items())

    def _doubtful(self, partition: int, start: int, end: int, limit: Limit) -> bool:
        """Nothing is known, or nothing of late and the records would not fit if they have grown."""
        average = self._average.get(partition)
        if average is None:
            return True
        stale = time.monotonic() - self._taken > BELIEVED_SECONDS
        return stale and (end - start) * average * GROWTH > limit.bytes

    def _was_misjudged(self, positions: Mapping[int, int]) -> bool:
        """A slice was not read to its end: its records were larger than the ones looked at."""
        spans = ((self._planned.get(p), position) for p, position in positions.items())
        return any(span is not None and span[0] < at < span[1] for span, at in spans)

    def _fitting(self, partition: int, limit: Limit) -> int:
        average = self._average.get(partition, 0.0)
        return min(limit.records, max(1, int(limit.bytes / max(average, 1.0))))
