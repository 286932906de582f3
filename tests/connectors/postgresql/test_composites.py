"""Words for the server's clock inside composites: rejected where they are dates or times, only."""

from __future__ import annotations

from typing import Any

import pytest

import devservers
from tests.connectors.postgresql.driver import Place
from tests.connectors.postgresql.test_arrays import all_stored


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    return Place(postgresql.dsn(), schema)


TYPES = """
CREATE DOMAIN due AS date;
CREATE TYPE visit AS (note text, day due, span tsrange);
ALTER TYPE visit DROP ATTRIBUTE note;
ALTER TYPE visit ADD ATTRIBUTE note text, ADD ATTRIBUTE "at" timestamptz[];
CREATE TYPE trip AS (name text, first visit, "all" visit[]);
CREATE TYPE plain AS (a text, b int)
"""
PLAIN = "(2026-01-31,,,)"
ROWS: list[tuple[str, str, bool]] = [
    ("visit", PLAIN, True),
    ("visit", "(,,now,)", True),
    ("visit", '(,,"say ""today, tomorrow""",)', True),
    ("visit", "(now,,,)", False),
    ("visit", ' (" TODAY 10:00 ",,,)', False),
    ("visit", "(to\\day,,,)", False),
    ("visit", '(to"d"ay,,,)', False),
    ("visit", '(,"[now,)",,)', False),
    ("visit", '(,,,"{2026-01-31,yesterday}")', False),
    ("visit", "(,,,{now})", False),
    ("visit", "(,,now,{2026-01-31})", True),
    ("trip", '(now,"(2026-01-31,,now,)","{""(,,now,)""}")', True),
    ("trip", '(x,"(now,,,)",)', False),
    ("trip", '(x,,"{""(,,,)"",""(tomorrow,,,)""}")', False),
    ("plain", "(now,1)", True),
]


@pytest.mark.parametrize("array", [False, True], ids=["a column", "an array"])
@pytest.mark.parametrize(("declared", "value", "taken"), ROWS)
def test_a_word_for_the_clock_is_rejected_where_it_is_a_time(
    declared: str, value: str, taken: bool, array: bool, place: Place
) -> None:
    place.run(TYPES)
    place.run(f"CREATE TABLE orders (id int, a {declared}{'[]' if array else ''})")
    values: list[Any] = [[value], [[value, None]]] if array else [value]
    found, reasons = all_stored(place, values)
    assert [text is not None for text in found] == [taken] * len(values)
    assert len(reasons) == (0 if taken else len(values))
    assert all("stands for the server's clock" in reason for reason in reasons)
    if taken and not array:
        assert found == [place.run(f"SELECT '{value}'::{declared}::text")[0][0]]


def test_postgresql_s_own_arrays_of_composites_follow_the_same_rule(place: Place) -> None:
    place.run(TYPES)
    place.run("CREATE TABLE orders (id int, a visit[])")
    found, reasons = all_stored(place, ['{"(2026-01-31,,now,)"}', '{"(now,,,)"}'])
    assert found == ['{"(2026-01-31,,now,)"}', None]
    assert len(reasons) == 1
