"""Promises that only sources and sinks of languages make, beside those in `contracts`.

A query with state, a pipeline, or a file of Kafka Connect needs them; no connector does. A class
names those that it keeps among its bases; the file in the comment above each asks for it by
`isinstance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dataflow_assets.contracts import Positions, Span, Target

if TYPE_CHECKING:  # a manifest is loaded without Spark
    from pyspark.sql import SparkSession


# runs/attempt.py
class PreparesSpans(ABC):
    """A session with something to do before a span is recorded, such as to compute its parts."""

    @abstractmethod
    def prepare(self, span: Span, spark: Callable[[], SparkSession]) -> Span:
        """Returns the span to record.

        Called by the driver once for each micro-batch, between `plan` and `SinkSession.begin`. What
        was prepared counts only once `begin` has recorded it: a crash, or a branch that has an
        unfinished span of its own, leaves it unused.

        Args:
            span: as `plan` made it, with the positions that it was planned from.
            spark: gives a live session; nobody makes one where it is not called.

        Raises:
            TransientError, PermanentError as `plan` does.
        """


# runs/start_positions.py
class RewindsTargets(ABC):
    """A session whose positions say what is to be removed from the target."""

    @abstractmethod
    def rewound(self, chosen: Positions, before: Positions, *, stay: bool) -> Positions:
        """The positions to store where a branch begins again.

        Called by the driver when a run rewinds (launchpad, `--from`), and where a topic that was
        recreated is read from its start, with what `start` gave.

        Args:
            chosen: where it begins.
            before: what the branch had, parts of an unfinished span among it.
            stay: whether rows of the target stay, and everything is read again, so that rows of
                the same keys take their place.

        Returns:
            Where it begins, with what removes other rows of the target.
        """


# runs/open_branches.py
class ChecksKeys(ABC):
    """A source whose rows of one key come in no order, so that the target must tell keys apart."""

    @abstractmethod
    def check_keys(self, target: pa.Schema, name: str) -> None:
        """Looks whether a target tells all keys apart that the source tells apart.

        Called by the driver when a branch opens whose target is there.

        Args:
            target: as `SinkSession.schema` returns it.
            name: of the target, for people.

        Raises:
            PermanentError where rows of several keys would be one row.
        """


@dataclass(frozen=True)
class Offset:
    """The place that one task of a source has come to, for people: two JSON objects."""

    task: int
    key: Mapping[str, Any]
    value: Mapping[str, Any]


# cli/offsets_view.py
class ListsOffsets(ABC):
    """A source whose positions people know in a form of their own."""

    @abstractmethod
    def offsets(self, positions: Positions) -> Sequence[Offset]:
        """The positions of a checkpoint as people read them.

        Called by `dataflow status --offsets`; the source is not asked.

        Args:
            positions: of a checkpoint, also those of parts.
        """


# runs/open_branches.py
class NotesEnd(ABC):
    """Shows people why an attempt has ended."""

    @abstractmethod
    def note_end(self, error: BaseException | None) -> None:
        """Notes for people why the attempt ends; nothing that is stored depends on it.

        Called by the driver once at the end of each attempt, before `close`. It must not raise.

        Args:
            error: the attempt's; None where it ends by itself.
        """


# runs/start_positions.py
class TakesOver(ABC):
    """Goes on in a table that another program has filled."""

    @abstractmethod
    def inheritance(self) -> Positions:
        """Positions that another program has stored beside the table, together with its rows.

        Called by the driver once, when a branch begins that has no checkpoint, and by `dataflow
        reset --checkpoint`.

        Returns:
            A position for each partition that is known, which may be none.

        Raises:
            TransientError while the other program still writes; PermanentError when a person must
            act.
        """


# runs/statuses.py, cli/preview/live.py
class ShowsInheritance(ABC):
    """Shows people where the program has stopped whose table it takes over."""

    @abstractmethod
    def inheritance(self, target: Target) -> Positions | None:
        """Returns where the program has stopped that has filled the table so far; takes nothing.

        Called by `dataflow status` and `preview` for a branch without a checkpoint.

        Returns:
            A position for each partition that is known; None where nothing is.

        Raises:
            TransientError, PermanentError: the sink cannot be asked.
        """


# manifests/stored_tables.py
class ChecksStored(ABC):
    """Declares its table, and changes it as the declaration changes."""

    @abstractmethod
    def stored_problems(self) -> Iterator[tuple[str | None, str]]:
        """Returns what is declared and cannot be done to what is stored.

        Called by `dataflow check` alone, which may take the time to look at the table.

        Returns:
            The id of a declared field, `partitioning`, or None for the columns as a whole, and a
            sentence about it.

        Raises:
            TransientError, PermanentError: the table cannot be looked at.
        """
