"""Promises that only some sessions of sources make, beside `SourceSession`.

A session that can names the class among its bases, and the file in the comment above the class asks
for it by `isinstance`. What sources can is in `declared`, how records are read in `reading`, how
many sources are looked at in `looking`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from dataflow_assets.contracts.slices import Limit, PartSlice, Positions


# runs/begin.py
class ReplansParts(ABC):
    """A session that can cut the parts of an unfinished span into smaller ones."""

    @abstractmethod
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        """The borders of parts that have the rows of this part together, each within the limit.

        Called by the driver for each part of an unfinished span, before it is read again.

        Args:
            piece: a part that was recorded and not committed.
            limit: the most records and bytes of one part.

        Returns:
            Borders for `PartSlice.part`; the part's own border alone where it stays as it is.

        Raises:
            Outdated: the part cannot be read any more as it was planned. Where nothing of its span
                is committed, the driver drops the span and plans again; else the branch ends with
                this error.
        """


# runs/begin.py
class RenewsParts(ReplansParts):
    """A session whose parts may be replaced by those of a later state."""

    @abstractmethod
    def renew(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        """Replacement borders for a branch that upserts, where storing a row twice is harmless.

        Called where `smaller` raises Outdated: parts of a later state will do, if what follows the
        span makes up for the difference.

        Args:
            piece: a part that was recorded and not committed.
            limit: the most records and bytes of one part.

        Returns:
            As `smaller`; none where the rows are in the parts that another one was replaced by.

        Raises:
            Outdated: as `smaller`.
        """

    def upto(self, piece: PartSlice) -> str:
        """The position after the span of a part, as this session reads the part.

        Called by the driver for each part of an unfinished span, before it is read again; recorded
        first, so that a run that dies leaves a record of what it has read.

        Args:
            piece: a part that was recorded and not committed.

        Returns:
            Another position than was recorded where less is read of the part by now.
        """
        return piece.upto


# runs/start_positions.py
class ReloadsTables(ABC):
    """A session that can load the rows of single tables again."""

    @abstractmethod
    def again(self, positions: Positions, tables: Sequence[str], *, upserts: bool) -> Positions:
        """Positions from which the rows of some tables are loaded again, and all goes on else.

        Called by `dataflow reset --table`, by a run that is asked to `reload` tables, and at the
        beginning of a run where the trait `loads_each_run` is set.

        Args:
            positions: of a branch.
            tables: their names, as the manifest may say them; none: all of them.
            upserts: whether the branch's sink matches rows by a key, so that changes before the
                load may come as well.

        Raises:
            PermanentError when the source has no such tables.
        """

    @abstractmethod
    def is_load(self, piece: PartSlice) -> bool:
        """Returns whether a part holds rows as of one moment, from which on changes are followed.

        Called at the beginning of a run that is to load tables again, for each part of a span that
        an earlier run has left unfinished: a load that begins again would miss what was deleted
        since that moment.

        Args:
            piece: as it was recorded.
        """


# runs/start_positions.py
class TakesOverPositions(ABC):
    """A session whose positions others may have stored."""

    @abstractmethod
    def take_over(self, known: Positions) -> Positions:
        """Returns where a flow without a checkpoint begins that another program has driven so far.

        Called by the driver once, instead of `start`, with what `TakesOver.inheritance` gave.

        Args:
            known: a position for each partition whose position is stored with its rows; it wins.

        Returns:
            A position for every partition that there is now.

        Raises:
            PermanentError where `known` cannot be about this topic or table; TransientError when
            the source cannot be reached.
        """

    @abstractmethod
    def understands(self, positions: Positions) -> bool:
        """Returns whether positions of a checkpoint are of a source of this kind.

        Called by the driver once, when a branch with a checkpoint opens: a flow of the same name
        may have had another source when the checkpoint was written.

        Args:
            positions: those that outlast a span, at least one.
        """


# runs/take_over.py
class AdoptsCheckpoints(ABC):
    """A session that goes on where the DataFlow Operator has stopped."""

    @abstractmethod
    def adopt(self, document: Mapping[str, Any]) -> Positions:
        """Positions from a checkpoint of the DataFlow Operator.

        Called by `dataflow reset --checkpoint`.

        Args:
            document: the object of this source's type in the operator's checkpoint.

        Raises:
            PermanentError when it is no such checkpoint.
        """


# runs/attempt.py
class FollowsBranches(ABC):
    """A session that must know where all branches are before it delivers anything."""

    @abstractmethod
    def begin_after(self, positions: Sequence[Positions]) -> None:
        """Learns where the branches are that are going to read.

        Called by the driver once for each attempt, when its branches are open, before `plan`.

        Args:
            positions: of the checkpoint of each open branch, finished parts among them; a branch
                that is suspended is left out.

        Raises:
            PermanentError where the source cannot serve all of them.
        """


# runs/attempt.py
class HoldsLog(ABC):
    """A session at whose source others may wait for `acknowledge`."""

    @property
    @abstractmethod
    def holds(self) -> bool:
        """Returns whether others wait for what `acknowledge` lets go, such as a lock.

        Asked by the driver after each commit. While it is True, `acknowledge` is called after each
        micro-batch that every branch has, in a lane too.
        """
