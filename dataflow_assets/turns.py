"""Whose turn it is: branches that stand at the same position share one read.

A branch that is behind the others catches up alone, to where they stand; then they go on together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataflow_assets.contracts import Position, Positions, SinkSession
from dataflow_assets.flow import Branch


@dataclass(frozen=True)
class Standing:
    """An open branch."""

    branch: Branch
    session: SinkSession

    @property
    def positions(self) -> Positions:
        """Where it stands."""
        return self.session.checkpoint.positions


@dataclass(frozen=True)
class Turn:
    """Who reads next, from where, and how far at most."""

    standings: tuple[Standing, ...]
    after: Positions
    until: Positions | None
    alone: bool
    """True: others stand elsewhere and wait."""


def lowest(standings: Sequence[Standing]) -> Positions:
    """Of each partition the lowest position: what every branch has."""
    return _extreme(standings, min)


def next_turn(standings: Sequence[Standing], stops: Positions) -> Turn:
    """The branch that is behind, with those at its side; everyone where nobody is.

    Where the flow stops at a record, none is behind that stands there.
    """
    front = nearer(_extreme(standings, max), stops) or {}
    behind = [s for s in standings if any(_lags(s, p, end) for p, end in front.items())]
    if not behind:
        return Turn(tuple(standings), lowest(standings), None, alone=False)
    after = dict(behind[0].positions)
    side = tuple(s for s in behind if dict(s.positions) == after)
    return Turn(side, after, front, alone=len(side) < len(standings))


def nearer(one: Positions | None, other: Positions | None) -> Positions | None:
    """Of each partition the lower bound of the two."""
    if one is None or other is None:
        return other if one is None else one
    return {p: _lower(end, other.get(p, end)) for p, end in one.items()}


def _lower(one: Position, other: Position) -> Position:
    return min(one, other) if isinstance(one, int) and isinstance(other, int) else one


def _lags(standing: Standing, partition: str, end: Position) -> bool:
    """Behind in this partition; positions of parts cannot be compared, only the source can."""
    position = standing.positions.get(partition, 0)
    return isinstance(end, int) and isinstance(position, int) and position < end


def _extreme(standings: Sequence[Standing], which: Callable[[int, int], int]) -> Positions:
    found: dict[str, Position] = {}
    for standing in standings:
        for partition, position in standing.positions.items():
            known = found.setdefault(partition, position)
            if isinstance(position, int) and isinstance(known, int):
                found[partition] = which(known, position)
    return found
