"""Positions in the log, and what the parts of a span are called."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import reduce
from typing import Any, Self, TypeVar

from dataflow_assets.contracts import PART, Position, Positions

PARTITION = "wal"
T = TypeVar("T")

Keys = Mapping[str, tuple[int, ...]]
"""By table the columns of the primary key, as PostgreSQL numbers them: no name is used twice."""


@dataclass(frozen=True)
class Lsn:
    """A place in the server's log."""

    value: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses PostgreSQL's own text, such as `0/16B3748`."""
        high, low = text.split("/")
        return cls(int(high, 16) << 32 | int(low, 16))

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class CdcMark:
    """The numbers that the server has given to a table and to its places in the publication."""

    oid: int
    """Of the table."""
    version: int
    """Of the publication: the transaction that has altered its options, or created it."""
    owner: int
    """Of the publication."""
    members: tuple[int, ...]
    """By what the table is in the publication: another row filter or column list is another one."""
    columns: str
    """A digest of each column's name, by the column's number."""


Marks = Mapping[str, CdcMark]
"""By table."""


@dataclass(frozen=True)
class Reached:
    """A position in the log and in the loads of tables."""

    lsn: Lsn
    """Changes before are read."""
    tables: frozenset[str] | None = None
    """Those whose rows are loaded, and whose changes are read; None: those of the manifest, as
    positions say that were stored before tables could be loaded one by one."""
    again: frozenset[str] = frozenset()
    """Those whose rows are to be loaded again, changes before that too if they are in `tables`."""
    keys: Keys = field(default_factory=dict)
    """The primary keys there, of tables whose log does not name them."""
    marks: Marks = field(default_factory=dict)
    """By what the changes were read; none in positions that older versions have stored."""

    def has(self, table: str) -> bool:
        return self.tables is None or table in self.tables

    def within(self, names: Collection[str]) -> Reached:
        tables = None if self.tables is None else self.tables.intersection(names)
        again, keys = self.again.intersection(names), _of(names, self.keys)
        marks = _of(names, self.marks)
        return replace(self, tables=tables, again=again, keys=keys, marks=marks)

    def common(self, other: Reached) -> Reached:
        """Returns what both have come to, of parts of one span."""
        if self.tables is None or other.tables is None:
            return self if other.tables is None else other
        tables, again = self.tables & other.tables, self.again & other.again
        keys, marks = _of(tables, self.keys), _of(tables, self.marks)
        return replace(self, tables=tables, again=again, keys=keys, marks=marks)


def dump(position: Reached | None) -> str:
    """The position as it is stored; None: nothing was read."""
    if position is None:
        return json.dumps({})
    text: dict[str, Any] = {"lsn": str(position.lsn)}
    if position.tables is not None:
        text["tables"] = sorted(position.tables)
    if position.again:
        text["again"] = sorted(position.again)
    if position.keys:
        text["keys"] = dict(sorted(position.keys.items()))
    if marks := _of(position.tables or (), position.marks):
        text["marks"] = [astuple(marks[n]) if n in marks else None for n in text["tables"]]
    return json.dumps(text)


def dump_end(lsn: Lsn) -> str:
    """Returns where the log ends, for which a position with tables that wait is not far enough."""
    return json.dumps({"lsn": str(lsn), "end": True})


def parse(position: Position | None) -> Reached | None:
    text = json.loads(str(position)) if position else {}
    if not text:
        return None
    tables = text.get("tables")
    again = frozenset(text.get("again", ()))
    names = None if tables is None else frozenset(tables)
    return Reached(Lsn.parse(text["lsn"]), names, again, _keys(text), _marks(text))


def is_end(position: Position) -> bool:
    return "end" in json.loads(str(position))


START = dump(None)
"""Where a flow begins that has read nothing."""


def stored_position(positions: Positions) -> Reached | None:
    """Returns where a branch is, finished parts of a span included: each has read what all say."""
    parts = {at for name, at in positions.items() if name.startswith(PART)}
    reached = [position for at in parts if (position := parse(at)) is not None]
    return reduce(Reached.common, reached) if reached else parse(positions.get(PARTITION))


@dataclass(frozen=True)
class StreamPart:
    """The transactions whose commit record begins at `after` or behind it, and before `upto`."""

    after: str
    upto: str
    tables: tuple[str, ...] | None = None
    """Whose changes are read; None: those of all tables of the manifest, as in previews, and in
    parts that older versions have recorded."""
    keys: Keys = field(default_factory=dict)
    """The primary keys at `after`, of those whose log does not name them."""

    def follows(self, other: Part) -> bool:
        """Returns whether it begins where another one of the same tables ends."""
        if not isinstance(other, StreamPart):
            return False
        return (other.upto, other.tables) == (self.after, self.tables)

    def within(self, names: Collection[str]) -> StreamPart:
        tables = None if self.tables is None else tuple(n for n in self.tables if n in names)
        return replace(self, tables=tables, keys=_of(names, self.keys))


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
    text = asdict(part)
    if not text.get("keys", True):
        del text["keys"]
    return json.dumps(text)


def parse_part(text: str) -> Part:
    document = json.loads(text)
    if "snapshot" in document:
        return SnapshotPart(**document)
    tables = document.get("tables")
    names = None if tables is None else tuple(tables)
    return StreamPart(document["after"], document["upto"], names, _keys(document))


def _keys(found: Mapping[str, Any]) -> Keys:
    return {name: tuple(columns) for name, columns in found.get("keys", {}).items()}


def _marks(found: Mapping[str, Any]) -> Marks:
    """In the order of the tables, whose names are not repeated."""
    pairs = zip(found.get("tables", ()), found.get("marks", ()), strict=False)
    return {name: _mark(*numbers) for name, numbers in pairs if numbers is not None}


def _mark(oid: int, version: int, owner: int, members: Sequence[int], columns: str) -> CdcMark:
    return CdcMark(oid, version, owner, tuple(members), columns)


def _of(names: Collection[str], known: Mapping[str, T]) -> dict[str, T]:
    return {name: one for name, one in known.items() if name in names}
