"""Where a flow is in its source: where it begins, how far the source goes, what comes next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from dataflow_assets.contracts.slices import Position, Positions
from dataflow_assets.errors import DataflowError, PermanentError, outcome


class SourcePositions(ABC):
    """The half of a `SourceSession` that is about positions: text or numbers that only it reads."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """The id of the topic or table itself: another id after it was re-created.

        Called by the driver once for each attempt, and by sensors.
        """

    @abstractmethod
    def start(self) -> Positions:
        """Returns where a flow without a checkpoint begins.

        Called by the driver once, when a branch opens that has no checkpoint.

        Returns:
            A position for every partition that there is now.

        Raises:
            TransientError when the source cannot be reached.
        """

    def take_over(self, known: Positions) -> Positions:
        """Returns where a flow without a checkpoint begins that another program has driven so far.

        Called by the driver once, instead of `start`, with what `SinkSession.inherited` gave.

        Args:
            known: a position for each partition whose position is stored with its rows; it wins.

        Returns:
            A position for every partition that there is now.

        Raises:
            PermanentError where `known` cannot be about this topic or table; TransientError when
            the source cannot be reached.
        """
        return {**self.start(), **known}

    @abstractmethod
    def seek(self, where: str) -> Positions:
        """Positions for a place that a person named.

        Called by the driver when a run rewinds (launchpad, `--from`, `--until`).

        Args:
            where: `earliest`, `latest`, or a time in ISO 8601.

        Returns:
            A position for every partition that there is now.

        Raises:
            PermanentError when `where` is none of these, or when the source has no times.
        """

    def understands(self, positions: Positions) -> bool:  # noqa: ARG002 - what overrides need
        """Returns whether positions of a checkpoint are of a source of this kind.

        Called by the driver once, when a branch with a checkpoint opens: a flow of the same name
        may have had another source when the checkpoint was written.

        Args:
            positions: those that outlast a span, at least one.

        Returns:
            By default True.
        """
        return True

    def rewound(self, chosen: Positions, before: Positions, *, stay: bool) -> Positions:  # noqa: ARG002 - what overrides need
        """The positions to store where a branch begins again.

        Called by the driver when a run rewinds (launchpad, `--from`), and where a topic that was
        recreated is read from its start, with what `seek` gave.

        Args:
            chosen: where it begins.
            before: what the branch had, parts of an unfinished span among it.
            stay: whether rows of the target stay, and everything is read again, so that rows of
                the same keys take their place.

        Returns:
            By default where it begins. A source may keep in them what it needs to remove other
            rows of the target, and what it has kept itself so far.
        """
        return chosen

    @abstractmethod
    def end(self) -> Positions:
        """Returns where each partition ends right now.

        Called by the driver once at the start of a run that has an end; sensors and lanes call
        `ends_together`.

        Returns:
            A position for every partition that there is now.

        Raises:
            TransientError when the source cannot be reached.
        """

    @classmethod
    def ends_together(cls, sessions: Sequence[Self]) -> list[Positions | DataflowError]:
        """The ends of many sources of equal `Source.shared`, asked at once where that can be.

        Called by whoever looks at many flows, every second or so: it must be cheap.

        Args:
            sessions: open ones, which nobody else uses meanwhile.

        Returns:
            Of each what `end` would have returned, or the error that it would have raised: what is
            wrong with one topic or table is no other's error.
        """
        return [outcome(one.end) for one in sessions]

    def begin_after(self, positions: Sequence[Positions]) -> None:  # noqa: B027 - most need nothing
        """Learns where the branches are that are going to read.

        Called by the driver once for each attempt, when its branches are open, before `plan`.

        Args:
            positions: of the checkpoint of each open branch, finished parts among them; a branch
                that is suspended is left out.

        Raises:
            PermanentError where the source cannot serve all of them.
        """

    def closed(self, after: Positions) -> frozenset[str]:  # noqa: ARG002 - what overrides need
        """The partitions of which nothing more is ever read, since their declaration ends there.

        Called by a query with windows on the driver, once for each micro-batch.

        Args:
            after: what is done.

        Returns:
            Names of partitions; none by default.

        Raises:
            TransientError when the source cannot be reached.
        """
        return frozenset()

    def lags(self, partition: str, position: Position | None, end: Position) -> bool:  # noqa: ARG002 - what overrides need
        """True while a position of a partition has not reached `end`.

        Called by the driver in each turn of the loop, and by sensors. Integers are compared. What
        else a position says only its source knows: without an override two that differ lag
        behind each other.

        Args:
            partition: its name.
            position: None for nothing yet.
            end: as `end` returned it.
        """
        if isinstance(position, int) and isinstance(end, int):
            return position < end
        return position != end and not (position is None and end == 0)

    def fold(self, positions: Positions) -> Positions:
        """Finished parts folded into the positions to keep; sources with offsets keep all.

        Called by `SinkSession.finish`, inside the commit.

        Args:
            positions: those of the checkpoint and of the finished parts.

        Returns:
            The positions that the checkpoint stores.
        """
        return positions

    def adopt(self, document: Mapping[str, Any]) -> Positions:  # noqa: ARG002 - what overrides need
        """Positions from a checkpoint of the DataFlow Operator.

        Called by `dataflow reset --checkpoint`.

        Args:
            document: the object of this source's type in the operator's checkpoint.

        Returns:
            Positions to start from.

        Raises:
            PermanentError when it is no such checkpoint.
        """
        raise PermanentError("this source takes over no checkpoint of the DataFlow Operator")

    def again(self, positions: Positions, tables: Sequence[str], *, upserts: bool) -> Positions:  # noqa: ARG002 - what overrides need
        """Positions from which the rows of some tables are loaded again, and all goes on else.

        Called by `dataflow reset --table`, by a run that is asked to `reload` tables, and at the
        beginning of a run where `Source.loads_each_run`.

        Args:
            positions: of a branch.
            tables: their names, as the manifest may say them; none: all of them.
            upserts: whether the branch's sink matches rows by a key, so that changes before the
                load may come as well.

        Returns:
            The positions to store.

        Raises:
            PermanentError when the source has no such tables.
        """
        raise PermanentError(
            "this source loads no single table again; begin again with start: earliest"
        )
