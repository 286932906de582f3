"""Planning of the next span: whole snapshots first, then later appends, rewrites by rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dataflow_assets.connectors.iceberg.source.history import (
    History,
    Lost,
    SnapshotChange,
    between,
    change,
    total_rows,
)
from dataflow_assets.connectors.iceberg.table.position import SnapshotPosition

Rule = Literal["fail", "rescan", "ignore"]


@dataclass(frozen=True)
class SnapshotStep:
    """One snapshot. `start` is inside it, or behind it where nothing of it is read."""

    start: SnapshotPosition
    snapshot: Snapshot
    note: str = ""
    """What a person should be told when it is passed over."""

    @property
    def rows(self) -> int:
        """About how many rows are left to read."""
        if self.start.scan is None:
            return 0
        full = self.start.scan == "full"
        rows = total_rows(self.snapshot) if full else change(self.snapshot).rows_added
        return max(0, rows - self.start.done)


@dataclass(frozen=True)
class IcebergAhead:
    """The steps, and why none comes after them although the table goes on."""

    steps: tuple[SnapshotStep, ...]
    blocked: str = ""


def ahead(
    metadata: TableMetadata, position: SnapshotPosition, head: Snapshot, rule: Rule
) -> IcebergAhead:
    """From the position to the end of the head."""
    if position.snapshot is None:
        return IcebergAhead((_full(head),))
    whole: tuple[SnapshotStep, ...] = ()
    if position.scan is not None:
        snapshot = metadata.snapshot_by_id(position.snapshot)
        if snapshot is None:
            return IcebergAhead((), _loss(position, head))
        whole = (SnapshotStep(position, snapshot),)
    behind = replace(position, scan=None, file=0, row=0, done=0)
    try:
        history = between(metadata, behind, head)
    except Lost:
        return IcebergAhead(whole, _loss(behind, head))
    more = _apply_rule(history, behind, head, rule)
    return replace(more, steps=(*whole, *more.steps))


def _apply_rule(
    history: History, position: SnapshotPosition, head: Snapshot, rule: Rule
) -> IcebergAhead:
    rewrites = [one for one in history.changes if one.kind == "rewritten"]
    if rule == "rescan" and (rewrites or history.abandoned):
        return IcebergAhead((_full(head),))
    if rule == "fail" and history.abandoned:
        return IcebergAhead((), _refusal(_rolled_back(position, head)))
    if rule == "fail" and rewrites:
        kept = history.changes[: history.changes.index(rewrites[0])]
        return IcebergAhead(tuple(_steps(kept)), _refusal(str(rewrites[0])))
    steps = tuple(_steps(history.changes))
    if history.abandoned:
        note = _rolled_back(position, head)
        first, *others = steps or (SnapshotStep(SnapshotPosition.after(head), head),)
        steps = (replace(first, note=f"{note}; {first.note}".removesuffix("; ")), *others)
    return IcebergAhead(steps)


def _steps(changes: Sequence[SnapshotChange]) -> Iterator[SnapshotStep]:
    for one in changes:
        if one.kind == "appended":
            yield SnapshotStep(SnapshotPosition.inside(one.snapshot, "added"), one.snapshot)
        else:
            note = str(one) if one.kind == "rewritten" else ""
            yield SnapshotStep(SnapshotPosition.after(one.snapshot), one.snapshot, note)


def _full(head: Snapshot) -> SnapshotStep:
    return SnapshotStep(SnapshotPosition.inside(head, "full"), head)


def _rolled_back(position: SnapshotPosition, head: Snapshot) -> str:
    return (
        f"the table was rolled back: its current snapshot {head.snapshot_id} does not come after "
        f"{position}, which was read already"
    )


def _refusal(what: str) -> str:
    return (
        f"{what}. Everything before it is stored. Set onSourceRewrite: rescan to read the current "
        "snapshot in full once more (into sinks that upsert), or onSourceRewrite: ignore to pass "
        "over it, or start from earliest with table: truncate"
    )


def _loss(position: SnapshotPosition, head: Snapshot) -> str:
    what = "the rest of" if position.scan else "what came after"
    return (
        f"{what} {position} has expired, or its branch was moved or created again: the snapshots "
        f"between it and the current one, {head.snapshot_id}, are no longer known, nor which rows "
        "they added. To go on, start from earliest with table: truncate, or from latest without "
        "what lies between; keep snapshots longer than this flow may be stopped "
        "(history.expire.max-snapshot-age-ms)"
    )
