"""A changed state is stored as a head: with what the partitions have stored it is that state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dataflow_assets.connectors.kafka.sink.checkpoint_records import (
    KafkaHead,
    KafkaStored,
    PartitionCheckpoint,
)
from dataflow_assets.contracts import Cut, OffsetSlice, PartSlice, Run, Span, Target, Totals
from dataflow_assets.sdk.sink.decide import advance
from dataflow_assets.sdk.sink.state import BranchState

RUN = Run("r1", "h1", 1)
TARGET = Target("default/f", "main", "m2", "t")
PARTS = (PartSlice("part-0", None, "b", "0-9"), PartSlice("part-1", None, "b", "9-"))
OFFSETS = KafkaStored(
    KafkaHead(
        "g1",
        epoch=3,
        run="r1",
        host="h1 (pid 1)",
        base={"0": 5, "1": 7},
        slots={"0": 1, "1": 2},
        totals=Totals(1, 1, 1),
        source="s",
        target="t",
        manifest="m1",
        reading=4,
    ),
    {
        "0": PartitionCheckpoint("g1", 9, totals=Totals(4, 0, 40)),
        "1": PartitionCheckpoint("g0", 90, totals=Totals(5, 0, 50)),
    },
)
BEGUN = KafkaStored(
    KafkaHead(
        "g1", 3, "r1", "h1 (pid 1)", base={"table": "a"}, target="t", manifest="m2", reading=4
    ),
    {"part-0": PartitionCheckpoint("g1", "a", serial=0, totals=Totals(4, 0, 40))},
)
BEGUN = KafkaStored(
    BEGUN.move(BEGUN.state.begin(Span(PARTS), TARGET, "t"), RUN),
    {**BEGUN.checkpoints, "part-1": PartitionCheckpoint("g1", "b", 1, 3, Totals(2, 0, 20))},
)

ENTRIES = (PartSlice("entries", "", "z", "all"),)
REPLAY = KafkaStored(KafkaHead("g1", 3, base={"entries": ""}, target="t", manifest="m2"))
REPLAY = KafkaStored(
    REPLAY.move(REPLAY.state.begin(Span(ENTRIES), TARGET, "t"), RUN),
    {"entries": PartitionCheckpoint("g1", "z", 1, 3, Totals(2, 0, 20))},
)
EVENTS: dict[str, tuple[KafkaStored, Callable[[BranchState], BranchState]]] = {
    "take": (OFFSETS, lambda found: found.take(RUN)),
    "begin": (OFFSETS, lambda found: found.begin(Span((OffsetSlice("2", 0, 9),)), TARGET, "t")),
    "gap": (
        OFFSETS,
        lambda found: found.finish(
            advance(found.positions, (OffsetSlice("1", 7, 20),)), Totals(0, 0, 0)
        ),
    ),
    "adopt": (OFFSETS, lambda found: found.adopt("another")),
    "divide": (BEGUN, lambda found: found.divide(Cut({PARTS[0]: ("0-4", "4-9")}))),
    "finish a part that is named as its table": (
        REPLAY,
        lambda found: found.finish({"entries": "z"}, Totals()),
    ),
    "finish": (BEGUN, lambda found: found.finish({"table": "b"}, Totals())),
}
RESTARTS: dict[str, tuple[KafkaStored, Callable[[BranchState], BranchState]]] = {
    "restart": (OFFSETS, lambda found: found.restart({"0": 2, "1": 7}, "s2", TARGET, "t")),
    "parts": (BEGUN, lambda found: found.restart({"table": "0"}, "s2", TARGET, "t")),
    "forget": (OFFSETS, BranchState.forget),
}


@pytest.mark.parametrize(("stored", "event"), EVENTS.values(), ids=EVENTS)
def test_a_head_and_what_partitions_have_stored_are_the_changed_state(
    stored: KafkaStored, event: Callable[[BranchState], BranchState]
) -> None:
    wanted = event(stored.state)
    head = stored.move(wanted, RUN)
    assert KafkaStored(head, stored.checkpoints).state == wanted
    assert head.slots.items() >= stored.head.slots.items()
    assert len({*head.slots.values()}) == len(head.slots)
    assert {part.partition for part in wanted.intent} <= head.slots.keys()


@pytest.mark.parametrize(("stored", "event"), RESTARTS.values(), ids=RESTARTS)
def test_a_restart_leaves_what_partitions_have_stored_behind(
    stored: KafkaStored, event: Callable[[BranchState], BranchState]
) -> None:
    wanted = event(stored.state)
    head = stored.restart(wanted, RUN)
    assert KafkaStored(head, stored.checkpoints).state == wanted
    assert head.generation != stored.head.generation


def test_a_part_that_is_committed_stays_so_while_the_others_are_divided() -> None:
    assert BEGUN.state.positions == {"part-1": "b", "table": "a"}
    head = BEGUN.move(BEGUN.state.divide(Cut({PARTS[0]: ("0-4", "4-9")})), RUN)
    assert (head.serial, BEGUN.head.serial) == (1, 1)
    following = KafkaStored(head, BEGUN.checkpoints)
    assert [part.empty for part in following.state.unfinished_span.slices] == [  # type: ignore[union-attr]
        False,
        False,
        True,
    ]
