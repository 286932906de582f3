"""Lags of branches behind the ends of their topics, and the age of what they have not read."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dataflow_assets.connectors.kafka.peek import KafkaSeen, Peek, Where
from dataflow_assets.connectors.kafka.topics import Offsets
from dataflow_assets.contracts import Lag, Positions, oldest

SECONDS = 5.0  # in which the oldest unread records are looked at: a broker that is well takes 0.01


@dataclass(frozen=True)
class UnreadRecords:
    """One branch. `unread`: by partition the first record there is that it has not read."""

    topic: str
    records: int
    unread: Offsets
    ends: Positions

    @classmethod
    def of(cls, topic: str, begins: Offsets, lows: Offsets, ends: Offsets) -> UnreadRecords:
        """A branch that goes on at `begins`."""
        unread = {p: max(begin, lows[p]) for p, begin in begins.items() if begin < ends[p]}
        records = sum(ends[p] - begins[p] for p in unread)
        return cls(topic, records, unread, {str(p): end for p, end in sorted(ends.items())})

    @property
    def places(self) -> dict[Where, int]:
        return {(self.topic, partition): offset for partition, offset in self.unread.items()}


def with_ages(peek: Peek, branches: Sequence[UnreadRecords]) -> list[Lag]:
    """Each branch with the age of its oldest unread record; 0.0 where only markers are left.

    One consumer looks at all of them, for so long together. A partition that it has not reached
    by then is left out: that its oldest record is 0 seconds old would be a claim.
    """
    deadline = time.monotonic() + SECONDS
    ages: dict[tuple[Where, int], float] = {}
    for places in _rounds(branch.places.items() for branch in branches):
        seen = peek.look_at(places, max(0.0, deadline - time.monotonic()))
        ages |= {(where, places[where]): age for where, age in _ages(seen, time.time())}
    return [_lag(branch, ages) for branch in branches]


def _lag(branch: UnreadRecords, known: Mapping[tuple[Where, int], float]) -> Lag:
    unread = {str(p): ((branch.topic, p), offset) for p, offset in branch.unread.items()}
    ages = {p: known.get(unread[p]) if p in unread else 0.0 for p in branch.ends}
    looked_at = {partition: age for partition, age in ages.items() if age is not None}
    return Lag(branch.records, oldest(ages.values()), branch.ends, partitions=looked_at)


def _rounds(wanted: Iterable[Iterable[tuple[Where, int]]]) -> list[dict[Where, int]]:
    """A consumer reads a partition from one offset at a time; branches may want several."""
    rounds: list[dict[Where, int]] = []
    for where, offset in (each for places in wanted for each in places):
        free = (one for one in rounds if one.get(where, offset) == offset)
        free_round = next(free, None)
        if free_round is None:
            rounds.append({where: offset})
        else:
            free_round[where] = offset
    return rounds


def _ages(seen: Mapping[Where, Sequence[KafkaSeen]], now: float) -> Iterator[tuple[Where, float]]:
    for where, records in seen.items():
        if not records:
            yield where, 0.0
        elif (stamp := records[0].timestamp) >= 0:
            yield where, max(0.0, now - stamp / 1000)
