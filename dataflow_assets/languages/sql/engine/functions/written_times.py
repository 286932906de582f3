"""Times as texts and numbers, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dataflow_assets.languages.sql.engine.casts import cutter, to_local, to_utc
from dataflow_assets.languages.sql.engine.function import Environment, Function, Resolved
from dataflow_assets.languages.sql.engine.functions import lenient_times, patterns
from dataflow_assets.languages.sql.engine.functions.signatures import fit
from dataflow_assets.languages.sql.engine.functions.times import EPOCH, INSTANT, at_midnight
from dataflow_assets.languages.sql.engine.texts import parsed_date, parsed_moment
from dataflow_assets.languages.sql.engine.types import BIGINT, DATE, STRING, TIMESTAMP, FlinkType

_NO_TIME = -(2**63)  # what Flink makes of a text that is no time
_SECONDS = "yyyy-MM-dd HH:mm:ss"


def _format(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("date|moment|text", "text"))
    if types[0].text:
        return Resolved(STRING, _reformat)
    local = at_midnight(types[0], environment)
    return Resolved(STRING, lambda value, pattern: patterns.format_time(local(value), pattern))


def _reformat(text: str, pattern: str) -> str | None:
    moment = patterns.read(text[:19], _SECONDS)
    return None if moment is None else patterns.format_time(moment, pattern)


def _to_timestamp(types: Sequence[FlinkType], _: Environment) -> Resolved:
    fit(types, ("text", "text?"))
    return Resolved(TIMESTAMP, _timestamp)


def _timestamp(text: str, pattern: str | None = None) -> datetime | None:
    moment = patterns.read(text, pattern) if pattern is not None else None
    try:
        moment = moment or parsed_moment(text.strip() if pattern is not None else text)
    except ValueError:
        return None
    return _in_millis(moment)


_in_millis: Callable[[datetime], datetime] = cutter(TIMESTAMP)


def _to_ltz(types: Sequence[FlinkType], _: Environment) -> Resolved:
    if types and types[0].text:
        fit(types, ("text", "text?", "text?"))
        return Resolved(INSTANT, _instant)
    fit(types, ("number", "integer?"))

    def call(number: Any, digits: int = 3) -> datetime | None:
        if digits not in (0, 3):
            raise ValueError("TO_TIMESTAMP_LTZ: the precision is 0 or 3")
        if isinstance(number, float) and not math.isfinite(number):
            return None
        try:
            return EPOCH + timedelta(milliseconds=int(number if digits else int(number) * 1000))
        except OverflowError:
            return None

    return Resolved(INSTANT, call)


def _instant(text: str, pattern: str | None = None, zone: str = "UTC") -> datetime | None:
    moment = _timestamp(text, pattern)
    return None if moment is None else to_utc(moment, _zone_of(zone))


def _zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("not a time zone: write its name, like UTC or Europe/Berlin") from None


def _to_date(types: Sequence[FlinkType], _: Environment) -> Resolved:
    fit(types, ("text", "text?"))

    def call(text: str, pattern: str | None = None) -> Any:
        if pattern is not None:
            moment = patterns.read(text, pattern)
            return None if moment is None else moment.date()
        try:
            return parsed_date(text)
        except ValueError:
            return None

    return Resolved(DATE, call)


def _from_unix(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("integer", "text?"))
    zone = environment.local

    def call(seconds: int, pattern: str = _SECONDS) -> str:
        return patterns.format_time(to_local(EPOCH + timedelta(seconds=seconds), zone), pattern)

    return Resolved(STRING, call)


def _unix(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("text?", "text?"))
    zone, now = environment.local, environment.now
    if not types:
        present = int((now - EPOCH).total_seconds())
        return Resolved(BIGINT, lambda: present, nulls=True)

    def call(text: str, pattern: str = _SECONDS) -> int:
        number = lenient_times.seconds(text, pattern, zone, now)
        return _NO_TIME if number is None else number

    return Resolved(BIGINT, call)


_PATTERN = (
    "Patterns have the letters y u M L d H h m s S a E, texts in quotes, and `[...]` around what "
    "may be missing."
)


_GROUP = "Times"
_NOON = "TIMESTAMP '2020-12-30 12:13:14'"
FUNCTIONS = (
    Function(
        "DATE_FORMAT",
        "DATE_FORMAT(a, pattern)",
        _PATTERN,
        _format,
        (
            (f"DATE_FORMAT({_NOON}, 'yyyy/MM/dd HH')", "2020/12/30 12"),
            ("DATE_FORMAT('2020-12-30 12:13:14', 'yyyyMMdd')", "20201230"),
        ),
        _GROUP,
    ),
    Function(
        "TO_TIMESTAMP",
        "TO_TIMESTAMP(text[, pattern])",
        "TIMESTAMP(3); null where the text is not one. Without a pattern, and where it does not "
        f"fit, the text is read as `yyyy-M-d[ H:m:s[.f]]`. {_PATTERN}",
        _to_timestamp,
        (
            ("TO_TIMESTAMP('2020-12-30 12:13:14')", "2020-12-30 12:13:14.000"),
            ("TO_TIMESTAMP('2020-1-2 3:04:05.6789')", "2020-01-02 03:04:05.678"),
            ("TO_TIMESTAMP('2020-12-30')", "2020-12-30 00:00:00.000"),
            ("TO_TIMESTAMP('2021-02-30')", "2021-02-28 00:00:00.000"),
            ("TO_TIMESTAMP('2020-12-30T12:13:14')", None),
            ("TO_TIMESTAMP('30.12.2020', 'dd.MM.yyyy')", "2020-12-30 00:00:00.000"),
            (
                "TO_TIMESTAMP('2020-12-30T12:13', 'yyyy-MM-dd''T''HH:mm[:ss]')",
                "2020-12-30 12:13:00.000",
            ),
            ("TO_TIMESTAMP('30 Dec 20', 'dd MMM yy')", "2020-12-30 00:00:00.000"),
            ("TO_TIMESTAMP('20201230', 'yyyyMMdd')", "2020-12-30 00:00:00.000"),
            ("TO_TIMESTAMP('2020-1-2', 'yyyy/MM/dd')", "2020-01-02 00:00:00.000"),
            ("TO_TIMESTAMP('x')", None),
        ),
        _GROUP,
    ),
    Function(
        "TO_TIMESTAMP_LTZ",
        "TO_TIMESTAMP_LTZ(number[, 0 | 3])",
        "Of seconds (0) or milliseconds (3). Also `TO_TIMESTAMP_LTZ(text[, pattern[, zone]])`, in "
        "UTC without a zone.",
        _to_ltz,
        (
            ("TO_TIMESTAMP_LTZ(1000, 3)", "1970-01-01 00:00:01.000"),
            ("TO_TIMESTAMP_LTZ(1, 0)", "1970-01-01 00:00:01.000"),
            ("TO_TIMESTAMP_LTZ(1500.9, 3)", "1970-01-01 00:00:01.500"),
            (
                "TO_TIMESTAMP_LTZ('2020-12-30 12', 'yyyy-MM-dd HH', 'Asia/Tokyo')",
                "2020-12-30 03:00:00.000",
            ),
        ),
        _GROUP,
    ),
    Function(
        "TO_DATE",
        "TO_DATE(text[, pattern])",
        "Null where the text is not one.",
        _to_date,
        (
            ("TO_DATE('2020-12-30')", "2020-12-30"),
            ("TO_DATE('2020-12-30 12:13:14')", "2020-12-30"),
            ("TO_DATE('x')", None),
        ),
        _GROUP,
    ),
    Function(
        "FROM_UNIXTIME",
        "FROM_UNIXTIME(seconds[, pattern])",
        "In `table.local-time-zone`.",
        _from_unix,
        (("FROM_UNIXTIME(44)", "1970-01-01 00:00:44"),),
        _GROUP,
    ),
    Function(
        "UNIX_TIMESTAMP",
        "UNIX_TIMESTAMP([text[, pattern]])",
        "Seconds; in `table.local-time-zone`. What is behind the pattern is left out, months and "
        "days that are too large are counted on, and of an hour that comes twice the later one is "
        "taken, as SimpleDateFormat does. A text that is not a time gives the least BIGINT.",
        _unix,
        (
            ("UNIX_TIMESTAMP('1970-01-01 00:00:44')", "44"),
            ("UNIX_TIMESTAMP('1970-01-01 00:00:44.5')", "44"),
            ("UNIX_TIMESTAMP('x')", "-9223372036854775808"),
        ),
        _GROUP,
    ),
)
