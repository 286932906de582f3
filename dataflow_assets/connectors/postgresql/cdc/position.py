"""Positions in the log, and what the parts of a span are called."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Self

from dataflow_assets.contracts import Position, Positions, folded

PARTITION = "wal"


@dataclass(frozen=True)
class Lsn:
    """A place in the server's log."""

    value: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of PostgreSQL's own text, such as `0/16B3748`."""
        high, low = text.split("/")
        return cls(int(high, 16) << 32 | int(low, 16))

    def __str__(self) -> str:
        """As PostgreSQL writes it."""
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"


def dump(position: Lsn | None) -> str:
    """The position as it is stored; None: nothing was read."""
    return json.dumps({} if position is None else {"lsn": str(position)})


def parse(position: Position | None) -> Lsn | None:
    """What `dump` has written."""
    text = json.loads(str(position)) if position else {}
    return Lsn.parse(text["lsn"]) if text else None


START = dump(None)
"""Where a flow begins that has read nothing."""


def stored(positions: Positions) -> Lsn | None:
    """Where a branch is, finished parts of a span included."""
    return parse(folded(positions, PARTITION))


@dataclass(frozen=True)
class StreamPart:
    """The transactions whose commit record begins at `after` or behind it, and before `upto`."""

    after: str
    upto: str


@dataclass(frozen=True)
class SnapshotPart:
    """The blocks `low` to `high` of a table, or of a partition of it, as of a snapshot.

    `leaf` is the oid of what holds the rows; `high` None: up to the end.
    """

    snapshot: str
    lsn: str
    table: str
    leaf: int
    low: int
    high: int | None


Part = StreamPart | SnapshotPart


def dump_part(part: Part) -> str:
    """The part as a sink records it."""
    return json.dumps(asdict(part))


def parse_part(text: str) -> Part:
    """What `dump_part` has written."""
    found = json.loads(text)
    return SnapshotPart(**found) if "snapshot" in found else StreamPart(**found)
