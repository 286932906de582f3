"""Where a connector goes on whose offsets do not say so by themselves."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.kafka_connect.host.resuming import (
    Repeats,
    after,
    may_be_cut,
    resumable,
)
from dataflow_assets.connectors.kafka_connect.spool import ConnectOffset

PARTITION = '{"server":"s"}'


def at(entry: int, count: int) -> dict[str, Any]:
    return {"lsn_proc": entry, "lsn_events_processed": count, "txId": 7}


def texts(*offsets: Any) -> list[str]:
    return [json.dumps(one) for one in offsets]


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        ({"position": 1}, True),
        ({"lsn": 1, "snapshot": "INITIAL", "snapshot_completed": False}, False),
        ({"lsn": 1, "snapshot": "INITIAL", "snapshot_completed": True}, True),
        ({"file": "b.1", "pos": 4, "snapshot": "INITIAL"}, False),
        ({"file": "b.1", "pos": 4, "snapshot": "BLOCKING"}, False),
        ({"file": "b.1", "pos": 4, "snapshot": True}, False),
        ({"file": "b.1", "pos": 4, "snapshot": "true"}, False),
        ({"file": "b.1", "pos": 4, "snapshot": False}, True),
        ({"file": "b.1", "pos": 4}, True),
        ({"sec": 1, "initsync": True}, False),
        ({"sec": 1, "initsync": False}, True),
        ({"snapshot": 12}, True),
        (at(1, 1), True),
        (None, True),
    ],
)
def test_inside_of_a_snapshot_nothing_goes_on(offset: Any, found: bool) -> None:
    assert resumable(offset) is found


def test_most_offsets_are_those_of_the_last_record() -> None:
    assert after(texts({"position": 1}, {"position": 2}), 3, None) == ConnectOffset(
        3, {"position": 2}
    )
    assert after(texts(at(1, 1), at(1, 2)), 0, None) == ConnectOffset(0, at(1, 2))


def test_the_first_record_of_an_entry_is_read_again() -> None:
    found = after(texts(at(1, 1), at(2, 1), at(2, 2), at(3, 1)), 0, None)
    assert found == ConnectOffset(0, at(2, 2), at(3, 1))
    assert found.last == at(3, 1)


def test_the_offset_before_all_records_helps_where_they_begin_an_entry() -> None:
    snapshot = ConnectOffset(0, {"lsn": 5, "snapshot_completed": True})
    assert after(texts(at(9, 1)), 0, snapshot) == ConnectOffset(0, snapshot.value, at(9, 1))
    one = ConnectOffset(0, at(2, 2), at(3, 1))
    assert after(texts(at(4, 1)), 0, one) == ConnectOffset(0, at(3, 1), at(4, 1)), (
        "entry 3 was a single"
    )
    twice = ConnectOffset(0, at(2, 2), at(3, 1), 2)
    assert after(texts(at(3, 1)), 0, one) == twice, "another record of the same offset"
    assert after(texts(at(9, 1)), 0, None) == ConnectOffset(0, at(9, 1)), "nothing else is known"


def rows(*places: tuple[int, int]) -> pa.RecordBatch:
    offsets = texts(*(at(*place) for place in places))
    return pa.RecordBatch.from_pydict(
        {"partition": [PARTITION] * len(places), "offset": offsets, "n": list(range(len(places)))}
    )


@pytest.mark.parametrize(
    ("delivered", "new"),
    [
        ([[(3, 1), (3, 2), (4, 1)]], [[1, 2]]),
        ([[(2, 3)], [(3, 1)], [(3, 1)]], [[0], [], [0]]),
        ([[(3, 2), (3, 1)]], [[0, 1]]),
        ([[(4, 1), (3, 1)]], [[0, 1]]),
    ],
    ids=["first", "behind others", "passed in its entry", "passed"],
)
def test_the_record_that_is_read_again_is_dropped_once(
    delivered: list[list[tuple[int, int]]], new: list[list[int]]
) -> None:
    repeats = Repeats({PARTITION: ConnectOffset(0, at(2, 2), at(3, 1))})
    found = [repeats.drop(rows(*places)).column("n").to_pylist() for places in delivered]
    assert found == new


ENTRIES = [
    *[(1, 1), (1, 2), (1, 2), (1, 3)],
    *[(2, 1)] * 3,
    *[(3, n) for n in range(1, 9)],
    *[(4, 1)] * 2,
    *[(4, 2)] * 3,
    *[(5, 1), (6, 1)],
]
"""A deletion and its tombstone have one offset; with another primary key so has the insert."""


def delivered(offset: dict[str, Any] | None) -> list[tuple[int, int, int]]:
    """(number of the record, its entry, its number there), as Debezium goes on behind an offset.

    Behind the first of an entry the rest is left out; behind a later one counting begins again.
    """
    places = [(n, entry, count) for n, (entry, count) in enumerate(ENTRIES)]
    if offset is None:
        return places
    here, behind = offset["lsn_proc"], offset["lsn_events_processed"]
    left = [
        (n, entry, count - behind if entry == here else count)
        for n, entry, count in places
        if entry >= here
    ]
    return [one for one in left if one[1] > here or (behind > 1 and one[2] > 0)]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("begun", [True, False], ids=["behind a snapshot", "behind nothing"])
def test_records_come_once_wherever_a_part_or_a_crash_divides_them(begun: bool, seed: int) -> None:
    chance, sealed = random.Random(seed), list[int]()
    known = ConnectOffset(0, at(0, 1)) if begun else None
    for _ in range(100):  # processes
        found = delivered(known.value if known else None)
        repeats = Repeats({PARTITION: known} if known else {})
        batch = rows(*((entry, count) for _, entry, count in found))
        new = [found[n] for n in repeats.drop(batch).column("n").to_pylist()]
        for _ in range(chance.randint(1, 3)):  # parts until the next crash
            size = chance.randint(1, 4)
            while size < len(new) and may_be_cut(at(*new[0][1:]), at(*new[size - 1][1:]), known):
                size += 1  # the task waits for more
            part, new = new[:size], new[size:]
            if part:
                known = after(texts(*(at(entry, n) for _, entry, n in part)), 0, known)
                sealed += [number for number, _, _ in part]
    assert sealed == list(range(len(ENTRIES)))


def test_behind_a_snapshot_that_is_not_complete_nothing_goes_on() -> None:
    """It would begin again, and its records come once more."""
    unfinished = {"lsn": 5, "snapshot": "INITIAL", "snapshot_completed": False}
    assert after(texts(unfinished, at(9, 1)), 0, None) == ConnectOffset(0, at(9, 1))
    assert after(texts(at(9, 1)), 0, ConnectOffset(0, unfinished)) == ConnectOffset(0, at(9, 1))


def test_all_records_of_the_last_offset_are_counted() -> None:
    found = after(texts(at(1, 1), at(3, 1), at(3, 1)), 0, None)
    assert found == ConnectOffset(0, at(1, 1), at(3, 1), 2)
    assert after(texts(at(3, 1)), 0, found) == ConnectOffset(0, at(1, 1), at(3, 1), 3)


def test_other_partitions_and_records_without_an_offset_stay() -> None:
    repeats = Repeats({PARTITION: ConnectOffset(0, at(2, 2), at(3, 1))})
    columns = {"partition": ['{"server":"t"}', None], "offset": [*texts(at(3, 1)), None]}
    assert repeats.drop(pa.RecordBatch.from_pydict(columns)).num_rows == 2
