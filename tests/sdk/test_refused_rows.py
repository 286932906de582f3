"""Halving finds the rows at fault, stores every other one once, or finds that no row is."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from typing_extensions import override

from dataflow_assets.contracts import OffsetSlice, Rejection
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.sdk.refused_rows import NoneStored, SuspectRows
from dataflow_assets.sdk.server_failure import Fault, ServerFailure

SLICE = OffsetSlice("3", 0, 1_000)


class Refusal(ServerFailure):
    """Of a server that is asked for rows."""

    def __init__(self, fault: Fault) -> None:
        super().__init__("refused")
        self.found = fault

    @property
    @override
    def fault(self) -> Fault:
        return self.found

    @override
    def error(self, what: str) -> DataflowError:
        return PermanentError(f"{what}: {self.reason}")


class Target:
    """Takes all rows of an attempt, or none where one of them is bad."""

    def __init__(self, bad: set[int], fault: Fault, fails_first: int = 0) -> None:
        self.bad, self.fault, self.left = bad, fault, fails_first
        self.stored, self.attempts = Counter[int](), 0

    def __call__(self, rows: pa.RecordBatch) -> Refusal | None:
        self.attempts += 1
        numbers = rows.column("n").to_pylist()
        self.left -= 1
        if self.left >= 0 or not self.bad.isdisjoint(numbers):
            return Refusal(self.fault)
        self.stored.update(numbers)
        return None


def searched(target: Target, rows: int, suspects: SuspectRows | None = None) -> list[int]:
    """The rows that are found; each is noted as a record."""
    suspects = suspects or SuspectRows()
    batch = pa.record_batch({"n": pa.array(range(rows), pa.int64())})
    found = suspects.search(batch, target)
    for one in found:
        assert one.row.column("n").to_pylist() == [one.at]
        suspects.doubt(Rejection(one.at, "sink", one.failure.reason, None), one.failure)
    suspects.check("orders", SLICE)
    return [one.at for one in found]


@pytest.mark.parametrize("fault", [Fault.ROW, Fault.LIKELY, Fault.OPEN])
@pytest.mark.parametrize("seed", range(20))
def test_exactly_the_bad_rows_are_found_and_the_others_stored_once(fault: Fault, seed: int) -> None:
    chance = random.Random(seed)
    rows = chance.randint(2, 300)
    bad = {row for row in range(rows) if chance.random() < chance.choice([0.01, 0.3])}
    bad.discard(chance.randrange(rows))
    target = Target(bad, fault)
    assert searched(target, rows) == sorted(bad)
    assert target.stored == Counter(set(range(rows)) - bad)


@pytest.mark.parametrize("bad", [range(500), range(500, 1_000), range(0, 1_000, 2)])
def test_many_bad_rows_at_one_end_do_not_look_like_all(bad: range) -> None:
    target = Target(set(bad), Fault.OPEN)
    assert searched(target, 1_000) == list(bad)


@pytest.mark.parametrize("fault", [Fault.LIKELY, Fault.OPEN])
@pytest.mark.parametrize("rows", [2, 3, 100_000])
def test_where_every_row_is_refused_the_target_is_at_fault_and_the_first_is_named(
    fault: Fault, rows: int
) -> None:
    target = Target(set(range(rows)), fault)
    with pytest.raises(NoneStored) as caught:
        searched(target, rows)
    sentence = str(caught.value.error("writing to t"))
    seen = "no row is taken" if rows < 32 else "32 rows were refused before one was taken"
    assert sentence == (
        f"writing to t: {seen}, the first one is orders, partition 3, offset 0: refused"
    )
    assert target.attempts < 1_000


@pytest.mark.parametrize("in_order", [False, True])
def test_a_search_that_gave_up_is_not_forgotten_by_the_next_one_of_the_slice(
    in_order: bool,
) -> None:
    """Rows of it were never tried: a commit would lose them."""
    suspects, target = SuspectRows(), Target(set(range(3_000)), Fault.LIKELY)
    batches = [pa.record_batch({"n": range(3_000)}), pa.record_batch({"n": range(2_999, 3_100)})]
    for batch in batches:
        for one in suspects.search(batch, target, in_order=in_order):
            suspects.doubt(Rejection(one.at, "sink", "refused", None), one.failure)
    assert target.stored == Counter(range(3_000, 3_100))
    with pytest.raises(NoneStored):
        suspects.check("orders", SLICE)


def ordered(target: Target, rows: int, bad: set[int]) -> tuple[list[int], int]:
    """What is found in order, and how many rows were asked about."""
    asked: list[int] = []

    def passes(part: pa.RecordBatch) -> bool:
        asked.extend(part.column("n").to_pylist())
        return bad.isdisjoint(asked[-part.num_rows :])

    suspects, batch = SuspectRows(), pa.record_batch({"n": pa.array(range(rows), pa.int64())})
    found = suspects.search(batch, target, in_order=True, passes=passes)
    for one in found:
        suspects.doubt(Rejection(one.at, "sink", one.failure.reason, None), one.failure)
    suspects.check("orders", SLICE)
    return [one.at for one in found], len(asked)


def test_more_than_a_thousand_in_order_do_not_speak_for_the_rows_behind_them() -> None:
    bad = set(range(1_100))
    target = Target(bad, Fault.LIKELY)
    found, asked = ordered(target, 3_000, bad)
    assert found == sorted(bad)
    assert target.stored == Counter(range(1_100, 3_000))
    assert asked <= 64


def test_where_no_row_of_a_sample_passes_the_rows_behind_are_not_tried() -> None:
    target = Target(set(range(50_000)), Fault.LIKELY)
    with pytest.raises(NoneStored) as caught:
        ordered(target, 50_000, target.bad)
    assert "1,000 rows were refused before one was taken" in str(caught.value.error("w"))
    assert target.attempts < 3_000


def test_a_row_alone_is_at_fault_where_its_failure_is_mostly_a_rows() -> None:
    assert searched(Target({0}, Fault.ROW), 1) == [0]
    assert searched(Target({0}, Fault.LIKELY), 1) == [0]
    with pytest.raises(NoneStored):
        searched(Target({0}, Fault.OPEN), 1)


def test_rows_before_are_evidence_for_a_row_alone() -> None:
    suspects = SuspectRows()
    assert searched(Target(set(), Fault.OPEN), 5, suspects) == []
    assert searched(Target({0}, Fault.OPEN), 1, suspects) == [0]


def test_rows_that_are_surely_bad_say_nothing_about_the_others() -> None:
    """Many of them, then one that is refused otherwise, then sound ones."""
    suspects = SuspectRows()
    bad = pa.record_batch({"n": pa.array(range(100), pa.int64())})
    assert len(suspects.search(bad, Target(set(range(100)), Fault.ROW))) == 100
    assert searched(Target({0}, Fault.OPEN), 9, suspects) == [0]


def test_a_row_that_is_surely_bad_is_no_second_doubt() -> None:
    """Each of the two would be set aside alone."""
    suspects = SuspectRows()
    assert searched(Target({0}, Fault.ROW), 1, suspects) == [0]
    assert searched(Target({0}, Fault.LIKELY), 1, suspects) == [0]


def test_what_passes_by_itself_is_nobodys_fault() -> None:
    """The first attempts fail whatever is in them."""
    target = Target({7}, Fault.OPEN, fails_first=12)
    assert searched(target, 100) == [7]
    assert target.stored == Counter(set(range(100)) - {7})


def test_what_is_no_matter_of_rows_ends_the_search() -> None:
    def away(_: pa.RecordBatch) -> None:
        raise TransientError("the server is away")

    with pytest.raises(TransientError):
        SuspectRows().search(pa.record_batch({"n": [1, 2]}), away)
