"""The model of queries under kills sees each kind of damage: else its zeros would say nothing."""

from __future__ import annotations

import json

import pytest

from tests.stress.chaos_sql import Rows, counted, first, judged
from tests.systems import Row

ROWS: list[Row] = [
    {"id": n, "n": n, "name": f"x{n % 5}", "price": None if n % 4 else n / 2} for n in range(60)
]


def log(rows: Rows) -> list[tuple[bytes | None, bytes | None]]:
    names = ("g", "rn")
    return [
        (json.dumps(dict(zip(names, key, strict=False))).encode(), json.dumps(row).encode())
        for key, row in rows.items()
    ]


def test_what_is_undamaged_is_right() -> None:
    assert counted(ROWS)[3,] == {"g": 3, "amount": 9, "names": 5, "total": 279, "least": 3}
    assert [first(ROWS)[3, rn]["n"] for rn in (1, 2, 3)] == [52, 24, 3]
    for rows in (counted(ROWS), first(ROWS)):
        assert not judged(rows, log(rows))


@pytest.mark.parametrize(
    ("damage", "counts"),
    [("lost", (1, 0, 0, 0)), ("doubled", (0, 1, 0, 0)), ("value", (0, 0, 1, 0))],
)
def test_damage_is_seen(damage: str, counts: tuple[int, ...]) -> None:
    rows = counted(ROWS)
    found = log(rows)
    if damage == "lost":
        found.append((found[0][0], None))
    elif damage == "doubled":
        found.append(found[0])
    else:
        found.append((found[0][0], log(counted(ROWS[1:]))[0][1]))
    assert judged(rows, found).counts == counts


def test_a_row_that_must_not_be_there_is_seen() -> None:
    assert judged({}, log(first(ROWS[:1]))).counts == (0, 0, 1, 0)
