"""Where a source of a topic begins and ends, where its declaration says so by offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Begin:
    """The first offsets of a flow without a checkpoint, by partition.

    Other partitions begin where the consumer group is, else at the earliest record.
    """

    offsets: Mapping[int, int]


@dataclass(frozen=True)
class End:
    """Where a flow ends, for ever: what lies behind it is never read."""

    offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition the first offset that is not read; a partition that is not named is not read."""
    millis: int | None = None
    """Instead: each partition ends at its first record of this time or later."""
