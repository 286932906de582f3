"""Windows in a topic: what is written for what was sent, when, and what is counted as late."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, cast

import psycopg
import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.cli.preview.live import waiting
from dataflow_assets.contracts import utc_now
from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.state.driver import Limits
from dataflow_assets.languages.sql.state.session import ViewSession
from dataflow_assets.runs.request import Report, Start
from tests.conftest import Topics
from tests.drained import drained
from tests.in_process import Session
from tests.lanes.driving import Driving
from tests.languages.sql.files import Sent, Sql

Run = Callable[[Flow], list[Report]]
EVENTS = "g STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND"
COUNTS = "b TIMESTAMP(3), g STRING, n BIGINT"
TUMBLE = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
COUNTED = "SELECT window_start, g, COUNT(*) FROM {} GROUP BY window_start, window_end, g"
IDLE = "SET 'table.exec.source.idle-timeout' = '1 s';"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    return tmp_path / "_state"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """The clock of windows stays, and goes on by so many seconds when this is called."""
    now = [utc_now()]
    for module in ("session", "positions"):
        monkeypatch.setattr(f"dataflow_assets.languages.sql.state.{module}.utc_now", lambda: now[0])

    def later(seconds: float) -> None:
        now[0] += timedelta(seconds=seconds)

    return later


def event(second: int, group: str = "x", key: bytes | None = None) -> Sent:
    at = f"2026-01-01 00:{second // 60:02}:{second % 60:02}"
    return key, json.dumps({"g": group, "ts": at}).encode()


def rows(sql: Sql) -> list[tuple[int, str, int]]:
    """What the topic has of each window: when it begins, its group, and how many."""
    found = (json.loads(value or b"") for _, value in sql.rows())
    return sorted((_second(one["b"]), one["g"], one["n"]) for one in found)


def _second(text: str) -> int:
    minutes, seconds = text.split(":")[1:]
    return int(minutes) * 60 + int(seconds[:2])


def test_each_group_is_written_once_into_a_topic_without_a_key(sql: Sql, run: Run) -> None:
    flow = sql.write(EVENTS, COUNTS, COUNTED.format(TUMBLE))
    sql.send([event(1), event(9), event(3, "y"), event(11)])
    run(flow)
    assert rows(sql) == []
    sql.send([event(8), event(12), event(25)])
    run(flow)
    assert rows(sql) == [(0, "x", 3), (0, "y", 1), (10, "x", 2)]
    sql.send([event(40)])
    run(flow)
    assert rows(sql) == [(0, "x", 3), (0, "y", 1), (10, "x", 2), (20, "x", 1)]


def _millis(second: int) -> int:
    return 1_767_225_600_000 + second * 1000


def test_the_first_group_of_each_window(sql: Sql, run: Run, state: Path) -> None:
    """They are final, and nothing is kept of them."""
    counted = f"SELECT window_start AS b, window_end AS e, g, COUNT(*) AS n FROM {TUMBLE}"
    ranked = "ROW_NUMBER() OVER (PARTITION BY b, e ORDER BY n DESC, g) AS rn"
    inner = f"SELECT *, {ranked} FROM ({counted} GROUP BY window_start, window_end, g)"
    into = "b TIMESTAMP(3), e TIMESTAMP(3), g STRING, n BIGINT, PRIMARY KEY (b, e) NOT ENFORCED"
    flow = sql.write(EVENTS, into, f"SELECT b, e, g, n FROM ({inner}) WHERE rn = 1")
    sql.send([event(1, "y"), event(2), event(3), event(4, "z"), event(13, "z"), event(15)])
    run(flow)
    assert rows(sql) == [(0, "x", 2)]
    sql.send([event(18, "z"), event(40)])
    run(flow)
    assert rows(sql) == [(0, "x", 2), (10, "z", 2)]
    manifest = json.loads(max(state.rglob("manifest.json")).read_text())
    assert [one.get("first") for one in manifest["tables"].values()] == [_millis(50), None]


def test_a_text_of_the_window_is_the_key_of_its_rows(sql: Sql, run: Run) -> None:
    """Each window is written once, under a text that no other one has."""
    into = "b STRING, g STRING, n BIGINT, PRIMARY KEY (b, g) NOT ENFORCED"
    pattern = "DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')"
    flow = sql.write(EVENTS, into, COUNTED.format(TUMBLE).replace("window_start", pattern, 1))
    sql.send([event(1), event(9), event(12)])
    run(flow)
    sql.send([event(13), event(40)])
    run(flow)
    assert rows(sql) == [(0, "x", 2), (10, "x", 2)]
    assert [json.loads(key or b"")["b"][-8:] for key, _ in sql.rows()] == ["00:00:00", "00:00:10"]


def test_a_row_that_is_replaced_leaves_the_windows_that_are_open(sql: Sql, run: Run) -> None:
    keyed = EVENTS.replace("g STRING", "k BIGINT, g STRING, PRIMARY KEY (k) NOT ENFORCED")
    flow = sql.write(keyed, COUNTS, COUNTED.format(TUMBLE))

    def row(key: int, second: int, group: str) -> Sent:
        _, value = event(second, group)
        return b'{"k":%d}' % key, value

    sql.send([row(1, 1, "x"), row(2, 2, "x"), row(3, 3, "x"), row(4, 4, "y")])
    run(flow)
    sql.send([row(1, 5, "y"), (b'{"k":2}', None), row(5, 15, "x")])
    run(flow)
    assert rows(sql) == [(0, "x", 1), (0, "y", 2)]
    sql.send([row(3, 16, "x"), row(4, 6, "x"), row(5, 30, "x")])  # the second one is late
    (*_, last) = run(flow)
    assert rows(sql) == [(0, "x", 1), (0, "y", 2), (10, "x", 1)]
    assert last.lag.late == 1


def test_windows_are_appended_to_a_table_of_a_database(
    sql: Sql, run: Run, postgresql: devservers.PostgreSQL, schema: str
) -> None:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.t (b timestamp, g text, n bigint)".encode())
        options = {"connector": "postgresql", "url": postgresql.dsn(), "table-name": f"{schema}.t"}
        flow = sql.write(EVENTS, COUNTS, COUNTED.format(TUMBLE), target_with=options)
        for second in (1, 12, 30):
            sql.send([event(second)])
            run(flow)
        found = connection.execute(f"SELECT b::text, n FROM {schema}.t ORDER BY b".encode())
        assert found.fetchall() == [("2026-01-01 00:00:00", 1), ("2026-01-01 00:00:10", 1)]


def test_windows_that_have_ended_stay_where_a_query_without_windows_was_before(
    sql: Sql, run: Run
) -> None:
    """They are not kept, so the rows of the query before are no longer told from theirs."""
    keyed = f"{COUNTS}, PRIMARY KEY (b, g) NOT ENFORCED"
    sql.send([event(1), event(9), event(3, "y"), event(12), event(25)])
    before = "SELECT FLOOR(ts TO MINUTE), g, COUNT(*) FROM s GROUP BY FLOOR(ts TO MINUTE), g"
    run(sql.write(EVENTS, keyed, before))
    flow = sql.write(EVENTS, keyed, COUNTED.format(TUMBLE))
    drained(flow, Start("earliest"))
    assert {(0, "x", 2), (0, "y", 1), (10, "x", 1)} <= set(rows(sql))
    stored = dict(sql.rows())
    assert None not in stored.values()


def test_rows_that_are_late_are_dropped_and_counted(
    sql: Sql, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    hop = "TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))"
    flow = sql.write(EVENTS, COUNTS, COUNTED.format(hop))
    sql.send([event(1), event(12)])
    run(flow)
    assert rows(sql) == [(0, "x", 1), (3595, "x", 1)]
    sql.send([event(4), event(7), event(20)])  # 7 is in time for the window from 5 to 15
    with caplog.at_level(logging.WARNING):
        (*_, last) = run(flow)
    assert rows(sql) == [(0, "x", 1), (5, "x", 2), (3595, "x", 1)]
    assert (last.lag.late, last.lag.watermark) == (1, 1_767_225_618_000)
    assert "1 rows of" in caplog.text
    assert "came when their windows had ended, and are dropped: 1 so far" in caplog.text


def test_a_row_without_a_time_is_rejected_unless_where_leaves_it_out(sql: Sql, run: Run) -> None:
    flow = sql.write(EVENTS, COUNTS, COUNTED.format(f"{TUMBLE} WHERE g <> 'z'"))
    sql.send([event(1), (None, b'{"g":"x"}'), (None, b'{"g":"z"}'), event(12)])
    (*_, last) = run(flow)
    assert last.checkpoint.totals.rejected == 1
    assert rows(sql) == [(0, "x", 1)]
    (_, told) = sql.stored(f"{sql.target}.rejected")[0][1:]
    message = json.loads(told or b"")["error"]["message"]
    assert message.endswith("the row has no time, and so no window")


def test_an_empty_partition_is_named_and_waited_for_until_it_is_idle(
    sql: Sql,
    run: Run,
    topic: Topics,
    later: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    wide = Sql(sql.path, sql.kafka, topic(2), sql.target)
    flow = wide.write(EVENTS, COUNTS, COUNTED.format(TUMBLE))
    wide.send([event(1), event(9), event(12)])
    with caplog.at_level(logging.WARNING):
        run(flow)
    assert "no window ends before each partition" in caplog.text
    assert "these have none: 1." in caplog.text
    later(1.1)
    run(flow)
    assert rows(wide) == []
    flow = wide.write(EVENTS, COUNTS, COUNTED.format(TUMBLE), IDLE)
    wide.send([event(12)])
    run(flow)
    assert rows(wide) == [(0, "x", 2)]
    wide.send([event(23)])  # partition 0 alone is waited for
    run(flow)
    assert rows(wide) == [(0, "x", 2), (10, "x", 2)]


def test_a_window_ends_in_time_although_no_record_comes(sql: Sql, topic: Topics) -> None:
    """In a lane, which asks for new records only."""
    wide = Sql(sql.path, sql.kafka, topic(2), sql.target)
    flow = wide.write(EVENTS, COUNTS, COUNTED.format(TUMBLE), IDLE)
    wide.send([event(1), event(9), event(12)])
    session = cast("Any", Session(_no_spark))
    driving = Driving(lambda: session, [flow])
    try:
        driving.until(lambda: rows(wide) == [(0, "x", 2)], 60)
        assert driving.left(flow) == []
    finally:
        driving.end()


def _no_spark() -> NoReturn:
    raise NotImplementedError


def test_a_run_after_a_pause_ends_windows_without_a_record(
    sql: Sql, run: Run, topic: Topics, later: Callable[[float], None]
) -> None:
    wide = Sql(sql.path, sql.kafka, topic(2), sql.target)
    flow = wide.write(EVENTS, COUNTS, COUNTED.format(TUMBLE), IDLE)
    wide.send([event(1), event(9), event(12)])
    run(flow)
    assert rows(wide) == []
    later(1.1)
    run(flow)
    assert rows(wide) == [(0, "x", 2)]
    (*_, last) = run(flow)
    assert rows(wide) == [(0, "x", 2)]
    assert last.lag.late == 0


@pytest.mark.parametrize("mode", ["specific-offsets", "timestamp"])
def test_windows_end_with_a_bounded_table(sql: Sql, run: Run, mode: str, topic: Topics) -> None:
    """Partition 1 is not read, or has a record of the time at which the table ends."""
    wide = Sql(sql.path, sql.kafka, topic(2), sql.target)
    bounded = {"format": "json", "scan.bounded.mode": mode}
    after = int(time.time() * 1000) + 60_000
    if mode == "timestamp":
        bounded |= {"scan.bounded.timestamp-millis": str(after)}
    else:
        bounded |= {"scan.bounded.specific-offsets": "partition:0,offset:3"}
    flow = wide.write(EVENTS, COUNTS, COUNTED.format(TUMBLE), source_with=bounded)
    wide.send([event(1), event(12)])
    run(flow)
    assert rows(wide) == ([] if mode == "timestamp" else [(0, "x", 1)])
    wide.send([event(13)])
    run(flow)
    if mode == "timestamp":
        assert rows(wide) == []
        producer = Producer({"bootstrap.servers": sql.kafka.bootstrap, "log_level": 0})
        for partition in (0, 1):
            producer.produce(wide.source, event(50)[1], partition=partition, timestamp=after)
        assert producer.flush(60) == 0
        run(flow)
    assert rows(wide) == [(0, "x", 1), (10, "x", 2)]


def test_nothing_is_kept_of_windows_that_have_ended(
    sql: Sql, run: Run, monkeypatch: pytest.MonkeyPatch, topic: Topics
) -> None:
    """Large ones end in tasks, bucket by bucket, and so does what COUNT(DISTINCT) keeps."""
    monkeypatch.setattr(ViewSession, "limits", Limits(few=100))
    wide = Sql(sql.path, sql.kafka, topic(2), sql.target)
    query = COUNTED.format(TUMBLE).replace("COUNT(*)", "COUNT(DISTINCT ts)")
    flow = wide.write(EVENTS, COUNTS, query)
    sent = [event(n % 10, f"g{n % 400}", b"%d" % n) for n in range(2_000)]
    wide.send(sent, partitions=2)
    (*_, last) = run(flow)
    large = last.lag.state
    assert rows(wide) == []
    wide.send([event(15, "x", b"%d" % n) for n in range(20)], partitions=2)
    (*_, last) = run(flow)
    counts = [n for begin, _, n in rows(wide) if begin == 0]
    assert len(counts) == 400
    assert sum(counts) == 400
    assert large is not None
    assert last.lag.state is not None
    assert last.lag.state < large / 3


def test_the_clock_of_windows_is_that_of_the_session(sql: Sql, run: Run) -> None:
    events = "g STRING, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts"
    hour = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' DAY))"
    zone = "SET 'table.local-time-zone' = 'Asia/Tokyo';"
    flow = sql.write(events, COUNTS, COUNTED.format(hour), zone)
    times = ["01 14:59:59", "01 15:00:00", "02 14:59:59.998", "02 14:59:59.999"]
    for at in times:
        sql.send([(None, b'{"g":"x","ts":"2026-01-%sZ"}' % at.encode())])
        run(flow)
    found = [json.loads(value or b"") for _, value in sql.rows()]
    assert [(one["b"], one["n"]) for one in found] == [
        ("2026-01-01 00:00:00", 1),
        ("2026-01-02 00:00:00", 3),
    ]


def test_a_look_shows_windows_as_if_no_row_came_later(sql: Sql) -> None:
    flow = sql.write(EVENTS, COUNTS, COUNTED.format(TUMBLE))
    sql.send([event(1), event(9), event(12)])
    found = [json.loads(one.raw or b"") for one in waiting(flow, 10).messages]
    assert sorted((_second(one["b"]), one["n"]) for one in found) == [(0, 2), (10, 1)]
