"""The checkpoint as JSON text: one table property per flow and branch.

It is written by the commit that adds the rows and by no other, so the table and what it has
consumed cannot disagree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dataflow_assets.connectors.iceberg.settings import slug
from dataflow_assets.contracts import (
    Checkpoint,
    OffsetSlice,
    PartSlice,
    Position,
    Positions,
    Run,
    Slice,
    Span,
    Target,
    Totals,
    utc_now,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

FAMILY = "dataflow.checkpoint."
"""Begins the names of the properties of all branches."""


def property_key(target: Target, kind: str = "checkpoint") -> str:
    """The name of the property: readable, and unique by a hash of flow and branch."""
    return f"dataflow.{kind}.{slug(target.flow)}.{short_hash(target.id)}"


def short_hash(text: str) -> str:
    """Eight hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class StoredCheckpoint:
    """What the property says."""

    flow: str
    branch: str
    epoch: int
    run: str
    host: str
    pid: int
    positions: Positions
    totals: Totals = Totals()
    source: str | None = None
    target: str | None = None
    manifest: str = ""
    commit: str = ""
    parent: str = ""
    committed_at: str = ""
    intent: tuple[Slice, ...] = ()
    reading: int = 0

    def owned_by(self, epoch: int, run: Run) -> bool:
        """True when this epoch of this run holds the flow."""
        return (self.epoch, self.run) == (epoch, run.id)

    @property
    def owner(self) -> Run:
        """The run that wrote it."""
        return Run(self.run, self.host, self.pid)

    def by(self, run: Run) -> StoredCheckpoint:
        """The next epoch, held by this run."""
        return replace(self, epoch=self.epoch + 1, run=run.id, host=run.host, pid=run.pid)

    def stamped(self, commit: str) -> StoredCheckpoint:
        """Marked as written by this commit."""
        now = utc_now().isoformat()
        return replace(self, commit=commit, parent=self.commit, committed_at=now)

    def checkpoint(self) -> Checkpoint:
        """What the driver reads."""
        return Checkpoint(
            epoch=self.epoch,
            positions=dict(self.positions),
            totals=self.totals,
            source=self.source,
            target=self.target,
            manifest=self.manifest,
            run=str(self.owner),
            committed_at=datetime.fromisoformat(self.committed_at) if self.committed_at else None,
            reading=self.reading,
        )

    def text(self) -> str:
        """The property's value."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        data["totals"] = asdict(self.totals)
        data["intent"] = [_slice_data(piece) for piece in self.intent]
        return json.dumps(data, separators=(",", ":"))


def fresh(target: Target) -> StoredCheckpoint:
    """The checkpoint of a flow that has none."""
    return StoredCheckpoint(target.flow, target.branch, 0, "", "", 0, {})


def parse(text: str | None) -> StoredCheckpoint | None:
    """The checkpoint in a property's value; unknown keys of later versions are left out."""
    if text is None:
        return None
    data: dict[str, Any] = json.loads(text)
    data["totals"] = Totals(**data["totals"])
    data["intent"] = tuple(_slice(*piece) for piece in data["intent"])
    return StoredCheckpoint(
        **{name: data[name] for name in StoredCheckpoint.__dataclass_fields__ if name in data}
    )


def others(table: Table, target: Target) -> dict[str, str]:
    """Other flows into this table; for each the statement that removes its checkpoint."""
    name, identity = ".".join(table.name()), str(table.metadata.table_uuid)
    found = {}
    for key, text in sorted(table.properties.items()):
        stored = parse(text) if key.startswith(FAMILY) else None
        if stored and stored.target == identity and stored.flow != target.flow:
            found[stored.flow] = f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{key}')"
    return found


def recorded(span: Span) -> tuple[Slice, ...]:
    """What a crash must find again: the slices of a span that has parts."""
    has_parts = any(isinstance(piece, PartSlice) for piece in span.slices)
    return span.slices if has_parts else ()


def merged(positions: Positions, slices: Sequence[Slice]) -> dict[str, Position]:
    """The positions once the slices are done; integers never move back."""
    result = dict(positions)
    for piece in slices:
        known = result.get(piece.partition)
        ahead = isinstance(known, int) and isinstance(piece.upto, int) and known > piece.upto
        if not ahead:
            result[piece.partition] = piece.upto
    return result


def _slice_data(piece: Slice) -> list[Any]:
    part = piece.part if isinstance(piece, PartSlice) else ""
    return [piece.partition, piece.after, piece.upto, part]


def _slice(partition: str, after: Any, upto: Any, part: str) -> Slice:
    if isinstance(upto, int):
        return OffsetSlice(partition, after, upto)
    return PartSlice(partition, after, upto, part)
