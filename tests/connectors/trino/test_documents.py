"""What is stored of statements in doubt: little for each one, and an earlier form is read."""

from __future__ import annotations

import msgspec
import pytest

from dataflow_assets.connectors.trino.sink.recovery import ends_of, unknown_end, unknown_position
from dataflow_assets.connectors.trino.table.document import (
    Doubt,
    TrinoDocument,
    TrinoPending,
    parse,
)
from dataflow_assets.connectors.trino.table.table import TrinoPlace
from dataflow_assets.contracts import Checkpoint, Target

PLACE = TrinoPlace("lake", "shop", "orders")
TARGET = Target("ns/flow", "trino", "h", "t")
EARLIER = (
    '{"checkpoint":{"epoch":7,"positions":{"0":5},"totals":{"rows":5},"source":"s","reading":3},'
    '"pending":{"query":"q2","checkpoint":{"epoch":7,"positions":{"0":8},"reading":3},"base":"11"},'
    '"doubts":[{"query":"q1","checkpoint":{"epoch":6,"positions":{"0":7},"reading":3},"base":"10"}]}'
)
"""A row as the version before has written it."""


def test_a_row_of_an_earlier_version_says_the_same() -> None:
    document = parse(EARLIER)
    assert document.open_doubts == (Doubt("q2", "11", 3), Doubt("q1", "10", 3))
    assert [one.checkpoint.positions for one in document.whole] == [{"0": 8}, {"0": 7}]
    assert document.tells


def query(number: int) -> str:
    return f"20260101_000000_{number:05}_aaaaa"


def test_a_failure_adds_little_however_many_partitions_there_are() -> None:
    """The row of the branch is one statement, which `query.max-length` of Trino limits."""
    positions: dict[str, int | str] = {str(number): 10**12 + number for number in range(1000)}
    base = str(9 * 10**18)
    known = Checkpoint(epoch=1, positions=positions, reading=1_790_000_000)
    doubts = [Doubt(query(number), base, known.reading) for number in range(1001)]
    documents = [TrinoDocument(known, aside=tuple(doubts[:count])) for count in (1, 1001)]
    lengths = [len(msgspec.json.encode(document)) for document in documents]
    assert lengths[1] - lengths[0] <= 100 * 1000
    document = TrinoDocument(known, pending=TrinoPending(query(1), known, base))
    assert document.open_doubts == (Doubt(query(1), base, known.reading),)


def test_the_rows_that_are_there_count_before_what_nobody_knows() -> None:
    """Of one reading at most one statement has stored rows; of another one none counts."""
    asked = [Doubt("a", "1", 3), Doubt("b", "1", 3), Doubt("c", "1", 2), Doubt("d", "1", 3)]
    known = Checkpoint(epoch=1, positions={"0": 5}, reading=3)
    ends = ends_of(asked, [None, True, True, False], known)
    assert (ends.stored, ends.unknown, ends.failed) == (asked[1], (asked[0],), ("d",))
    ends = ends_of(asked, [None, True, None, False], Checkpoint(epoch=1, reading=3))
    assert (ends.stored, ends.unknown, ends.failed) == (None, (), ("d",))


def test_a_person_is_told_which_records_to_look_for() -> None:
    known = Checkpoint(epoch=1, positions={"0": 5, "1": 7})
    after = Checkpoint(epoch=1, positions={"0": 9, "1": 7})
    text = str(unknown_end(PLACE, "q", known, after, "ns/flow"))
    assert "its rows (the records from 0=5,1=7 up to 0=9,1=7) in lake.shop.orders cannot be" in text
    assert (
        "then start the flow behind those, or at the first of them if none is, with --from" in text
    )


@pytest.mark.parametrize(
    ("known", "after"),
    [
        ({"0": 5}, None),
        ({"table": "[1]"}, {"table": "[2]"}),
        ({str(n): 5 for n in range(51)}, {str(n): 6 for n in range(51)}),
    ],
    ids=["nobody has kept it", "no offsets", "too many"],
)
def test_positions_that_cannot_be_given_are_not_printed(
    known: dict[str, int | str], after: dict[str, int | str] | None
) -> None:
    before, behind = Checkpoint(epoch=1, positions=known), after and Checkpoint(1, after)
    text = str(unknown_end(PLACE, "q", before, behind or None, "ns/flow"))
    assert "its rows in lake.shop.orders" in text


def test_rows_whose_position_is_not_kept_are_named() -> None:
    text = str(unknown_position(PLACE, "q", "ns/flow"))
    assert "query q has stored its rows in lake.shop.orders after it was taken for failed" in text
