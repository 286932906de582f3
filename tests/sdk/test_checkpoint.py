"""The state machine of a checkpoint: what is decided, case by case, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from dataflow_assets.contracts import (
    OFFSET,
    Checkpoint,
    Chunk,
    Cut,
    OffsetSlice,
    PartSlice,
    Position,
    Receipt,
    Rejection,
    Run,
    Slice,
    Span,
    Target,
    Totals,
)
from dataflow_assets.errors import CheckpointRemoved, PermanentError, TakenOver
from dataflow_assets.sdk.sink.decide import (
    advance,
    check_planned,
    check_recorded,
    intent_of,
    is_covered,
    resume,
    unknown_starts,
    without_covered,
)
from dataflow_assets.sdk.sink.session import complete
from dataflow_assets.sdk.sink.state import BranchState, check_owner


@pytest.mark.parametrize(
    ("piece", "position", "left"),
    [
        (OffsetSlice("0", 2, 9), None, ([2, 3, 5], [4])),
        (OffsetSlice("0", 2, 9), 2, ([2, 3, 5], [4])),
        (OffsetSlice("0", 2, 9), 3, ([3, 5], [4])),
        (OffsetSlice("0", 2, 9), 4, ([5], [4])),
        (OffsetSlice("0", 2, 9), 5, ([5], [])),
        (OffsetSlice("0", 2, 9), 6, None),
        (OffsetSlice("0", 2, 9), 20, None),
        (PartSlice("part-0", None, "10"), None, ([2, 3, 5], [4])),
        (PartSlice("part-0", None, "10"), "9", ([2, 3, 5], [4])),
        (PartSlice("part-0", None, "10"), "10", None),
    ],
)
def test_what_the_checkpoint_does_not_cover_of_a_chunk(
    piece: Slice, position: Position | None, left: tuple[list[int], list[int]] | None
) -> None:
    rows = pa.record_batch({OFFSET: pa.array([2, 3, 5], pa.int64())})
    chunk = Chunk(rows, [Rejection(4, "decode", "why", None)], seen=6, size=100)
    found = without_covered(chunk, piece, position)
    offsets = found and (
        found.rows.column(OFFSET).to_pylist(),
        [one.offset for one in found.rejected],
    )
    assert offsets == left
    assert found is None or (found.seen, found.size) == (6, 100)


RUN = Run("r1", "h1", 7)
OTHER = Run("r2", "h2", 8)
TARGET = Target("shop/orders", "main", "m2", "orders")


def offsets(after: int, upto: int, partition: str = "0") -> OffsetSlice:
    return OffsetSlice(partition, after, upto)


def part(number: int, after: str | None = None, upto: str = "10", name: str = "") -> PartSlice:
    return PartSlice(f"part-{number}", after, upto, name or f"border-{number}")


@pytest.mark.parametrize(
    ("piece", "position", "expected"),
    [
        (offsets(0, 5), None, False),
        (offsets(0, 5), 0, False),
        (offsets(0, 5), 4, False),
        (offsets(0, 5), 5, True),
        (offsets(0, 5), 9, True),
        (offsets(0, 5), "5", False),
        (offsets(5, 5), None, False),
        (offsets(5, 5), 5, True),
        (part(0), None, False),
        (part(0), "9", False),
        (part(0), "10", True),
        (part(0), 10, False),
    ],
)
def test_what_a_checkpoint_covers(piece: Slice, position: Position | None, expected: bool) -> None:
    assert is_covered(piece, position) is expected


@pytest.mark.parametrize(
    ("positions", "empty"),
    [
        ({}, [False, False]),
        ({"table": "10"}, [False, False]),
        ({"part-0": "10"}, [True, False]),
        ({"part-0": "9", "part-1": "10"}, [False, True]),
        ({"part-0": "10", "part-1": "10"}, [True, True]),
    ],
)
def test_parts_that_are_committed_are_not_read_again(
    positions: Mapping[str, Position], empty: list[bool]
) -> None:
    parts = (part(0), part(1))
    found = resume(parts, positions)
    assert [piece.empty for piece in found] == empty
    assert [(p.partition, p.upto, p.part) for p in found] == [
        (p.partition, p.upto, p.part) for p in parts
    ]


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ((), ()),
        ((offsets(0, 5),), ()),
        ((part(0, "10"),), ()),
        ((part(0, "10"), part(1, "10")), ()),
        ((part(0),), (part(0),)),
        ((part(0, "10"), part(1)), (part(0, "10"), part(1))),
        ((offsets(0, 5), part(0)), (part(0),)),
    ],
)
def test_only_what_is_left_to_read_in_parts_is_recorded(
    slices: tuple[Slice, ...], expected: tuple[PartSlice, ...]
) -> None:
    assert intent_of(Span(slices)) == expected


@pytest.mark.parametrize(
    ("slices", "known", "expected"),
    [
        ((), (), {}),
        ((offsets(3, 5),), (), {"0": 3}),
        ((offsets(3, 5),), ("0",), {}),
        ((offsets(3, 5), offsets(0, 0, "1")), ("0",), {"1": 0}),
        ((part(0),), (), {"part-0": None}),
        ((part(0),), ("part-0",), {}),
        ((part(0, "x"),), (), {"part-0": "x"}),
    ],
)
def test_start_positions_that_are_not_known_yet(
    slices: tuple[Slice, ...], known: tuple[str, ...], expected: Mapping[str, Position | None]
) -> None:
    assert unknown_starts(Span(slices), known) == expected


@pytest.mark.parametrize(
    ("slices", "positions", "expected"),
    [
        ((offsets(0, 5),), {"0": 5}, ()),
        ((offsets(0, 5),), {"0": 3}, (offsets(0, 5),)),
        ((offsets(0, 5),), {}, (offsets(0, 5),)),
        ((offsets(5, 5),), {"0": 5}, ()),
        ((offsets(0, 5), offsets(0, 2, "1")), {"0": 5, "1": 0}, (offsets(0, 2, "1"),)),
        ((part(0),), {}, ()),
    ],
)
def test_gaps_are_the_ends_of_slices_that_nobody_has_committed(
    slices: tuple[Slice, ...],
    positions: Mapping[str, Position],
    expected: tuple[OffsetSlice, ...],
) -> None:
    assert BranchState(Checkpoint(1, positions)).remaining_slices(Span(slices)) == expected


@pytest.mark.parametrize(
    ("positions", "slices", "expected"),
    [
        ({}, (offsets(0, 5),), {"0": 5}),
        ({"0": 3}, (offsets(0, 5),), {"0": 5}),
        ({"0": 9}, (offsets(0, 5),), {"0": 9}),
        ({"0": 3, "1": 4}, (offsets(3, 5),), {"0": 5, "1": 4}),
        ({"table": "0"}, (part(0), part(1)), {"table": "0", "part-0": "10", "part-1": "10"}),
        ({"part-0": "9"}, (part(0),), {"part-0": "10"}),
    ],
)
def test_positions_advance_and_offsets_never_move_back(
    positions: Mapping[str, Position],
    slices: tuple[Slice, ...],
    expected: Mapping[str, Position],
) -> None:
    assert advance(positions, slices) == expected


@pytest.mark.parametrize(
    ("piece", "position"),
    [
        (offsets(3, 5), 3),
        (offsets(3, 5), 4),
        (offsets(3, 5), 9),
        (part(0), None),
        (part(0), "10"),
        (part(0, "x"), "x"),
    ],
)
def test_a_slice_may_begin_at_the_checkpoint_or_below(
    piece: Slice, position: Position | None
) -> None:
    check_planned("shop/orders", piece, position)


@pytest.mark.parametrize(
    ("piece", "position"),
    [
        (offsets(3, 5), 2),
        (offsets(3, 5), None),
        (offsets(3, 5), "3"),
        (part(0), "9"),
        (part(0, "x"), None),
        (part(0, "x"), "y"),
    ],
)
def test_a_slice_beyond_the_checkpoint_is_refused(piece: Slice, position: Position | None) -> None:
    with pytest.raises(PermanentError) as caught:
        check_planned("shop/orders", piece, position)
    assert type(caught.value) is PermanentError
    assert str(caught.value) == (
        f"the checkpoint of flow shop/orders was moved by somebody: partition {piece.partition} "
        f"is at {position}, but the micro-batch was planned from {piece.after}; start the flow "
        "again from its checkpoint, or reset it"
    )


@pytest.mark.parametrize(
    ("piece", "late"),
    [
        (part(0), False),
        (part(0, "10"), False),
        (part(2), True),
        (part(0, upto="9"), True),
        (part(0, name="smaller"), True),
    ],
)
def test_a_task_of_the_last_span_is_late(piece: PartSlice, late: bool) -> None:
    intent = (part(0), part(1))
    if not late:
        check_recorded("shop/orders", piece, intent)
        return
    with pytest.raises(TakenOver, match=r"is not in the span that is recorded: .* came too late"):
        check_recorded("shop/orders", piece, intent)


STOOD = BranchState(
    Checkpoint(3, {"0": 5}, Totals(5), "topic-1", "table-1", "m1", str(RUN), reading=9)
)
READING = BranchState(Checkpoint(3, {"part-0": "10"}, source="t"), (part(0), part(1)))


def test_whoever_has_the_epoch_owns_the_state() -> None:
    assert check_owner("shop/orders", STOOD, 3, RUN, "table t") is STOOD


@pytest.mark.parametrize(("epoch", "run"), [(2, RUN), (4, RUN), (3, OTHER)])
def test_another_epoch_or_run_has_taken_over(epoch: int, run: Run) -> None:
    with pytest.raises(TakenOver) as caught:
        check_owner("shop/orders", STOOD, epoch, run, "table t")
    assert str(caught.value) == (
        "flow shop/orders was taken over by run r1 on host h1 (pid 7); this run stops, nothing of "
        "it is lost: what it has committed is in the checkpoint"
    )


def test_no_state_was_removed_and_nobody_has_taken_over() -> None:
    with pytest.raises(CheckpointRemoved) as caught:
        check_owner("shop/orders", None, 3, RUN, "table t")
    assert not isinstance(caught.value, TakenOver)
    assert str(caught.value) == (
        "the checkpoint of flow shop/orders was removed while it ran (from table t); restore it, "
        "or start the flow again: without a checkpoint it starts over"
    )


@pytest.mark.parametrize(
    ("state", "known"),
    [
        (BranchState(), False),
        (BranchState(Checkpoint(4)), False),
        (BranchState(Checkpoint(4, {"0": 0})), True),
        (BranchState(Checkpoint(4, source="topic-1")), True),
        (STOOD.forget(), False),
    ],
)
def test_a_branch_is_known_once_it_has_begun(state: BranchState, known: bool) -> None:
    assert state.is_known is known


def test_taking_an_epoch_changes_nothing_else() -> None:
    taken = STOOD.take(OTHER)
    assert (taken.checkpoint.epoch, taken.checkpoint.run) == (4, str(OTHER))
    assert taken.positions == STOOD.positions
    assert READING.take(OTHER).intent == READING.intent


def test_beginning_keeps_what_is_known() -> None:
    span = Span((offsets(0, 9), offsets(2, 4, "1")))
    begun = STOOD.begin(span, TARGET, "table-2")
    assert begun.positions == {"0": 5, "1": 2}
    assert (begun.checkpoint.target, begun.checkpoint.manifest) == ("table-1", "m2")
    assert begun.begin(span, TARGET, "table-2") == begun


def test_beginning_a_bounded_read_records_its_parts_and_no_position() -> None:
    begun = STOOD.begin(Span((part(0), part(1))), TARGET, None)
    assert begun.intent == (part(0), part(1))
    assert begun.positions == STOOD.positions


def test_a_recorded_span_is_handed_back() -> None:
    assert STOOD.unfinished_span is None
    assert READING.unfinished_span == Span((part(0, "10"), part(1)))


def test_only_parts_that_are_not_committed_are_divided() -> None:
    found = READING.divide(Cut({part(1): ("border-1a", "border-1b")}))
    assert found.intent == (part(0, "10"), part(2, name="border-1a"), part(3, name="border-1b"))
    assert found.checkpoint == READING.checkpoint


def test_a_part_that_comes_to_another_position_is_another_part() -> None:
    """What is stored of the span already has come to the first one."""
    found = READING.divide(Cut({part(1): ("border-1",)}, upto={part(1): "9"}))
    assert found.intent == (part(0, "10"), part(2, upto="9", name="border-1"))
    same = READING.divide(Cut({part(1): ("border-1",)}, upto={part(1): "10"}))
    assert same.intent == (part(0, "10"), part(1))


@pytest.mark.parametrize(
    ("state", "slices", "left"),
    [
        (STOOD, (offsets(0, 9),), (offsets(0, 9),)),
        (STOOD, (offsets(0, 5),), ()),
        (STOOD, (offsets(0, 5), offsets(0, 5, "1")), (offsets(0, 5, "1"),)),
        (STOOD, (part(0), part(1)), ()),
        (READING, (part(0), part(1)), (part(1),)),
    ],
)
def test_what_is_left_of_a_span(
    state: BranchState, slices: tuple[Slice, ...], left: tuple[Slice, ...]
) -> None:
    assert state.remaining_slices(Span(slices)) == left


def test_a_restart_is_a_reading_of_its_own() -> None:
    begun = BranchState(STOOD.checkpoint, (part(0),)).restart({"0": 0}, "t2", TARGET, "table-2")
    known = begun.checkpoint
    assert (known.positions, known.source, known.target, known.manifest) == (
        {"0": 0},
        "t2",
        "table-2",
        "m2",
    )
    assert (known.epoch, known.totals, begun.intent) == (3, Totals(5), ())
    assert known.reading > 9
    assert begun.restart({}, "t2", TARGET, None).checkpoint.reading > known.reading


def test_a_forgotten_branch_keeps_its_epoch_and_its_reading() -> None:
    assert STOOD.forget() == BranchState(Checkpoint(3, run=str(RUN), reading=9))


def test_finishing_counts_and_ends_the_intent() -> None:
    done = READING.finish({"table": "10"}, Totals(4, 1, 40))
    at = done.checkpoint.committed_at
    assert at is not None
    expected = Checkpoint(3, {"table": "10"}, Totals(4, 1, 40), source="t", committed_at=at)
    assert done == BranchState(expected)


def test_receipts_are_in_the_order_of_the_span_and_not_of_the_names_of_its_parts() -> None:
    """Of a key that comes in several parts the last record counts."""
    parts = [part(number) for number in range(12)]
    by_name = sorted(parts, key=lambda piece: piece.partition)
    receipts = [Receipt("main", piece.partition, "10", Totals()) for piece in by_name]
    others = [replace(one, branch="other") for one in receipts]
    found = complete(parts, [*others, *receipts], "main")
    assert [(one.branch, one.partition) for one in found] == [
        ("main", f"part-{number}") for number in range(12)
    ]
