"""The model of chaos sees each kind of damage: else its zeros would say nothing."""

from __future__ import annotations

import random

import pytest

from tests.stress.chaos_model import Model, whole
from tests.systems import Change, Row, state


def model(*, upserts: bool) -> tuple[Model, list[Change]]:
    made = Model(random.Random(1), upserts=upserts, keeps_absent=False)
    return made, made.draw(2_000)


def appended(changes: list[Change]) -> list[Row]:
    return [change.row for change in changes]


def test_an_undamaged_append_is_right() -> None:
    made, changes = model(upserts=False)
    rows = appended(changes)
    assert not made.appended([rows])
    by_partition = [[row for row in rows if row["id"] % 2 == p] for p in (1, 0)]
    assert not made.appended([by_partition[0] + by_partition[1]])
    assert not made.appended(by_partition)
    assert made.ends == {"0": len(by_partition[1]), "1": len(by_partition[0])}


@pytest.mark.parametrize(
    ("damage", "counts"),
    [
        ("lost", (1, 0, 0, 0)),
        ("doubled", (0, 1, 0, 1)),
        ("value", (0, 0, 1, 0)),
        ("order", (0, 0, 0, 1)),
    ],
)
def test_damage_of_an_append_is_seen(damage: str, counts: tuple[int, ...]) -> None:
    made, changes = model(upserts=False)
    rows = [dict(row) for row in appended(changes)]
    same = [at for at, row in enumerate(rows) if row["id"] % 2 == 0]
    if damage == "lost":
        del rows[700]
    elif damage == "doubled":
        rows.append(rows[same[700]])
    elif damage == "value":
        rows[700]["name"] += "!"
    else:
        first, second = same[300:302]
        rows[first], rows[second] = rows[second], rows[first]
    verdict = made.appended([rows])
    assert verdict.counts == counts
    assert verdict


def test_an_undamaged_upsert_is_right() -> None:
    made, changes = model(upserts=True)
    assert not made.upserted(state(changes))
    assert {"inserts", "updates", "deletes"} == set(made.counts)


@pytest.mark.parametrize(
    ("damage", "counts"),
    [
        ("lost", (1, 0, 0, 0)),
        ("doubled", (0, 1, 0, 0)),
        ("value", (0, 0, 1, 0)),
        ("older", (0, 0, 0, 1)),
        ("deleted comes back", (0, 0, 0, 1)),
    ],
)
def test_damage_of_an_upsert_is_seen(damage: str, counts: tuple[int, ...]) -> None:
    made, changes = model(upserts=True)
    rows = [whole(row) for row in state(changes)]
    changed = next(row for row in rows if made.states[row["id"]][-2] is not None)
    if damage == "lost":
        rows.remove(changed)
    elif damage == "doubled":
        rows.append(changed)
    elif damage == "value":
        changed["price"] = 0.125
    elif damage == "older":
        older = made.states[changed["id"]][-2]
        assert older is not None
        changed |= older
    else:
        gone = next(found for found in made.states.values() if found[-1] is None and found[-2])
        assert gone[-2] is not None
        rows.append(gone[-2])
    assert made.upserted(rows).counts == counts


def test_columns_that_a_record_lacks_keep_their_values() -> None:
    kept = Model(random.Random(3), upserts=True, keeps_absent=True)
    rows: dict[int, Row] = {}
    for change in kept.draw(3_000):
        if change.op == "delete":
            rows.pop(change.row["id"], None)
        else:
            rows[change.row["id"]] = {**rows.get(change.row["id"], {}), **change.row}
    assert not kept.upserted(list(rows.values()))
    assert any("price" not in row for row in rows.values())
