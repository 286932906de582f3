"""`table.exec.state.ttl`: what nobody touches is forgotten, and what is touched is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report, Start
from tests.drained import drained
from tests.languages.sql.files import Sent, Sql, latest

Run = Callable[[Flow], list[Report]]
EXPIRE = "SET 'table.exec.state.ttl' = '1 h';"
KEYED = "k BIGINT, g STRING, PRIMARY KEY (k) NOT ENFORCED"
COUNTS = "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
COUNTED = "SELECT g, COUNT(*) FROM s GROUP BY g"


@dataclass
class Clock:
    """When micro-batches are planned."""

    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def later(self, minutes: int) -> None:
        """Time goes on."""
        self.now += timedelta(minutes=minutes)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    found = Clock()
    monkeypatch.setattr("dataflow_assets.languages.sql.state.session.utc_now", found)
    return found


def inserted(*groups: str) -> list[Sent]:
    return [(None, b'{"g":"%s"}' % one.encode()) for one in groups]


def row(key: int, group: str) -> Sent:
    return b'{"k":%d}' % key, json.dumps({"k": key, "g": group}).encode()


def rows(sql: Sql) -> list[tuple[Any, ...]]:
    """What the topic says of each key."""
    stored = latest(sql.stored())
    return [tuple(json.loads(value).values()) for _, value in sorted(stored.items())]


def test_a_group_begins_anew_once_it_is_forgotten(sql: Sql, run: Run, clock: Clock) -> None:
    flow = sql.write("g STRING", COUNTS, COUNTED, EXPIRE)
    for sent, wanted in (
        (("x", "y"), [("x", 1), ("y", 1)]),
        (("x",), [("x", 2), ("y", 1)]),
        (("x", "y"), [("x", 3), ("y", 1)]),
    ):
        sql.send(inserted(*sent))
        run(flow)
        assert rows(sql) == wanted
        clock.later(35)


def test_a_row_that_comes_again_as_it_was_touches_its_key_and_its_group(
    sql: Sql, run: Run, clock: Clock
) -> None:
    flow = sql.write(KEYED, COUNTS, COUNTED, EXPIRE)
    for minutes, sent, wanted in (
        (0, [row(1, "x"), row(2, "y")], [("x", 1), ("y", 1)]),
        (35, [row(1, "x")], [("x", 1), ("y", 1)]),
        (35, [row(3, "x"), row(4, "y")], [("x", 2), ("y", 1)]),
        (20, [row(1, "z")], [("x", 1), ("y", 1), ("z", 1)]),
    ):
        clock.later(minutes)
        sql.send(sent)
        run(flow)
        assert rows(sql) == wanted


def test_a_group_that_stays_as_it_is_touches_the_groups_behind_it(
    sql: Sql, run: Run, clock: Clock
) -> None:
    inner = "SELECT g, COUNT(DISTINCT g) AS n FROM s GROUP BY g"
    query = f"SELECT n, COUNT(DISTINCT g) FROM ({inner}) GROUP BY n"
    into = COUNTS.replace("g STRING", "g BIGINT")
    flow = sql.write("g STRING", into, query, EXPIRE)
    for sent, wanted in ((("x",), [(1, 1)]), (("x",), [(1, 1)]), (("x", "y"), [(1, 2)])):
        sql.send(inserted(*sent))
        run(flow)
        assert rows(sql) == wanted
        clock.later(35)


def test_without_the_setting_nothing_is_forgotten(sql: Sql, run: Run, clock: Clock) -> None:
    flow = sql.write("g STRING", COUNTS, COUNTED)
    sql.send(inserted("x"))
    run(flow)
    clock.later(60 * 24 * 365)
    sql.send(inserted("x"))
    run(flow)
    assert rows(sql) == [("x", 2)]


def test_a_setting_that_is_switched_on_later_counts_from_then_on(
    sql: Sql, run: Run, clock: Clock
) -> None:
    """Whatever the age of what is kept by then; once more after it was switched off.

    What was forgotten in between stays forgotten: `w` begins anew while the setting is off.
    """
    sql.send(inserted("w", "x", "y", "z"))
    run(sql.write("g STRING", COUNTS, COUNTED))
    expiring = sql.write("g STRING", COUNTS, COUNTED, EXPIRE)
    for minutes, sent, wanted in (
        (60 * 24 * 365, ("x",), [("w", 1), ("x", 2), ("y", 1), ("z", 1)]),
        (35, ("y",), [("w", 1), ("x", 2), ("y", 2), ("z", 1)]),
        (35, ("x", "y", "z"), [("w", 1), ("x", 1), ("y", 3), ("z", 1)]),
    ):
        clock.later(minutes)
        sql.send(inserted(*sent))
        run(expiring)
        assert rows(sql) == wanted
    clock.later(1)
    sql.send(inserted("w", "w", "w", "x"))
    run(sql.write("g STRING", COUNTS, COUNTED))
    assert rows(sql) == [("w", 3), ("x", 2), ("y", 3), ("z", 1)]
    clock.later(60 * 24)
    sql.send(inserted("w", "x", "y"))
    run(sql.write("g STRING", COUNTS, COUNTED, EXPIRE))
    assert rows(sql) == [("w", 4), ("x", 3), ("y", 4), ("z", 1)]


def test_a_clock_that_is_behind_keeps_the_order(sql: Sql, run: Run, clock: Clock) -> None:
    """As after a takeover by another machine."""
    flow = sql.write("g STRING", COUNTS, COUNTED, EXPIRE)
    sql.send(inserted("x"))
    run(flow)
    clock.now -= timedelta(seconds=2)
    sql.send(inserted("x", "x", "x"))
    run(flow)
    clock.now += timedelta(minutes=60, seconds=1)
    sql.send(inserted("x"))
    run(flow)
    assert rows(sql)[0][1] in (1, 5)


def test_a_changed_query_deletes_nothing_where_rows_expire(
    sql: Sql, run: Run, clock: Clock
) -> None:
    """A row that is not in its state may have been written, and have expired since."""
    sql.send(inserted("x", "y"))
    run(sql.write("g STRING", COUNTS, COUNTED, EXPIRE))
    clock.later(5)
    changed = COUNTED.replace("FROM s", "FROM s WHERE g <> 'x'")
    drained(sql.write("g STRING", COUNTS, changed, EXPIRE), Start("earliest"))
    assert rows(sql) == [("x", 1), ("y", 1)]
