"""Windows and watermarks, without servers: which windows, when they are final, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.sql.engine.expressions import FlinkColumn
from dataflow_assets.languages.sql.engine.types import TIMESTAMP, TIMESTAMP_LTZ, FlinkType
from dataflow_assets.languages.sql.engine.windows import (
    Closing,
    FlinkWindows,
    Kind,
    at_front,
    bounds,
    clock,
    front,
    millis,
)
from dataflow_assets.languages.sql.reader.windows import implied_columns
from dataflow_assets.languages.sql.state.digests import digests
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.languages.sql.state.target_keys import narrow
from dataflow_assets.languages.sql.state.watermarks import (
    LAST,
    Watermarks,
    WatermarkState,
    advance,
    due,
    watermark_at,
)
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose

TIME = FlinkColumn(TIMESTAMP, 0)
SECOND = 1000


def _windows(kind: Kind, size: int, step: int, offset: int = 0) -> FlinkWindows:
    return FlinkWindows(kind, TIME, size, step, TIME, offset)


@pytest.mark.parametrize(
    ("found", "at", "wanted"),
    [
        (_windows("TUMBLE", 10, 10), 0, [(0, 10)]),
        (_windows("TUMBLE", 10, 10), 9, [(0, 10)]),
        (_windows("TUMBLE", 10, 10), 10, [(10, 20)]),
        (_windows("TUMBLE", 10, 10), -1, [(-10, 0)]),
        (_windows("TUMBLE", 10, 10, 3), 2, [(-7, 3)]),
        (_windows("HOP", 10, 5), 12, [(10, 20), (5, 15)]),
        (_windows("HOP", 10, 5), 10, [(10, 20), (5, 15)]),
        (_windows("HOP", 10, 5, 1), 10, [(6, 16), (1, 11)]),
        (_windows("HOP", 10, 5), -1, [(-5, 5), (-10, 0)]),
        (_windows("CUMULATE", 10, 5), 12, [(10, 15), (10, 20)]),
        (_windows("CUMULATE", 10, 5), 15, [(10, 20)]),
        (_windows("CUMULATE", 10, 5), 10, [(10, 15), (10, 20)]),
        (_windows("CUMULATE", 10, 5), -7, [(-10, -5), (-10, 0)]),
        (_windows("CUMULATE", 10, 5, 2), 1, [(-8, 2)]),
    ],
)
def test_the_windows_of_a_time(found: FlinkWindows, at: int, wanted: list[tuple[int, int]]) -> None:
    assert list(found.of(at)) == wanted


def test_the_bytes_in_front_of_keys_are_in_the_order_of_time() -> None:
    times = [-(2**40), -1, 0, 1, 255, 256, 2**41]
    assert [at_front(one) for one in sorted(map(front, times))] == times


def test_a_day_in_berlin_has_23_hours_in_march() -> None:
    zone, local = ZoneInfo("Europe/Berlin"), FlinkColumn(TIMESTAMP_LTZ, 0)
    days = FlinkWindows("TUMBLE", local, 86_400 * SECOND, 86_400 * SECOND, local)
    noon = datetime(2026, 3, 29, 10, tzinfo=UTC)
    ((begin, end),) = days.of(clock(noon, zone, local=True))
    start, stop, last = bounds(begin, end, zone, local=True)
    assert (start, stop) == (datetime(2026, 3, 29), datetime(2026, 3, 30))  # noqa: DTZ001
    assert last == datetime(2026, 3, 29, 21, 59, 59, 999_000, tzinfo=UTC)
    closing = Closing(0, local=True)
    assert at_front(closing.front(stop, zone)) == millis(datetime(2026, 3, 29, 22, tzinfo=UTC))
    again = datetime(2026, 10, 25, 3)  # noqa: DTZ001 - the hour before is there twice
    assert at_front(closing.front(again, zone)) == millis(datetime(2026, 10, 25, 2, tzinfo=UTC))


def test_the_time_of_a_window_says_which_one_it_is_unless_a_clock_goes_forward() -> None:
    local, day = FlinkColumn(TIMESTAMP_LTZ, 0), 86_400 * SECOND
    bounds_at = [FlinkColumn(TIMESTAMP, 0), FlinkColumn(TIMESTAMP, 1), FlinkColumn(TIMESTAMP, 2)]
    plain, cumulated = _windows("HOP", day, SECOND), _windows("CUMULATE", day, SECOND)
    zoned = FlinkWindows("HOP", local, day, SECOND, local)
    assert (
        implied_columns(plain, bounds_at, {2})
        == implied_columns(cumulated, bounds_at, {2})
        == {0, 1, 2}
    )
    assert (
        implied_columns(zoned, bounds_at, {2})
        == implied_columns(cumulated, bounds_at, {0})
        == frozenset()
    )
    assert (
        implied_columns(zoned, bounds_at, {0})
        == implied_columns(zoned, bounds_at, {1})
        == {0, 1, 2}
    )


def test_the_watermark_is_the_least_of_the_partitions_and_never_falls() -> None:
    found = advance(Watermarks(), {"0": 100, "1": None}, {"0"}, 1, 0)
    assert found.reached is None
    assert found.waiting_for() == ["1"]
    found = advance(found, {"0": None, "1": 40}, {"1"}, 2, 0)
    assert found.reached == 40
    assert found.waiting_for() == []
    found = advance(found, {"0": 90, "1": 70}, {"0", "1"}, 3, 0)
    assert (found.reached, found.marks["0"].moment) == (70, 100)
    found = advance(found, {"0": None, "1": None, "2": 5}, {"2"}, 4, 0)
    assert found.reached == 70  # a new partition does not make it fall


def test_an_idle_partition_is_not_waited_for() -> None:
    found = advance(Watermarks(), {"0": 100, "1": 20}, {"0", "1"}, 1_000, 500)
    assert found.reached == 20
    found = advance(found, {"0": 120, "1": None}, {"0"}, 1_400, 500)
    assert found.reached == 20
    found = advance(found, {"0": 130, "1": None}, {"0"}, 1_500, 500)
    assert found.reached == 130
    waiting = advance(found, {"0": None, "1": None}, {"1"}, 9_000, 500)
    assert waiting.reached == 130  # what was not read yet counts as much as what was


def test_a_partition_at_its_end_ends_no_window_of_one_that_is_idle() -> None:
    """Idle ones do not move the watermark, and nothing of the other one can."""
    marks = {"0": WatermarkState(1_000, LAST), "1": WatermarkState(500, 20)}
    assert watermark_at(Watermarks(marks), 1_100, 500) == 20
    assert watermark_at(Watermarks({"0": WatermarkState(1_000, LAST)}), 9_999, 500) == LAST


def test_once_all_are_idle_those_count_that_were_active_last() -> None:
    marks = {
        "0": WatermarkState(1_000, 100),
        "1": WatermarkState(1_400, 50),
        "2": WatermarkState(900),
    }
    assert watermark_at(Watermarks(marks), 1_200, 500) is None
    assert watermark_at(Watermarks(marks), 1_450, 500) == 50
    assert watermark_at(Watermarks(marks), 9_999, 500) == 50
    assert (
        watermark_at(
            Watermarks({"0": WatermarkState(1_000, 100), "1": WatermarkState(1_000)}), 9_999, 500
        )
        == 100
    )


def test_when_a_window_ends_without_a_record() -> None:
    marks = {
        "0": WatermarkState(1_000, 100),
        "1": WatermarkState(1_200, 60),
        "2": WatermarkState(900),
    }
    found = Watermarks(marks, None)
    assert due(found, 61, 500) == 1_400
    assert due(found, 62, 500) is None  # those that were active last have not come so far
    assert due(found, 61, 0) is None
    assert due(found, None, 500) is None


OPTIONS = "'properties.bootstrap.servers' = 'k:9092', 'connector' = "
PLAIN = "'kafka', 'format' = 'json'"
UPSERT = "'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
TUMBLE = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES))"
GROUPS = "GROUP BY window_start, window_end"


def _text(query: str, key: str = "", more: str = "") -> str:
    target = f"b TIMESTAMP(3), n BIGINT{f', PRIMARY KEY ({key}) NOT ENFORCED' if key else ''}"
    return (
        "CREATE TABLE s (ts TIMESTAMP(3), late TIMESTAMP(3), g STRING, WATERMARK FOR ts AS ts - "
        f"INTERVAL '2' SECOND) WITH ('topic' = 's', {OPTIONS}{PLAIN});\n{more}"
        f"CREATE TABLE o ({target}) WITH ('topic' = 'o', {OPTIONS}{UPSERT if key else PLAIN});\n"
        f"INSERT INTO o {query};"
    )


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    return tmp_path / "one.sql"


HOP = "TABLE(HOP(TABLE s, DESCRIPTOR(ts), {}))"
_HOP = "INTERVAL '5' MINUTES, INTERVAL '10' MINUTES"
CUMULATE = "TABLE(CUMULATE(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), {}))"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (TUMBLE, ("TUMBLE", 600, 600, 0)),
        (
            "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '5' MINUTE)",
            ("TUMBLE", 3_600, 3_600, 300),
        ),
        (HOP.format("INTERVAL '5' MINUTES, INTERVAL '10' MINUTES") + " AS w", ("HOP", 600, 300, 0)),
        (
            CUMULATE.format("SIZE => INTERVAL '1' DAY, STEP => INTERVAL '1' HOUR"),
            ("CUMULATE", 86_400, 3_600, 0),
        ),
    ],
)
def test_how_windows_are_written(
    file: Path, source: str, wanted: tuple[str, int, int, int]
) -> None:
    file.write_text(_text(f"SELECT window_start, COUNT(*) FROM {source} {GROUPS}", "b"))
    if wanted[0] == "CUMULATE":
        assert "must be the columns of GROUP BY" in load(file).findings[0].message
        text = file.read_text().replace("SELECT window_start", "SELECT window_end")
        file.write_text(text)
    view = choose(load(file), None).source
    assert isinstance(view, ViewSource)
    found = view.view.windows
    assert found is not None
    lengths = (found.size, found.step, found.offset)
    assert (found.kind, *(one / SECOND for one in lengths)) == wanted


HALF = TUMBLE.replace("'10' MINUTES", "'1.5' SECOND")
INNER = f"SELECT window_start AS w, window_end, g, COUNT(*) AS n FROM {TUMBLE} {GROUPS}, g"


@pytest.mark.parametrize(
    ("query", "digits"),
    [
        (f"SELECT window_start, COUNT(*) FROM {TUMBLE} {GROUPS}", 0),
        (f"SELECT w, SUM(n) FROM ({INNER}) GROUP BY w, window_end", 0),
        (f"SELECT window_start, COUNT(*) FROM {HALF} {GROUPS}", 3),
    ],
)
def test_a_bound_of_whole_seconds_has_no_digits_of_a_second(
    file: Path, query: str, digits: int
) -> None:
    """A key of a database may be a time of whole seconds then, though it is a TIMESTAMP(3)."""
    file.write_text(_text(query, "b"))
    view = choose(load(file), None).source
    assert isinstance(view, ViewSource)
    assert next(narrow(view.view)).expression.type == FlinkType("TIMESTAMP", digits)
    seconds = pa.schema([pa.field("b", pa.timestamp("s"))])
    if digits:
        with pytest.raises(PermanentError, match="may store values as equal"):
            view.check_keys(seconds, "t")
    else:
        view.check_keys(seconds, "t")


TEXTS = "SELECT DATE_FORMAT(window_start, '{}'), COUNT(*) FROM {} {}"
HOURS = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
SHIFTED = HOURS.replace("HOUR)", "HOUR, INTERVAL '90' SECOND)")


@pytest.mark.parametrize(
    ("pattern", "source", "accepted"),
    [
        ("yyyy-MM-dd HH:mm", TUMBLE, True),
        ("uuuuMMddHHmmss", TUMBLE, True),
        ("yyyy-MM-dd'T'HH", HOURS, True),
        ("yyyy-MM-dd HH", TUMBLE, False),
        ("yyyy-MM-dd", HOURS, False),
        ("yyyy-MM-dd HH:mm", SHIFTED, False),
        ("yyyy-MM-dd HH:mm:ss", SHIFTED, True),
        ("yy-MM-dd HH:mm", TUMBLE, False),
        ("yyyy-MM-dd hh:mm", TUMBLE, False),
        ("MM-dd HH:mm", TUMBLE, False),
        ("yyyy-MM-dd 'HH:mm'", TUMBLE, False),
        ("yyyy-MM-dd mm", TUMBLE, False),
    ],
)
def test_a_text_of_a_bound_may_be_the_key_where_no_two_windows_have_the_same(
    file: Path, pattern: str, source: str, *, accepted: bool
) -> None:
    text = _text(TEXTS.format(pattern.replace("'", "''"), source, GROUPS), "b").replace(
        "b TIMESTAMP(3)", "b STRING"
    )
    file.write_text(text)
    messages = [one.message for one in load(file).findings]
    if accepted:
        assert messages == []
    else:
        assert "must be the columns of GROUP BY" in messages[0]


def test_rows_of_windows_are_inserts(file: Path) -> None:
    """A target without a PRIMARY KEY takes them, from several queries at once."""
    query = f"SELECT window_end, COUNT(*) FROM {TUMBLE} {GROUPS}"
    file.write_text(_text(query))
    assert not load(file).findings
    having = f"{query} HAVING COUNT(*) > 1"
    file.write_text(_text(f"SELECT b, SUM(n) FROM ({query.replace('COUNT(*)', 'COUNT(*) AS n')})"))
    assert load(file).findings
    file.write_text(_text(having))
    assert not load(file).findings


def test_groups_of_windows_may_be_grouped_again(file: Path) -> None:
    inner = f"SELECT window_start, window_end, g, COUNT(*) AS n FROM {TUMBLE} {GROUPS}, g"
    file.write_text(_text(f"SELECT window_start, MAX(n) FROM ({inner}) {GROUPS}"))
    view = choose(load(file), None).source
    assert isinstance(view, ViewSource)
    assert [one.window is not None for one in view.view.stages] == [True, True]
    file.write_text(_text(f"SELECT window_start, MAX(n) FROM ({inner}) GROUP BY window_start", "b"))
    view = choose(load(file), None).source
    assert isinstance(view, ViewSource)
    assert [one.window is not None for one in view.view.stages] == [True, False]


def test_groups_over_what_is_no_window_any_more(file: Path) -> None:
    """Their keys are in the places of a window's columns, and are none."""
    inner = f"SELECT window_start, window_end, g, COUNT(*) AS n FROM {TUMBLE} {GROUPS}, g"
    number = "ROW_NUMBER() OVER (PARTITION BY window_end, n ORDER BY g) AS rn"
    ranked = f"SELECT window_end AS b FROM (SELECT *, {number} FROM ({inner})) WHERE rn = 1"
    grouped = f"SELECT window_end AS b, MAX(n) AS n FROM ({inner}) GROUP BY window_end"
    for between in (ranked, grouped):
        file.write_text(_text(f"SELECT b, COUNT(*) FROM ({between}) GROUP BY b", "b"))
        view = choose(load(file), None).source
        assert isinstance(view, ViewSource)
        assert [one.window is not None for one in view.view.stages] == [True, False, False]


