"""The models of refused records and exchanged values see what is wrong."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.stress.chaos_refused import PoisonModel, SeatModel
from tests.systems import Row


@pytest.mark.parametrize(
    ("damage", "counts"),
    [
        ("none", (0, 0, 0, 0)),
        ("lost", (1, 0, 0, 0)),
        ("doubled", (0, 1, 0, 0)),
        ("beside", (0, 0, 1, 0)),
    ],
)
def test_a_refused_record_stands_once_among_the_rejected(
    damage: str, counts: tuple[int, ...]
) -> None:
    model = PoisonModel(random.Random(1), upserts=False, keeps_absent=False)
    model.draw(500)
    rejected = [*model.refused]
    assert len(rejected) > 5
    if damage == "lost":
        rejected.pop()
    elif damage == "doubled":
        rejected.append(rejected[0])
    elif damage == "beside":
        rejected.append(next(n for n in model.sent if n not in model.refused))
    assert model.misplaced(rejected).counts == counts


def test_a_refused_record_may_be_superseded_by_a_newer_one_of_its_key() -> None:
    model = PoisonModel(random.Random(1), upserts=True, keeps_absent=True)
    model.draw(500)
    superseded = [n for n, id_ in model.refused.items() if model.last.get(id_, -1) > n]
    last = [n for n in model.refused if n not in superseded]
    assert superseded
    assert last
    assert not model.misplaced(last)
    assert model.misplaced(superseded).counts == (len(last), 0, 0, 0)


def test_no_two_rows_have_one_seat_after_any_record() -> None:
    rows: dict[int, Row] = {}
    changes = SeatModel(random.Random(1), upserts=True, keeps_absent=True).draw(3_000)
    for change in changes:
        if change.op == "delete":
            rows.pop(change.row["id"], None)
        else:
            rows[change.row["id"]] = change.row
        seats = Counter(row["seat"] for row in rows.values() if row["seat"] is not None)
        assert max(seats.values(), default=1) == 1
    assert sum(change.row.get("seat", 0) is None for change in changes) > 100
