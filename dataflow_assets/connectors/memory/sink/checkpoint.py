"""What is stored of one branch: a row of the store."""

from __future__ import annotations

import sqlite3

import msgspec

from dataflow_assets.contracts import Checkpoint, PartSlice, Target
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.sink.checkpoint_store import StateChange
from dataflow_assets.sdk.sink.state import BranchState

_REMOVE = "delete from checkpoints where id = '{}'"


def load(connection: sqlite3.Connection, target: Target) -> BranchState | None:
    """The checkpoint and the unfinished parts; None before the first."""
    sql = "select checkpoint, intent from checkpoints where id = ?"
    row = connection.execute(sql, (target.id,)).fetchone()
    if row is None:
        return None
    checkpoint = decode_json(row[0], Checkpoint)
    return BranchState(checkpoint, decode_json(row[1], tuple[PartSlice, ...]))


def move(connection: sqlite3.Connection, target: Target, step: StateChange) -> BranchState:
    """Stores what the step makes of what is stored, in the caller's transaction."""
    state = step(load(connection, target))
    values = (target.id, msgspec.json.encode(state.checkpoint), msgspec.json.encode(state.intent))
    connection.execute("insert or replace into checkpoints values (?, ?, ?)", values)
    return state


def other_flows(
    connection: sqlite3.Connection, target: Target, identity: str | None
) -> dict[str, str]:
    """By the other flows that write into the table of this identity: what removes a checkpoint."""
    others = {}
    for name, text in connection.execute("select id, checkpoint from checkpoints order by 1"):
        flow = name.removesuffix(f":{target.branch}")
        same = decode_json(text, Checkpoint).target == identity
        if same and flow not in (name, target.flow):
            others[flow] = _REMOVE.format(name)
    return others