def test_the_first_groups_of_a_window_are_final(file: Path) -> None:
    """They are inserts, and need no further table where the key has one time of the window."""
    inner = f"SELECT window_start, window_end, g, COUNT(*) AS n FROM {TUMBLE} {GROUPS}, g"
    number = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS rn"
    query = f"SELECT window_start, n FROM (SELECT *, {number} FROM ({inner})) WHERE rn <= {{}}"
    for key, most in (("", 3), ("b", 1)):
        file.write_text(_text(query.format(most), key))
        view = choose(load(file), None).source
        assert isinstance(view, ViewSource)
        assert [one.window is not None for one in view.view.stages] == [True, True]


_VIEWS = f"""CREATE VIEW v AS SELECT late, ts AS at, g FROM s;
CREATE VIEW w AS SELECT * FROM {TUMBLE};
"""


def test_a_view_passes_the_time_on(file: Path) -> None:
    source = "TABLE(TUMBLE(TABLE v, DESCRIPTOR(at), INTERVAL '10' MINUTES))"
    file.write_text(_text(f"SELECT window_start, COUNT(*) FROM {source} {GROUPS}", more=_VIEWS))
    assert not load(file).findings
    file.write_text(_text(f"SELECT window_start, COUNT(*) FROM w {GROUPS}", more=_VIEWS))
    assert not load(file).findings


