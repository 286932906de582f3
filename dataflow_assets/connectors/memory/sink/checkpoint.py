"""The checkpoint of one branch, and the parts that it has begun: a row of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from dataflow_assets.contracts import Checkpoint, PartSlice, Target
from dataflow_assets.errors import TakenOver

_REMOVE = "delete from checkpoints where id = '{}'"
Stored = tuple[Checkpoint, Sequence[PartSlice]]


def load(
    connection: sqlite3.Connection, target: Target
) -> tuple[Checkpoint | None, Sequence[PartSlice]]:
    """The checkpoint and the unfinished parts; None and nothing before the first."""
    sql = "select checkpoint, intent from checkpoints where id = ?"
    row = connection.execute(sql, (target.id,)).fetchone()
    if row is None:
        return None, ()
    checkpoint = msgspec.json.decode(row[0], type=Checkpoint)
    return checkpoint, msgspec.json.decode(row[1], type=list[PartSlice])


def load_owned(connection: sqlite3.Connection, target: Target, epoch: int) -> Stored:
    """The same, in the transaction that is to change them; raises TakenOver for another epoch."""
    checkpoint, intent = load(connection, target)
    if checkpoint is None or checkpoint.epoch != epoch:
        by = checkpoint.run if checkpoint else "a reset"
        raise TakenOver(f"flow {target.flow} was taken over by {by}; this run stops")
    return checkpoint, intent


def save(
    connection: sqlite3.Connection,
    target: Target,
    checkpoint: Checkpoint,
    intent: Sequence[PartSlice],
) -> None:
    """Stores them in the place of what was stored."""
    values = (target.id, msgspec.json.encode(checkpoint), msgspec.json.encode(intent))
    connection.execute("insert or replace into checkpoints values (?, ?, ?)", values)


def other_flows(
    connection: sqlite3.Connection, target: Target, identity: str | None
) -> dict[str, str]:
    """By the other flows that write into the table of this identity: what removes a checkpoint."""
    others = {}
    for name, text in connection.execute("select id, checkpoint from checkpoints order by 1"):
        flow = name.removesuffix(f":{target.branch}")
        same = msgspec.json.decode(text, type=Checkpoint).target == identity
        if same and flow not in (name, target.flow):
            others[flow] = _REMOVE.format(name)
    return others
