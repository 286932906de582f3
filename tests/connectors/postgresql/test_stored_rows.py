"""A changed state is stored as rows: those of its partitions, and one that counts the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from dataflow_assets.connectors.postgresql.table.checkpoint_rows import (
    PostgresqlPartition,
    PostgresqlStored,
)
from dataflow_assets.contracts import (
    Checkpoint,
    Cut,
    OffsetSlice,
    PartSlice,
    Run,
    Span,
    Target,
    Totals,
)
from dataflow_assets.sdk.sink.decide import advance
from dataflow_assets.sdk.sink.state import BranchState

AT = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = Target("default/f", "main", "m2", "t")
PARTS = (PartSlice("part-0", None, "b", "0-9"), PartSlice("part-1", None, "b", "9-"))
HEAD = Checkpoint(3, {}, Totals(1, 1, 1), "s", "t", "m1", str(Run("r1", "h1", 1)), reading=4)
OFFSETS = PostgresqlStored(
    HEAD,
    (),
    {
        "0": PostgresqlPartition(9, Totals(4, 0, 40), AT),
        "1": PostgresqlPartition(7, Totals(5, 0, 50), AT),
    },
)
BEGUN = PostgresqlStored(
    HEAD,
    PARTS,
    {
        "table": PostgresqlPartition("a"),
        "part-0": PostgresqlPartition(None),
        "part-1": PostgresqlPartition("b", Totals(2, 0, 20), AT),
    },
)
EVENTS: dict[str, tuple[PostgresqlStored, Callable[[BranchState], BranchState]]] = {
    "take": (OFFSETS, lambda found: found.take(Run("r2", "h1", 2))),
    "begin": (OFFSETS, lambda found: found.begin(Span((OffsetSlice("2", 0, 9),)), TARGET, "t")),
    "gap": (
        OFFSETS,
        lambda found: found.finish(advance(found.positions, (OffsetSlice("1", 7, 20),)), Totals()),
    ),
    "adopt": (OFFSETS, lambda found: found.adopt("another")),
    "divide": (BEGUN, lambda found: found.divide(Cut({PARTS[0]: ("0-4", "4-9")}))),
    "forgotten parts": (OFFSETS, lambda found: found.begin(Span(PARTS), TARGET, "t")),
    "finish": (BEGUN, lambda found: found.finish({"table": "b"}, Totals())),
    "forget": (OFFSETS, BranchState.forget),
}


@pytest.mark.parametrize(("stored", "event"), EVENTS.values(), ids=EVENTS)
def test_rows_are_the_changed_state(
    stored: PostgresqlStored, event: Callable[[BranchState], BranchState]
) -> None:
    wanted = event(stored.state)
    moved = stored.move(wanted)
    assert moved.state == wanted
    assert {part.partition for part in wanted.intent} <= moved.partitions.keys()
    counted = [one for name, one in moved.partitions.items() if name in stored.partitions]
    assert [one.totals for one in counted] == [
        stored.partitions[name].totals for name in moved.partitions if name in stored.partitions
    ]


def test_a_restart_leaves_no_time_of_a_commit() -> None:
    moved = OFFSETS.move(OFFSETS.state.restart({"0": 2, "3": 0}, "s2", TARGET, "t"))
    assert moved.state.positions == {"0": 2, "3": 0}
    assert moved.state.checkpoint.totals == Totals(10, 1, 91)
    assert moved.state.checkpoint.committed_at is None
