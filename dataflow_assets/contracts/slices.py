"""Positions, and what one micro-batch covers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

Position = int | str
Positions = Mapping[str, Position]

PART = "part-"  # begins the names of the parts of one span; no partition of a source is called so


def lasting(positions: Positions) -> Positions:
    """The positions that outlast a span.

    Called on the driver, by a run and by `dataflow preview`.

    Args:
        positions: of a checkpoint.

    Returns:
        The positions without those of the parts of a span that is not finished.
    """
    return {name: at for name, at in positions.items() if not name.startswith(PART)}


def fold_parts(positions: Positions, partition: str) -> Position | None:
    """Returns where finished parts have come to: each carries the position after its whole span.

    Called by `SourceSession.fold` of sources with one position.

    Args:
        positions: of a checkpoint, finished parts among them.
        partition: the one partition of the source.

    Returns:
        The position after the parts; without parts that of the partition; None where there is
        neither.
    """
    parts = (at for name, at in positions.items() if name.startswith(PART))
    return next(parts, positions.get(partition))


@dataclass(frozen=True)
class OffsetSlice:
    """Offsets `after <= offset < upto` of one partition; may be committed as a prefix.

    Every row carries its offset, ascending and the same on every re-read. Offsets missing inside
    are normal (transaction markers, compaction).
    """

    partition: str
    after: int
    upto: int

    @property
    def empty(self) -> bool:
        """Returns whether there is nothing to read.

        Returns:
            True when there is nothing between the bounds.
        """
        return self.after >= self.upto


@dataclass(frozen=True)
class PartSlice:
    """One part of a bounded read: committed whole, by compare-and-set `after -> upto`.

    `part` describes the borders for the source; a crash repeats the part with the same borders.
    """

    partition: str
    after: str | None
    upto: str
    part: str = ""

    @property
    def empty(self) -> bool:
        """Returns whether there is nothing to read.

        Returns:
            True when the part is committed already.
        """
        return self.after == self.upto


Slice = OffsetSlice | PartSlice


@dataclass(frozen=True)
class Cut:
    """How the parts of an unfinished span that are left are read now."""

    borders: Mapping[PartSlice, Sequence[str]]
    """What the source calls the parts that take the place of a part; itself where it stays."""
    gone: frozenset[PartSlice] = frozenset()
    """Parts that cannot be read as they were: others replace them, even if they are stored. Only of
    a sink that upserts."""
    upto: Mapping[PartSlice, str] = field(default_factory=dict)
    """The position after the span, of parts that come to another one than was planned."""

    def __call__(self, part: PartSlice) -> tuple[PartSlice, ...]:
        """Called by sessions in `divide`, on the driver, once for each part that is left.

        Returns:
            The parts to read instead, under its own name: itself where it stays.
        """
        upto = self.upto.get(part, part.upto)
        borders = self.borders.get(part, (part.part,))
        return tuple(replace(part, upto=upto, part=border) for border in borders)


def divide(
    parts: Iterable[PartSlice], cut: Callable[[PartSlice], Sequence[PartSlice]]
) -> tuple[PartSlice, ...]:
    """Cuts the parts of an unfinished span that are not committed into smaller ones.

    Called by `SinkSession.divide`, on the driver.

    Args:
        parts: of the recorded span.
        cut: from a part to the parts that replace it, such as a `Cut`.

    Returns:
        All parts of the span. The smaller ones have numbers that no other part has: what an ordinal
        of the old part named is another row of theirs.
    """
    known = tuple(parts)
    following = 1 + max((int(part.partition.removeprefix(PART)) for part in known), default=-1)
    numbers, found = count(following), list[PartSlice]()
    for part in known:
        instead = (part,) if part.empty else tuple(cut(part))
        if instead == (part,):
            found.append(part)
        else:
            found += [replace(one, partition=f"{PART}{next(numbers)}") for one in instead]
    return tuple(found)


@dataclass(frozen=True)
class Span:
    """What one micro-batch covers. Slices are in the order of the source's partitions."""

    slices: tuple[Slice, ...]
    full: bool = False
    """A limit ended it: more is waiting already."""
    at: datetime | None = None
    """The time that steps call now, where a sink has recorded the span; None: when it is read."""
    whole: bool = False
    """A sink has recorded these offsets: they are read to their end, however many bytes that is."""
    planned: Positions | None = None
    """From where it was planned; None where a sink has recorded the span."""

    @classmethod
    def of_parts(cls, upto: str, parts: Iterable[str], *, full: bool = False) -> Span:
        """A span of one bounded read.

        Called by `SourceSession.plan` of sources that read parts.

        Args:
            upto: the position after the whole span, to which each part comes.
            parts: the borders of each part.
            full: a limit ended the span: more is waiting already.

        Returns:
            A span with a slice for each part.
        """
        slices = (PartSlice(f"{PART}{n}", None, upto, part) for n, part in enumerate(parts))
        return cls(tuple(slices), full)

    @property
    def empty(self) -> bool:
        """Returns whether there is nothing to read.

        Returns:
            True when no slice holds anything to read.
        """
        return all(piece.empty for piece in self.slices)

    @property
    def after(self) -> Positions:
        """The lower bounds.

        Returns:
            Where each partition is before the span; parts that are not begun are left out.
        """
        return {s.partition: s.after for s in self.slices if s.after is not None}

    @property
    def upto(self) -> Positions:
        """The upper bounds.

        Returns:
            Where each partition is once the span is done.
        """
        return {s.partition: s.upto for s in self.slices}


PARTS = 4
"""The most parts of a table, or stretches of a log, that one turn of a lane reads."""


@dataclass(frozen=True)
class Limit:
    """The most that one slice of a span may hold."""

    records: int = 1_000_000
    bytes: int = 64 * 1024 * 1024
    declared: Limit | None = None
    """What the flow allows, where a turn reads less; None: the same."""
