"""What is stored of statements in doubt: little for each one, and an earlier form is read."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.sink.recovery import ends_of, forgotten_end, unknown
from dataflow_assets.connectors.trino.table.document import (
    Doubt,
    TrinoDocument,
    TrinoPending,
    parse,
)
from dataflow_assets.connectors.trino.table.doubts import Doubts, divide
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
    assert document.undecided == (Doubt("q2", "11", 3), Doubt("q1", "10", 3))
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
    assert document.undecided == (Doubt(query(1), base, known.reading),)


class Kept:
    """A client that notes what it runs, and answers with one row."""

    def __init__(self, answer: object = None) -> None:
        self.ran, self.answer = list[str](), answer

    def run(self, sql: str) -> int:
        self.ran.append(sql)
        return 1

    def value(self, _: str) -> Any:
        return self.answer


def doubts(client: Kept, most: int = 100_000) -> Doubts:
    return Doubts(
        cast("TrinoClient", client), TrinoPlace("lake", "s", "dataflow_checkpoints"), TARGET, most
    )


def test_checkpoints_are_stored_in_statements_that_trino_takes() -> None:
    """A hundred of an earlier version's row, at once."""
    client = Kept()
    after = Checkpoint(epoch=1, positions={str(n): n for n in range(100)})
    statements = [TrinoPending(query(number), after) for number in range(100)]
    doubts(client).keep(statements, 4)
    assert 1 < len(client.ran) < 100
    assert all(len(sql) < 100_000 for sql in client.ran)
    assert [sum(query(n) in sql for sql in client.ran) for n in range(100)] == [1] * 100
    doubts(unused := Kept()).keep([], 4)
    assert unused.ran == []


def test_a_checkpoint_comes_back_as_it_was_stored() -> None:
    after = Checkpoint(epoch=1, positions={"0": 5}, reading=9)
    client = Kept(msgspec.json.encode(TrinoDocument(after)).decode())
    assert doubts(client).checkpoint("q") == after
    assert doubts(Kept()).checkpoint("q") is None


def test_rows_are_removed_up_to_the_epoch_of_the_session() -> None:
    """A driver that is late must not remove what the next one needs; what fails is left there."""

    class Refused(Kept):
        def run(self, sql: str) -> int:
            super().run(sql)
            raise TrinoFailure("not now", "NOT_SUPPORTED", "USER_ERROR")

    doubts(client := Refused()).drop(7)
    assert len(client.ran) == 1
    assert "epoch <= 7" in client.ran[0]
    assert "'ns/flow:trino in doubt'" in client.ran[0]


@pytest.mark.parametrize(
    ("rows", "groups"),
    [
        ([], []),
        (["aaa"], [["aaa"]]),
        (["aaa", "bbb"], [["aaa", "bbb"]]),
        (["aaa", "bbb", "ccc"], [["aaa", "bbb"], ["ccc"]]),
        (["a" * 30, "b", "c"], [["a" * 30], ["b", "c"]]),
    ],
)
def test_rows_are_divided_by_their_length(rows: list[str], groups: list[list[str]]) -> None:
    assert list(divide(rows, 10)) == groups


def test_the_rows_that_are_there_count_before_what_nobody_knows() -> None:
    """Of one reading at most one statement has stored rows; of another one none counts."""
    asked = [Doubt("a", "1", 3), Doubt("b", "1", 3), Doubt("c", "1", 2), Doubt("d", "1", 3)]
    known = Checkpoint(epoch=1, positions={"0": 5}, reading=3)
    ends = ends_of(asked, [None, True, True, False], known)
    assert (ends.stored, ends.unknown, ends.failed) == (asked[1], (asked[0],), ("d",))
    ends = ends_of(asked, [None, True, None, False], Checkpoint(epoch=1, reading=3))
    assert (ends.stored, ends.unknown, ends.failed) == (None, (), ("d",))


def test_a_person_is_told_which_records_to_look_for_and_both_ways_on() -> None:
    known = Checkpoint(epoch=1, positions={"0": 5, "1": 7})
    after = Checkpoint(epoch=1, positions={"0": 9, "1": 7})
    text = str(unknown(PLACE, "q", known, [after, after], "ns/flow"))
    assert "from 0=5,1=7 up to (without) 0=9,1=7 are in the table" in text
    assert "If they are, start the flow with --from 0=9,1=7 --yes" in text
    assert "if none is, with --from 0=5,1=7 --yes" in text


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
    text = str(unknown(PLACE, "q", before, [behind or None], "ns/flow"))
    assert text.endswith("table: truncate, or from a position with --from")


def test_of_several_ends_none_is_called_the_right_one() -> None:
    ends = [Checkpoint(epoch=1, positions={"0": at}) for at in (9, 7)]
    text = str(unknown(PLACE, "q", Checkpoint(epoch=1, positions={"0": 5}), ends, "ns/flow"))
    assert text.endswith("table: truncate, or from a position with --from")


def test_a_row_that_somebody_has_deleted_is_named() -> None:
    text = str(
        forgotten_end(PLACE, "q", TrinoPlace("lake", "shop", "dataflow_checkpoints"), "ns/flow")
    )
    assert "query q has stored its rows in lake.shop.orders, and the row of " in text
    assert "lake.shop.dataflow_checkpoints with the stamp q" in text
