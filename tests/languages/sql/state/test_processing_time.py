"""Windows over processing time: of when rows are read, and ended by the clock alone."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from dataflow_assets import failpoints
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.news import news
from dataflow_assets.runs.request import Report
from tests.drained import apart, drain_file
from tests.in_process import Session
from tests.lanes.driving import Driving
from tests.languages.sql.files import Sql

Run = Callable[[Flow], list[Report]]
Row = tuple[str, str, int]
READINGS = "g STRING, p AS PROCTIME()"
COUNTS = "b TIMESTAMP(3), g STRING, n BIGINT"
TUMBLE = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(p), INTERVAL '10' SECOND))"
BY_WINDOW = "GROUP BY window_start, window_end, g"
COUNTED = f"SELECT window_start, g, COUNT(*) FROM {TUMBLE} {BY_WINDOW}"
FIVE_OF_TEN = "TABLE s, DESCRIPTOR(p), INTERVAL '5' SECOND, INTERVAL '10' SECOND"
OLDER = "SELECT {0}_START({1}), g, COUNT(*) FROM s GROUP BY {0}({1}), g".format(
    "TUMBLE", "p, INTERVAL '10' SECOND"
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))


class Clock:
    """What machines show."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def at(self, text: str) -> None:
        """Hour, minute and second."""
        self.now = datetime.fromisoformat(f"2026-01-01T{text}Z")

    def show(self, patch: pytest.MonkeyPatch) -> None:
        """To the flows of this process."""
        for module in ("session", "positions"):
            patch.setattr(f"dataflow_assets.languages.sql.state.{module}.utc_now", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    found.show(monkeypatch)
    return found


def send(sql: Sql, *groups: str) -> None:
    sql.send((None, json.dumps({"g": one}).encode()) for one in groups)


def rows(sql: Sql) -> list[Row]:
    """What the topic has, in the order in which it was written but for groups of one window."""
    found = (json.loads(value or b"") for _, value in sql.rows())
    return [(one["b"][11:], one["g"], one["n"]) for one in found]


def test_a_row_is_in_the_window_in_which_it_was_read_and_the_clock_ends_it(
    sql: Sql, run: Run, clock: Clock
) -> None:
    flow = sql.write(READINGS, COUNTS, COUNTED)
    clock.at("12:00:01")
    send(sql, "x", "x", "y")
    run(flow)
    clock.at("12:00:09.998")
    send(sql, "x")
    run(flow)
    assert rows(sql) == []
    clock.at("12:00:10")
    (*_, last) = run(flow)  # nothing was sent
    assert sorted(rows(sql)) == [("12:00:00", "x", 3), ("12:00:00", "y", 1)]
    assert last.lag.late == 0
    send(sql, "x")
    run(flow)
    clock.at("13:30:00")
    run(flow)
    assert rows(sql)[2:] == [("12:00:10", "x", 1)]
    before = sql.rows()
    clock.at("14:00:00")
    run(flow)
    assert sql.rows() == before


@pytest.mark.parametrize(
    ("columns", "query", "found"),
    [
        (
            READINGS,
            OLDER,
            {"12:00:00": 2, "12:00:10": 1},
        ),
        (
            READINGS,
            f"SELECT window_start, g, COUNT(*) FROM TABLE(HOP({FIVE_OF_TEN})) {BY_WINDOW}",
            {"11:59:55": 1, "12:00:00": 2, "12:00:05": 2, "12:00:10": 1},
        ),
        (
            READINGS,
            f"SELECT window_end, g, COUNT(*) FROM TABLE(CUMULATE({FIVE_OF_TEN})) {BY_WINDOW}",
            {"12:00:05": 1, "12:00:10": 2, "12:00:15": 1, "12:00:20": 1},
        ),
        (
            "g STRING",
            COUNTED.replace("TABLE s", "TABLE v").replace("COUNT(*)", "COUNT(DISTINCT g)"),
            {"12:00:00": 1, "12:00:10": 1},
        ),
        (
            "g STRING, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts",
            COUNTED,
            {"12:00:00": 2, "12:00:10": 1},
        ),
        (
            "g STRING, p AS PROCTIME(), WATERMARK FOR p AS p - INTERVAL '1' HOUR",
            COUNTED,
            {"12:00:00": 2, "12:00:10": 1},
        ),
        (
            "g STRING, p AS CAST(PROCTIME() AS TIMESTAMP(3)), WATERMARK FOR p AS p",
            COUNTED,
            {"21:00:00": 2, "21:00:10": 1},
        ),
    ],
    ids=["group-by", "hop", "cumulate", "view", "beside-a-watermark", "delayed", "local"],
)
def test_each_kind_of_window(
    columns: str, query: str, found: dict[str, int], sql: Sql, run: Run, clock: Clock
) -> None:
    settings = "SET 'table.local-time-zone' = 'Asia/Tokyo';" if "CAST" in columns else ""
    if "TABLE v" in query:
        sql.write(columns, COUNTS, "SELECT CAST(NULL AS TIMESTAMP(3)), g, 1 FROM s")
        text = sql.path.read_text()
        view = "CREATE VIEW v AS SELECT g, PROCTIME() AS p FROM s;\n"
        text = text[: text.index("INSERT")] + view + f"INSERT INTO o {query};"
        sql.path.write_text(text)
        (flow,) = load(sql.path).flows
    else:
        flow = sql.write(columns, COUNTS, query, settings)
    for second in (1, 6, 12):
        clock.at(f"12:00:{second:02}")
        send(sql, "x")
        run(flow)
    clock.at("12:00:20")
    run(flow)
    assert {begin: n for begin, _, n in rows(sql)} == found


def test_a_flow_that_was_off_ends_what_has_ended_meanwhile(
    sql: Sql, run: Run, clock: Clock
) -> None:
    """Before it reads what has come meanwhile, which is in the window of now."""
    flow = sql.write(READINGS, COUNTS, COUNTED)
    clock.at("12:00:01")
    send(sql, "x")
    run(flow)
    clock.at("12:00:11")
    send(sql, "y")
    run(flow)
    assert rows(sql) == [("12:00:00", "x", 1)]
    send(sql, "z")
    clock.at("13:00:05")
    run(flow)
    assert rows(sql) == [("12:00:00", "x", 1), ("12:00:10", "y", 1)]
    clock.at("13:00:10")
    run(flow)
    assert rows(sql)[2:] == [("13:00:00", "z", 1)]


def test_windows_end_with_a_bounded_table(sql: Sql, run: Run, clock: Clock) -> None:
    offsets = {"scan.bounded.specific-offsets": "partition:0,offset:3"}
    bounded = {"format": "json", "scan.bounded.mode": "specific-offsets", **offsets}
    flow = sql.write(READINGS, COUNTS, COUNTED, source_with=bounded)
    clock.at("12:00:01")
    send(sql, "x", "x")
    run(flow)
    assert rows(sql) == []
    send(sql, "x", "x")
    run(flow)
    assert rows(sql) == [("12:00:00", "x", 3)]


def test_a_clock_that_goes_back_opens_no_window_again(sql: Sql, run: Run, clock: Clock) -> None:
    flow = sql.write(READINGS, COUNTS, COUNTED)
    clock.at("12:00:01")
    send(sql, "x")
    run(flow)
    clock.at("12:00:10")
    run(flow)
    clock.at("11:30:00")
    send(sql, "x", "x")
    (*_, last) = run(flow)
    run(flow)
    assert rows(sql) == [("12:00:00", "x", 1)]
    assert last.lag.late == 0
    clock.at("12:00:20")
    run(flow)
    assert rows(sql) == [("12:00:00", "x", 1), ("12:00:10", "x", 2)]


@pytest.mark.parametrize(
    ("step", "begin"),
    [
        ("view.read", "12:00:10"),
        ("view.manifest", "12:00:10"),
        ("drain.begun", "12:00:00"),
        ("kafka.before-commit", "12:00:00"),
        ("kafka.after-commit", "12:00:00"),
    ],
)
def test_a_row_is_in_one_window_wherever_its_micro_batch_failed(
    step: str, begin: str, sql: Sql, run: Run, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when the micro-batch is recorded on, its time is the one that it had first."""
    flow = sql.write(READINGS, COUNTS, COUNTED)
    clock.at("12:00:09.990")
    send(sql, *"xxy")
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{step}:raise")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", sql.target)
    with pytest.raises(TransientError):
        run(flow)
    monkeypatch.delenv("DATAFLOW_FAILPOINT")
    failpoints.arm(None)
    clock.at("12:00:15")
    run(flow)
    clock.at("12:00:20")
    run(flow)
    assert sorted(rows(sql)) == [(begin, "x", 2), (begin, "y", 1)]


def drain_at(file: str, at: str) -> None:
    """Drains a flow whose clock shows that."""
    clock = Clock()
    clock.at(at)
    with pytest.MonkeyPatch.context() as patch:
        clock.show(patch)
        drain_file(file)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("step", "begin"),
    [("view.manifest", "12:00:10"), ("drain.begun", "12:00:00")],
)
def test_killed_and_restarted_a_row_is_in_one_window(step: str, begin: str, sql: Sql) -> None:
    sql.write(READINGS, COUNTS, COUNTED)
    send(sql, *"xxy")
    file = str(sql.path)
    assert apart(drain_at, f"{step}:kill", file, "12:00:09.990") == -signal.SIGKILL
    for at in ("12:00:15", "12:00:20", "12:00:40"):
        assert apart(drain_at, f"{step}:kill:9", file, at) == 0
    assert sorted(rows(sql)) == [(begin, "x", 2), (begin, "y", 1)]


def test_what_ends_a_window_is_news_without_a_record(sql: Sql, run: Run, clock: Clock) -> None:
    """Sensors and lanes ask in this way; a reader that has read all has a time at which it is."""
    flow = sql.write(READINGS, COUNTS, COUNTED)
    clock.at("12:00:01")
    send(sql, "x")
    (*_, last) = run(flow)
    session = flow.resolve().source.open(flow.id)
    try:
        clock.at("12:00:09.999")
        assert not news(session, last.checkpoint.positions, session.end())
        clock.at("12:00:10")
        assert news(session, last.checkpoint.positions, session.end())
        (*_, last) = run(flow)
        assert not news(session, last.checkpoint.positions, session.end())
    finally:
        session.close()


def test_a_lane_ends_windows_in_time(sql: Sql) -> None:
    """Of the machine's own clock, and within seconds: nothing is sent after the first rows."""
    flow = sql.write(READINGS, COUNTS, COUNTED.replace("'10' SECOND", "'2' SECOND"))
    send(sql, *"xxy")
    driving = Driving(lambda: cast("Any", Session(_no_spark)), [flow])
    try:
        driving.until(lambda: sum(n for _, _, n in rows(sql)) == 3, 30)
        assert driving.left(flow) == []
    finally:
        driving.end()
    assert Counter(g for _, g, _ in rows(sql)).keys() == {"x", "y"}


def _no_spark() -> NoReturn:
    raise NotImplementedError
