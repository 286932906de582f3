"""Turns of branches: branches that stand at the same position share one read.

A branch that is behind the others catches up alone, to where they stand; then they go on together.
Which of two positions is behind the other only the source can tell. Who shares a read is decided
without the source: text that differs is another position, whatever the source makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dataflow_assets.contracts import Position, Positions, SinkSession, lasting
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch

Lags = Callable[[str, Position | None, Position], bool]
"""`SourceSession.lags`."""


@dataclass(frozen=True)
class OpenBranch:
    """An open branch."""

    branch: Branch
    session: SinkSession

    @property
    def positions(self) -> Positions:
        return lasting(self.session.checkpoint.positions)


@dataclass(frozen=True)
class Turn:
    """The branches that read next, from where, and how far at most."""

    branches: tuple[OpenBranch, ...]
    after: Positions
    until: Positions | None
    alone: bool
    """True: others stand elsewhere and wait."""

    @contextmanager
    def blame(self, branches: Sequence[OpenBranch]) -> Iterator[None]:
        """Names a branch in the error where only some of them cannot go on from their position."""
        try:
            yield
        except PermanentError as error:
            if len(self.branches) < len(branches):
                error.branch = self.branches[0].branch.id
            raise


def lowest(found: Iterable[Positions], lags: Lags) -> Positions:
    """The lowest position of each partition: what every branch has."""
    return _extreme(found, lags)


def next_turns(branches: Sequence[OpenBranch], stops: Positions, lags: Lags) -> list[Turn]:
    """The branch that is behind, with those at its side.

    Where nobody is, the turns of all, one for each position: the first that finds something to
    read. Where the flow stops at a record, none is behind that stands there.
    """
    places = [opened.positions for opened in branches]
    furthest = _extreme(places, lambda partition, one, other: lags(partition, other, one))
    front = nearer(furthest, stops, lags) or {}
    late = [s for s in branches if any(lags(p, s.positions.get(p), e) for p, e in front.items())]
    if not late:
        return [
            Turn(side, lowest([s.positions for s in side], lags), None, alone=False)
            for side in _together(branches)
        ]
    after = dict(late[0].positions)
    side = tuple(s for s in late if dict(s.positions) == after)
    return [Turn(side, after, front, alone=len(side) < len(branches))]


def _together(branches: Sequence[OpenBranch]) -> Iterable[tuple[OpenBranch, ...]]:
    sides: dict[frozenset[tuple[str, Position]], tuple[OpenBranch, ...]] = {}
    for opened in branches:
        texts = frozenset(at for at in opened.positions.items() if isinstance(at[1], str))
        sides[texts] = (*sides.get(texts, ()), opened)
    return sides.values()


def nearer(one: Positions | None, other: Positions | None, lags: Lags) -> Positions | None:
    if one is None or other is None:
        return other if one is None else one
    return {p: _lower(p, end, other.get(p, end), lags) for p, end in one.items()}


def _lower(partition: str, one: Position, other: Position, lags: Lags) -> Position:
    return one if lags(partition, one, other) else other


def _extreme(
    places: Iterable[Positions], wins: Callable[[str, Position, Position], bool]
) -> Positions:
    extreme: dict[str, Position] = {}
    for positions in places:
        for partition, position in positions.items():
            best = extreme.setdefault(partition, position)
            if wins(partition, position, best):
                extreme[partition] = position
    return extreme
