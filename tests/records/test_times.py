"""Times: what is read and written keeps the moment, to the last digit."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow_assets.records.times.instant import (
    Instant,
    of_epoch,
    read,
    rfc3339,
    rfc3339_nano,
    unix,
    unix_milli,
    zone,
)
from dataflow_assets.records.times.layouts import layout

BERLIN = zone("Europe/Berlin")
MOMENT = Instant(datetime(2026, 2, 3, 16, 5, 6, tzinfo=BERLIN), "0789")


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01t00:00:00z", "2026-01-01T00:00:00Z"),
        (" 2026-01-01 03:00:00+03:00 ", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456789Z"),
        ("2026-01-01T00:00:00,1234567891230Z", "2026-01-01T00:00:00.123456789123Z"),
        ("2026-01-01T00:00:00-00:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.5", "2025-12-31T23:00:00.5Z"),
        ("2026-07-01 00:00:00", "2026-06-30T22:00:00Z"),
        ("1767225600", "2026-01-01T00:00:00Z"),
        ("1767225600.000000001", "2026-01-01T00:00:00.000000001Z"),
        ("1.7672256e9", "2026-01-01T00:00:00Z"),
    ],
)
def test_read(text: str, utc: str) -> None:
    assert rfc3339_nano(read(text, BERLIN).at(UTC)) == utc


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-01",
        "2026-01-01T00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+0300",
        "0000-01-01T00:00:00Z",
        "٢٠٢٦-01-01T00:00:00Z",
        "1e400",
        "1e999999999",
        "NaN",
        "0x10",
        "1_000",
    ],
)
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(text, UTC)


@pytest.mark.parametrize("value", [True, False, [], {}, None])
def test_no_time_of_another_kind(value: object) -> None:
    with pytest.raises(ValueError, match="is not a time; expected RFC 3339"):
        read(value, UTC)


def test_of_an_hour_that_comes_twice_the_first_is_meant() -> None:
    assert rfc3339(read("2026-10-25T02:30:00", BERLIN)) == "2026-10-25T00:30:00Z"


def test_a_skipped_hour_is_counted_from_before_the_change() -> None:
    assert rfc3339(read("2026-03-29T02:30:00", BERLIN).at(BERLIN)) == "2026-03-29T03:30:00+02:00"


def test_offsets_with_seconds_become_whole_minutes_and_the_moment_stays() -> None:
    moment = read("1900-01-01T00:00:00Z", UTC)
    there = rfc3339(moment.at(zone("Europe/Amsterdam")))
    assert there[-1] != "Z"
    assert len(there) == len("1900-01-01T00:17:00+00:17")
    assert rfc3339(read(there, UTC).at(UTC)) == "1900-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("number", "utc"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (999_999_999_999, "33658-09-27"),
        (1_767_225_600_123, "2026-01-01T00:00:00.123Z"),
        (-1_000_000_000_000, "1938-04-24T22:13:20Z"),
        (Decimal("-0.000000001"), "1969-12-31T23:59:59.999999999Z"),
        (Decimal("1767225600.12345678901234567890"), "2026-01-01T00:00:00.1234567890123456789Z"),
        (Decimal("1767225600123.5"), "2026-01-01T00:00:00.1235Z"),
        (Decimal("1.7672256E+9"), "2026-01-01T00:00:00Z"),
    ],
)
def test_epoch_numbers_are_exact(number: int | Decimal, utc: str) -> None:
    if utc == "33658-09-27":  # seconds, not milliseconds: a year that nothing here can hold
        with pytest.raises(ValueError, match="outside the years 1 to 9999"):
            of_epoch(number)
        return
    assert rfc3339_nano(of_epoch(number)) == utc


@pytest.mark.parametrize("number", [10**30, -(10**15), Decimal("1e999999"), Decimal("1e-999999")])
def test_epoch_numbers_beyond_all_years_or_digits(number: int | Decimal) -> None:
    with pytest.raises(ValueError, match=r"outside the years|digits"):
        of_epoch(number)


def test_the_last_hours_of_the_calendar_stay_inside_it() -> None:
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        read("9999-12-31T23:00:00Z", UTC).at(zone("+02:00"))
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        read("0001-01-01T00:00:00", zone("+02:00"))


@given(
    st.integers(-62_135_500_000, 253_402_200_000),
    st.text("0123456789", max_size=12),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "+05:45", "-09:30"]),
)
def test_through_any_zone_and_back_nothing_changes(second: int, fraction: str, name: str) -> None:
    moment = Instant(of_epoch(second).second, fraction.rstrip("0"))
    there = moment.at(zone(name))
    assert unix_milli(there) == unix_milli(moment)
    assert read(rfc3339_nano(there), UTC).at(UTC) == moment


@pytest.mark.parametrize("name", ["UTC", "Europe/Moscow", "Etc/GMT+3", "EST", "+03:00", "-23:59"])
def test_zones(name: str) -> None:
    assert datetime(2026, 1, 1, tzinfo=zone(name)).utcoffset() is not None


def test_an_offset_has_its_sign() -> None:
    assert zone("-03:30").utcoffset(None) == -timedelta(hours=3, minutes=30)


@pytest.mark.parametrize(
    "name",
    (  # noqa: SIM905
        " Local Mars +3 +24:00 +03:60 Europe ../etc/passwd localtime right/UTC /etc/localtime "
        "UTC+3 a\0b"
    ).split(" "),
)
def test_no_zone(name: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone"):
        zone(name)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("RFC3339", "2026-02-03T16:05:06+01:00"),
        ("RFC3339Nano", "2026-02-03T16:05:06.0789+01:00"),
        ("Unix", "1770131106"),
        ("UnixMilli", 1770131106078),
        ("ANSIC", "Tue Feb  3 16:05:06 2026"),
        ("RFC822", "03 Feb 26 16:05 CET"),
        ("RFC1123Z", "Tue, 03 Feb 2026 16:05:06 +0100"),
        ("Kitchen", "4:05PM"),
        ("DateTime", "2026-02-03 16:05:06"),
        ("StampMicro", "Feb  3 16:05:06.078900"),
        ("2006-01-02T15:04:05Z07:00", "2026-02-03T16:05:06+01:00"),
        ("20060102T150405Z0700", "20260203T160506+0100"),
        ("06/1/2 3:4:5 pm", "26/2/3 4:5:6 pm"),
        ("January Jan Monday Mon 002 __2 _2", "February Feb Tuesday Tue 034  34  3"),
        ("15:04:05.000", "16:05:06.078"),
        ("15:04:05,999999", "16:05:06,0789"),
        ("15:04:05.000000000000", "16:05:06.078900000000"),
        ("15:04:05.9", "16:05:06"),
        ("-07:00:00 -0700 -07:00 -07 Z07 MST", "+01:00:00 +0100 +01:00 +01 +01 CET"),
        ("02.01.2006", "03.02.2026"),
        ("_2006", "_2026"),
        ("03h", "04h"),
        ("January Month Janus Mond", "February Month Janus Mond"),
    ],
)
def test_layout(text: str, written: str | int) -> None:
    assert layout(text)(MOMENT) == written


def test_layouts_of_other_moments() -> None:
    midnight = Instant(datetime(987, 12, 25, 0, 30, tzinfo=UTC), "")
    assert layout("2006 3:04PM Z07:00 -0700 MST.999")(midnight) == "0987 12:30AM Z +0000 UTC"
    west = Instant(datetime(2026, 1, 1, tzinfo=timezone(-timedelta(hours=3, minutes=30))), "")
    assert layout("-07:00 -0700 -07 MST")(west) == "-03:30 -0330 -03 -0330"
    assert (
        layout("Z07:00")(Instant(datetime(2026, 1, 1, tzinfo=timezone(-timedelta(0))), "")) == "Z"
    )


@pytest.mark.parametrize(
    "text", ["", "YYYY-MM-DD", "%Y-%m-%d", "rfc3339", "RFC3339nano", "ISO8601"]
)
def test_a_layout_that_would_be_written_as_it_stands_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RFC3339Nano"):
        layout(text)


def test_a_datetime_keeps_zone_and_microseconds() -> None:
    now = datetime(2026, 7, 20, 10, 0, 0, 120_000, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert rfc3339_nano(Instant.of(now)) == "2026-07-20T10:00:00.12+09:00"
    assert unix(Instant.of(now)) == "1784509200"