def _counted(source: str) -> str:
    return f"SELECT window_start, COUNT(*) FROM {source} {GROUPS}"


_NUMBER = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY g) AS rn"
_NUMBERED = f"SELECT window_start, 1 FROM (SELECT *, {_NUMBER} FROM {TUMBLE}) WHERE rn = 1"
_NOT_GROUPED = "are grouped by window_start and window_end"
_OTHER = "late has no WATERMARK: declare WATERMARK FOR late AS late, or "


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (f"SELECT window_start, 1 FROM {TUMBLE}", _NOT_GROUPED),
        (f"SELECT window_start, COUNT(*) FROM {TUMBLE} GROUP BY window_start", _NOT_GROUPED),
        (f"SELECT DISTINCT window_start, 1 FROM {TUMBLE}", _NOT_GROUPED),
        (_NUMBERED, "ROW_NUMBER() over rows of windows is not supported"),
        (_counted(TUMBLE.replace("(ts)", "(late)")), _OTHER),
        (_counted(TUMBLE.replace("(ts)", "(tz)")), "no column tz"),
        (
            _counted(TUMBLE.replace("MINUTES", "MONTHS")),
            "TUMBLE: SIZE must be of days or less, not of months",
        ),
        (_counted(TUMBLE.replace("10", "0")), "TUMBLE: a length must be above zero"),
        (
            _counted(HOP.format("INTERVAL '4' MINUTE, INTERVAL '10' MINUTE")),
            "HOP: SIZE must be a multiple of SLIDE",
        ),
        (
            _counted(CUMULATE.format("INTERVAL '1' SECOND, INTERVAL '1' DAY")),
            "CUMULATE: a row would be in 86400 windows; allowed: 1440",
        ),
        (_counted(HOP.format("INTERVAL '4' MINUTE")), "HOP lacks its SIZE"),
        (_counted(TUMBLE.replace("TUMBLE", "SESSION")), "SESSION is not supported"),
        (_counted(TUMBLE.replace("TABLE s", "TABLE w")), "a window over w is not supported"),
        (_counted(HOP.format("10")), "SLIDE must be an interval"),
        (
            _counted(TUMBLE.replace("MINUTES", "DAY, INTERVAL '1' HOUR, INTERVAL '1' HOUR")),
            "TUMBLE takes SIZE and OFFSET, each once",
        ),
    ],
)
def test_what_is_refused(file: Path, query: str, says: str) -> None:
    file.write_text(_text(query, more=_VIEWS))
    assert says in load(file).findings[0].message


