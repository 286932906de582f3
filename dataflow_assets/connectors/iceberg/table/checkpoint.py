"""The checkpoint as JSON text: one table property per flow and branch.

It is written by the commit that adds the rows and by no other, so the table and what it has
consumed cannot disagree.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dataflow_assets.connectors.iceberg.addresses import slug
from dataflow_assets.connectors.iceberg.table.lineage import was_rolled_back
from dataflow_assets.contracts import (
    Checkpoint,
    PartSlice,
    Positions,
    Run,
    Target,
    Totals,
)
from dataflow_assets.sdk.sink.state import BranchState

if TYPE_CHECKING:
    from pyiceberg.table import Table

ROLLED_BACK = " before it was rolled back"
"""Ends the id of a table whose last snapshots were taken out."""
FAMILY = "dataflow.checkpoint."
"""Begins the names of the properties of all branches."""


def property_key(target: Target, kind: str = "checkpoint") -> str:
    """The name of the property: readable, and unique by a hash of flow and branch."""
    return f"dataflow.{kind}.{slug(target.flow)}.{short_hash(target.id)}"


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class StoredCheckpoint:
    """The content of the table's property."""

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
    intent: tuple[PartSlice, ...] = ()
    reading: int = 0
    stands: str = ""
    """The last commit that has made a snapshot of the table; empty: an earlier version wrote it."""
    sequence: int = 0
    """The number of that snapshot."""

    @property
    def owner(self) -> Run:
        return Run(self.run, self.host, self.pid)

    @property
    def state(self) -> BranchState:
        checkpoint = Checkpoint(
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
        return BranchState(checkpoint, self.intent)

    def holding(self, state: BranchState, run: Run) -> StoredCheckpoint:
        """With this state, written by this run."""
        checkpoint = state.checkpoint
        return replace(
            self,
            epoch=checkpoint.epoch,
            run=run.id,
            host=run.host,
            pid=run.pid,
            positions=dict(checkpoint.positions),
            totals=checkpoint.totals,
            source=checkpoint.source,
            target=checkpoint.target,
            manifest=checkpoint.manifest,
            committed_at=checkpoint.committed_at.isoformat() if checkpoint.committed_at else "",
            intent=state.intent,
            reading=checkpoint.reading,
        )

    def stamp(self, commit: str) -> StoredCheckpoint:
        return replace(self, commit=commit, parent=self.commit)

    def standing(self, table: Table) -> StoredCheckpoint:
        """Marked as written by the commit that makes the next snapshot of a table."""
        return replace(self, stands=self.commit, sequence=table.metadata.next_sequence_number())

    def is_left(self, table: Table) -> bool:
        """True where the table was rolled back to a snapshot before the last commit of ours."""
        same = self.target == str(table.metadata.table_uuid)
        return bool(self.stands and same) and was_rolled_back(table, self.stands, self.sequence)

    def as_undecided(self) -> StoredCheckpoint:
        """Names no table until a person has said whether its rows are those of this table."""
        return replace(self, target=f"{self.target}{ROLLED_BACK}")

    def text(self) -> str:
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        data["totals"] = asdict(self.totals)
        data["intent"] = [(p.partition, p.after, p.upto, p.part) for p in self.intent]
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
    data["intent"] = tuple(PartSlice(*part) for part in data["intent"])
    return StoredCheckpoint(
        **{name: data[name] for name in StoredCheckpoint.__dataclass_fields__ if name in data}
    )


def others(table: Table, target: Target) -> dict[str, str]:
    """Other flows into this table; for each the statement that removes its checkpoint."""
    name, identity = ".".join(table.name()), str(table.metadata.table_uuid)
    statements = {}
    for key, text in sorted(table.properties.items()):
        checkpoint = parse(text) if key.startswith(FAMILY) else None
        if checkpoint is None or checkpoint.flow == target.flow:
            continue
        if (checkpoint.target or "").removesuffix(ROLLED_BACK) == identity:
            statements[checkpoint.flow] = f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{key}')"
    return statements
