"""A source: what a manifest declares, and the driver's session with it.

What only some sources have is a class of its own in `capabilities`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dataflow_assets.contracts.checkpoint import Lag
from dataflow_assets.contracts.connector import Address, Connector
from dataflow_assets.contracts.slices import Limit, Position, Positions, Slice, Span

NullMessages = Literal["reject", "skip", "delete"]
NewColumnRule = Literal["reject", "fail", "add", "ignore"]
"""What becomes of a column that the table of a source has and the target lacks."""


@dataclass(frozen=True)
class SourceTraits:
    """Facts that the options of a source tell, without network and before secrets are in place."""

    null_messages: NullMessages = "reject"
    """What a null message means: an error, nothing, or the deletion of its key. Tables have none.
    """
    sends_deletes: str = ""
    """By what rows are deleted in targets (an option, or its type), for notes; empty: by nothing.
    """
    rereads: str = ""
    """The option by which rows may come again, so that sinks must upsert; empty: they come once."""
    new_columns: NewColumnRule = "reject"
    """What becomes of a column that the source delivers and a target lacks. `reject`: what steps
    have made of a row with the column is a rejected record; without steps the branch stops. `fail`:
    the branch stops. `add`: the target gets the column, and the micro-batch is read again.
    `ignore`: the column is left out."""
    absent_metadata: frozenset[str] = frozenset()
    """The keys of `metadata_keys` that records do not have with these options."""
    poll_seconds: float = 0.0
    """The least seconds between two questions for what is new; 0 for no such bound."""
    incremental: bool = True
    """True: what is new can be read without all that was read before, and a lane drives the flow
    together with others. False: runs of the flow's own job do."""
    keeps_running: bool = False
    """True: only a run of the flow can know that its source has something new, so that a lane that
    drives it does not end because nothing came. False: a session that is only asked knows."""
    loads_each_run: bool = False
    """True: each run begins with loading all tables again (`ReloadsTables.again`)."""
    reads_back: bool = True
    """True: what a sink of the same address writes is read by this source."""
    replays: bool = True
    """False: what was rejected of it is not what its records were, and cannot be put back."""
    reserved: str = ""
    """What of its server only one flow may read, such as a replication slot, for people: two flows
    of which it is the same are refused. Empty where any number of flows may read the same."""
    also_reads: tuple[Address, ...] = ()
    """What it reads beside `address`, as a UNION ALL of several tables does."""


class Source(Connector):
    """A declared source. It travels to the tasks, which read by it."""

    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "messages"
    """`messages`: `SparkFrames` or `ReadsMessages`. Else the pass itself reads by `ReadsParts`:
    `columns` are typed rows, `entries` messages in parts, a column `body` and what is known
    beside it."""
    metadata_keys: ClassVar[Mapping[str, str]] = {}
    """For docs/connectors: each key of a record's metadata, and what it holds."""
    metadata_columns: ClassVar[frozenset[str]] = frozenset()
    """Metadata that a frame or batches deliver as columns, on request."""

    @property
    def traits(self) -> SourceTraits:
        """Returns what the options come to. Read when manifests are loaded, and everywhere else."""
        return SourceTraits()

    def metadata(self, piece: Slice) -> dict[str, Any]:  # noqa: ARG002 - what overrides need
        """The metadata that all records of a slice share.

        Called inside tasks, once for each slice.

        Args:
            piece: the slice.

        Returns:
            Values by the keys of `metadata_keys`; those of single records are columns instead.
        """
        return {}

    @abstractmethod
    def open(self, flow: str) -> SourceSession:
        """Connects.

        Called by the driver once for each attempt of a run, and by sensors.

        Args:
            flow: `namespace/name`, under which a server may keep something for the flow.

        Raises:
            TransientError when the source cannot be reached; PermanentError when a person must act.
        """


class SourceSession(ABC):
    """The driver's connection to a source: fixes bounds first, then names what to read.

    `Source.open` makes one for each attempt of a run, and one for each flow in the process of the
    sensors. It is used by one thread at a time. Positions are text or numbers that only it reads.
    """

    @property
    @abstractmethod
    def identity(self) -> str:
        """The id of the topic or table itself: another id after it was re-created.

        Called by the driver once for each attempt, and by sensors.
        """

    @abstractmethod
    def start(self, where: str | None = None) -> Positions:
        """Returns where to begin.

        Called by the driver when a branch opens that has no checkpoint, and when a run rewinds or
        ends where a person says (launchpad, `--from`, `--until`).

        Args:
            where: `earliest`, `latest`, or a time in ISO 8601; None for what the options say.

        Returns:
            A position for every partition that there is now.

        Raises:
            PermanentError when `where` is none of these, or when the source has no times;
            TransientError when the source cannot be reached.
        """

    @abstractmethod
    def end(self) -> Positions:
        """Returns where each partition ends right now.

        Called by the driver once at the start of a run that has an end, and by whoever looks at
        many flows, where the session is no `EndsOfMany`.

        Returns:
            A position for every partition that there is now.

        Raises:
            TransientError when the source cannot be reached.
        """

    @abstractmethod
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        """The next span after `after`, its upper bounds fixed now and not beyond `until`.

        Called by the driver once for each micro-batch, before anything is read.

        Args:
            after: what is done. A partition that is missing starts at its beginning, and what is
                gone of a partition that was added since is lost.
            limit: the most records and bytes of one slice.
            until: positions that the run must not pass; None for no such bound.

        Returns:
            A span with a slice for every partition, the empty ones too.

        Raises:
            PermanentError naming what was lost when the next offset is gone, unless the source says
            to continue; TransientError when the source cannot be reached.
        """

    def lags(self, partition: str, position: Position | None, end: Position) -> bool:  # noqa: ARG002 - what overrides need
        """True while a position of a partition has not reached `end`.

        Called by the driver in each turn of the loop, and by sensors. Integers are compared. What
        else a position says only its source knows: without an override two that differ lag behind
        each other.

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

    @abstractmethod
    def lag(self, after: Positions) -> Lag:
        """Returns how far `after` is behind the ends.

        Called by the driver with its reports, at most every five seconds and in a lane every half
        minute, and by the lag sensor.

        Args:
            after: positions of one branch.

        Returns:
            Records, seconds since the oldest unread record, and the ends.
        """

    def acknowledge(self, upto: Positions) -> None:  # noqa: B027 - most keep nothing of their readers
        """Reports to the server what every branch has committed; by default there is nothing to.

        Called by the driver after micro-batches, in a lane at most every half minute unless the
        session `HoldsLog`, and at the end of a run. It may be repeated and may be skipped: no
        commit rests on it.

        Args:
            upto: the lowest position of all branches, by partition.
        """

    def close(self) -> None:  # noqa: B027 - some hold nothing but pooled connections
        """Frees the connection; safe twice. By default nothing is held.

        Called by whoever opened the session, on the same machine.
        """
