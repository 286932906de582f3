"""The stored rows of a branch, one and one more for each partition, and the state that they are."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dataflow_assets.connectors.postgresql.client import Link, Row
from dataflow_assets.connectors.postgresql.table.checkpoint_tables import statements
from dataflow_assets.contracts import Checkpoint, PartSlice, Position, Target, Totals
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.sink.decide import checkpoint_removed, taken_over
from dataflow_assets.sdk.sink.state import BranchState

_HEADS = """
SELECT flow, branch, epoch, run, host, manifest, source, target, intent,
    (to_jsonb(h)->>'reading')::bigint, rows, rejected, bytes
FROM {h} AS h
WHERE (flow, branch) IN (SELECT e->>0, e->>1 FROM json_array_elements($1::json) AS e)
"""  # a look at the table of an earlier version finds no column `reading`
_PARTITIONS = """
SELECT flow, branch, partition, next_offset, part, rows, rejected, bytes, committed_at
FROM {p} WHERE (flow, branch) IN (SELECT e->>0, e->>1 FROM json_array_elements($1::json) AS e)
ORDER BY partition
"""
LOCK = "FOR UPDATE"
"""Until the end of the transaction nobody else changes what is read."""


def columns(value: Position | None) -> tuple[int | None, str | None]:
    return (value, None) if isinstance(value, int) else (None, value)


@dataclass(frozen=True)
class PostgresqlPartition:
    """One partition's row: what was consumed and counted."""

    position: Position | None
    totals: Totals = Totals()
    committed_at: datetime | None = None

    @classmethod
    def of(cls, row: Row) -> PostgresqlPartition:
        """From next_offset, part, rows, rejected, bytes, committed_at."""
        return cls(row[0] if row[0] is not None else row[1], Totals(*row[2:5]), row[5])

    def dump(self) -> str:
        totals = (self.totals.rows, self.totals.rejected, self.totals.bytes)
        moment = self.committed_at.isoformat() if self.committed_at else None
        return json.dumps([*columns(self.position), *totals, moment])

    @classmethod
    def parse(cls, text: str) -> PostgresqlPartition:
        *row, moment = json.loads(text)
        return cls.of((*row, datetime.fromisoformat(moment) if moment else None))


@dataclass(frozen=True)
class PostgresqlStored:
    """Everything stored for one branch; `head` counts what no partition's row counts any more."""

    head: Checkpoint
    intent: tuple[PartSlice, ...]
    partitions: Mapping[str, PostgresqlPartition]

    @property
    def state(self) -> BranchState:
        parts = self.partitions
        times = [p.committed_at for p in parts.values() if p.committed_at]
        checkpoint = replace(
            self.head,
            positions={n: p.position for n, p in parts.items() if p.position is not None},
            totals=sum((p.totals for p in parts.values()), self.head.totals),
            committed_at=max(times, default=None),
        )
        return BranchState(checkpoint, self.intent)

    def follow(self, moved: Mapping[str, PostgresqlPartition]) -> PostgresqlStored:
        """Returns what is stored once tasks have moved these; a gap may be stepped over by now."""
        rows = dict(self.partitions)
        for name, one in moved.items():
            known, reached = rows[name].position if name in rows else None, one.position
            if not (isinstance(known, int) and isinstance(reached, int) and known > reached):
                rows[name] = one
        return replace(self, partitions=rows)

    def move(self, state: BranchState) -> PostgresqlStored:
        """Returns what to store of a state: partitions that stay keep what they have counted."""
        at = state.checkpoint.committed_at
        moved = None if at == self.state.checkpoint.committed_at else at
        partitions = dict[str, PostgresqlPartition]()
        for name in {**state.positions, **{part.partition: None for part in state.intent}}:
            old, where = self.partitions.get(name), state.positions.get(name)
            counted = old.totals if old else Totals()
            kept = old is not None and old.position == where
            partitions[name] = old if old and kept else PostgresqlPartition(where, counted, moved)
        theirs = sum((one.totals for one in partitions.values()), Totals())
        counted = state.checkpoint.totals - theirs
        head = replace(state.checkpoint, positions={}, totals=counted, committed_at=None)
        return PostgresqlStored(head, state.intent, partitions)


def read(
    link: Link, schema: str, targets: Sequence[Target], lock: str = ""
) -> dict[str, PostgresqlStored]:
    """Returns what is stored, by the branch's id; without those of which nothing is."""
    names = statements(schema)
    asked = json.dumps([[target.flow, target.branch] for target in targets])
    ids = {(target.flow, target.branch): target.id for target in targets}
    heads = link.execute(_HEADS.format(**names) + lock, asked)
    partitions = defaultdict[str, dict[str, PostgresqlPartition]](dict)
    for flow, branch, name, *row in (
        link.execute(_PARTITIONS.format(**names) + lock, asked) if heads else ()
    ):
        partitions[ids[flow, branch]][name] = PostgresqlPartition.of(tuple(row))
    found = {ids[flow, branch]: _head(tuple(row)) for flow, branch, *row in heads}
    return {
        id_: PostgresqlStored(head, intent, partitions[id_])
        for id_, (head, intent) in found.items()
    }


def _head(row: Row) -> tuple[Checkpoint, tuple[PartSlice, ...]]:
    epoch, run, host, manifest, source, oid, intent, reading, *totals = row
    head = Checkpoint(
        epoch,
        {},
        Totals(*totals),
        source=source,
        target=oid,
        manifest=manifest,
        run=f"run {run} on host {host}",
        reading=reading or 0,
    )
    return head, load_intent(intent)


def loss(link: Link, schema: str, target: Target, epoch: int) -> PermanentError:
    """Why our epoch holds no more: who has it now, or that somebody removed the rows."""
    query = "SELECT run, host, epoch FROM {h} WHERE flow = $1 AND branch = $2"
    heads = link.execute(query.format(**statements(schema)), target.flow, target.branch)
    if not heads or heads[0][2] == epoch:
        return checkpoint_removed(target.flow, f"schema {schema}")
    run, host, _ = heads[0]
    return taken_over(target.flow, f"run {run} on host {host}")


def dump_intent(parts: Iterable[PartSlice]) -> str:
    """The parts of a bounded read as text."""
    return json.dumps([[p.partition, p.after, p.upto, p.part] for p in parts])


def load_intent(text: str | None) -> tuple[PartSlice, ...]:
    """The recorded parts; none where no bounded read is recorded."""
    return tuple(PartSlice(*part) for part in json.loads(text or "[]"))