OLDER = "TUMBLE(ts, INTERVAL '10' MINUTES)"
OLDER_HOP = f"HOP(ts, {_HOP})"
BY_GROUP = "GROUP BY g, window_start, window_end"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            f"SELECT TUMBLE_START{OLDER[6:]}, COUNT(*) FROM s GROUP BY {OLDER}",
            f"SELECT window_start, COUNT(*) FROM {TUMBLE} {GROUPS}",
        ),
        (
            f"SELECT COALESCE(HOP_END{OLDER_HOP[3:]}, NULL), 1 FROM s GROUP BY g, {OLDER_HOP}",
            f"SELECT COALESCE(window_end, NULL), 1 FROM {HOP.format(_HOP)} {BY_GROUP}",
        ),
    ],
)
def test_the_older_way_to_write_windows(file: Path, older: str, newer: str) -> None:
    views = []
    for query in (older, newer):
        file.write_text(_text(query))
        source = choose(load(file), None).source
        assert isinstance(source, ViewSource)
        views.append(source.view)
    assert digests(views[0]) == digests(views[1])


def test_the_older_way_with_the_last_time_of_a_window(file: Path) -> None:
    query = f"SELECT TUMBLE_ROWTIME{OLDER[6:]}, COUNT(*) FROM s AS x GROUP BY x.g, {OLDER}"
    file.write_text(_text(f"{query} HAVING TUMBLE_END{OLDER[6:]} > x.ts"))
    assert "x.ts is neither in GROUP BY" in load(file).findings[0].message
    file.write_text(_text(f"{query} HAVING TUMBLE_END{OLDER[6:]} IS NOT NULL"))
    assert not load(file).findings


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (
            f"SELECT TUMBLE_START{OLDER[6:]}, COUNT(*) FROM s GROUP BY {OLDER}, {OLDER}",
            "a query has one window",
        ),
        (
            f"SELECT TUMBLE_START(ts, INTERVAL '1' DAY), COUNT(*) FROM s GROUP BY {OLDER}",
            "TUMBLE_START must have the arguments of the TUMBLE of GROUP BY",
        ),
        (
            f"SELECT TUMBLE_PROCTIME{OLDER[6:]}, COUNT(*) FROM s GROUP BY {OLDER}",
            "for a time write TUMBLE_END",
        ),
        (
            "SELECT HOP_START(ts, INTERVAL '1' DAY), 1 FROM s GROUP BY HOP(ts, INTERVAL '1' DAY)",
            "HOP in GROUP BY is HOP(ts, slide, size[, offset]), of intervals",
        ),
        (
            f"SELECT TUMBLE_START{OLDER[6:]}, COUNT(*) FROM (SELECT * FROM s) GROUP BY {OLDER}",
            "TUMBLE in GROUP BY needs a table or view in FROM",
        ),
    ],
)
def test_mistakes_in_the_older_way(file: Path, query: str, says: str) -> None:
    file.write_text(_text(query))
    assert says in load(file).findings[0].message


@pytest.mark.parametrize("key", ["table.exec.source.idle-timeout", "table.exec.state.ttl"])
def test_durations_of_settings(file: Path, key: str) -> None:
    text = _text(f"SELECT window_start, COUNT(*) FROM {TUMBLE} {GROUPS}")
    file.write_text(f"SET '{key}' = '1 fortnight';\n{text}")
    assert load(file).findings[0].message == "must be a duration, like 500ms, 1s or 5 min"
    file.write_text(f"SET '{key}' = '1 min';\n{text}")
    view = choose(load(file), None).source
    assert isinstance(view, ViewSource)
    assert 60_000 in (view.view.idle, view.view.expires)
