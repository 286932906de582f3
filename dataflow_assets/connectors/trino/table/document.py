"""What is stored of a branch in its row of the table of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from dataflow_assets.contracts import Checkpoint, PartSlice
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.sink.state import BranchState

DECIDED: Mapping[str, object] = {"pending": None, "doubts": (), "aside": ()}
"""Fields of a `TrinoDocument` once no statement is in doubt."""
MOST_WHOLE = 4
"""Statements that have failed and keep their checkpoints, which grow with the partitions."""


class Doubt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is needed to find out whether a statement has stored its rows.

    A flow remembers each statement that has failed until another one has succeeded: this is small,
    and does not grow with the partitions of the source.
    """

    query: str
    """The id that Trino has given the statement."""
    base: str | None = None
    """The table's snapshot before the statement; None where there are none."""
    reading: int = 0
    """`Checkpoint.reading` of the statement: a restart makes nothing of what was read before."""


class TrinoPending(msgspec.Struct, frozen=True):
    """A statement that may have written rows although nobody has seen its end."""

    query: str
    """The id that Trino has given the statement."""
    checkpoint: Checkpoint
    """What is true if the statement has stored its rows."""
    base: str | None = None
    """The table's snapshot before the statement; None where there are none."""

    @property
    def doubt(self) -> Doubt:
        """Without the checkpoint, which has a position for each partition of the source."""
        return Doubt(self.query, self.base, self.checkpoint.reading)


class TrinoDocument(msgspec.Struct, frozen=True):
    """What is stored of a branch, as JSON."""

    checkpoint: Checkpoint
    intent: tuple[PartSlice, ...] = ()
    pending: TrinoPending | None = None
    doubts: tuple[TrinoPending, ...] = ()
    """Statements whose rows were not there; until others are written, they might yet come."""
    aside: tuple[Doubt, ...] = ()
    """Older ones. An earlier version kept their checkpoints in rows beside this one."""
    emptying: bool = False
    """Rows of the table are being deleted."""

    @property
    def tells(self) -> bool:
        """Returns whether a driver has come further than to its epoch."""
        content = self.checkpoint.positions or self.intent or self.open_doubts
        return bool(content or self.emptying)

    @property
    def whole(self) -> tuple[TrinoPending, ...]:
        """Statements in doubt whose checkpoints are part of this document, the last one first."""
        return (*([self.pending] if self.pending else []), *self.doubts)

    @property
    def open_doubts(self) -> tuple[Doubt, ...]:
        """All statements that may have written rows, the last one first."""
        return (*(one.doubt for one in self.whole), *self.aside)


@dataclass(frozen=True)
class TrinoStored:
    """A row: its stamp and what it says."""

    stamp: str
    document: TrinoDocument

    @property
    def state(self) -> BranchState:
        return BranchState(self.document.checkpoint, self.document.intent)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """All statements that may have written rows, the last one first."""
        return self.document.open_doubts


def parse(text: str) -> TrinoDocument:
    """The document of a row, as this version or an earlier one has written it."""
    return decode_json(text, TrinoDocument)
