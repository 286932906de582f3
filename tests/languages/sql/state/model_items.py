"""Joins of rows with their own items, for random queries: what is written, and which rows it makes.

An array or map that is null has no items, as an empty one has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

COLUMNS = "xs ARRAY<INT>, ps ARRAY<ROW<p STRING, x INT>>, m MAP<STRING, INT>"
Row = dict[str, Any]


@dataclass(frozen=True)
class Items:
    """Joins behind the table, and the columns of the items."""

    sql: str
    types: Mapping[str, str]
    of: Callable[[Row], Sequence[Row]]


def _numbers(row: Row) -> Sequence[Row]:
    return [{"x": one} for one in row["xs"] or ()]


def _numbered(row: Row) -> Sequence[Row]:
    found = [{"x": one, "o": number} for number, one in enumerate(row["xs"] or (), 1)]
    return found or [{"x": None, "o": None}]


def _pairs(row: Row) -> Sequence[Row]:
    return [one for one in row["ps"] or () if one is not None]


def _entries(row: Row) -> Sequence[Row]:
    return [{"p": key, "x": value} for key, value in (row["m"] or {}).items()]


def _positive(row: Row) -> Sequence[Row]:
    return [one for one in _numbers(row) if one["x"] is not None and one["x"] > 0]


def _twice(row: Row) -> Sequence[Row]:
    return [{**one, "o": item} for one in _numbers(row) for item in (one["x"], row["h"])]


_X, _XO, _PX = {"x": "INT"}, {"x": "INT", "o": "INT"}, {"p": "STRING", "x": "INT"}
NUMBERED = Items(
    " LEFT JOIN UNNEST(xs) WITH ORDINALITY AS u (x, o) ON TRUE",
    _XO,
    _numbered,
)
ITEMS = (
    NUMBERED,
    Items(" CROSS JOIN UNNEST(xs) AS u (x)", _X, _numbers),
    Items(", UNNEST(ps) AS u", _PX, _pairs),
    Items(" CROSS JOIN UNNEST(m) AS u (p, x)", _PX, _entries),
    Items(" JOIN UNNEST(xs) AS u (x) ON x > 0", _X, _positive),
    Items(
        " CROSS JOIN UNNEST(xs) AS u (x) LEFT JOIN UNNEST(ARRAY[x, h]) AS w (o) ON TRUE",
        _XO,
        _twice,
    ),
)


def row(random: Random) -> Row:
    """Any arrays and maps: every fifth one is null, and some are empty."""

    def number() -> int | None:
        found: int | None = random.choice([None, *range(-2, 3)])
        return found

    def pair() -> Row | None:
        return (
            {"p": random.choice(["p", "q", None]), "x": number()} if random.random() < 0.9 else None
        )

    made: Row = {
        "xs": [number() for _ in range(random.randint(0, 3))],
        "ps": [pair() for _ in range(random.randint(0, 3))],
        "m": {one: number() for one in "pqr" if random.random() < 0.5},
    }
    return {name: one if random.random() < 0.8 else None for name, one in made.items()}
