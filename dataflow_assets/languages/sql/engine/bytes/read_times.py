"""Times in JSON and CSV, by the rules of Flink's formats."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from dataflow_assets.languages.sql.engine.bytes.layout import FlinkLayout, Times
from dataflow_assets.languages.sql.engine.casts import cutter
from dataflow_assets.languages.sql.engine.texts import parsed_date, parsed_moment, parsed_time
from dataflow_assets.languages.sql.engine.types import FlinkType

Read = Callable[[Any], Any]
"""From a JSON value that is not null. Raises ValueError."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(?:\.\d{1,9})?", re.ASCII)
_SHORT_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?"
_SHORT = re.compile(_SHORT_CLOCK, re.ASCII)
"""Without seconds: in times of ISO-8601, and of CSV."""
_DAYS_END = re.compile(r"24:00:00(?:\.0+)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_reader(kind: FlinkType, layout: FlinkLayout) -> Read:
    """Returns what reads a DATE, a TIME or a moment."""
    if kind.kind == "DATE":
        return _day
    if kind.moment:
        return _moments(kind, "SQL" if layout.kind == "csv" else layout.times)
    read = _short_clock if layout.kind == "csv" else _clock
    cut = cutter(kind)
    return lambda value: cut(read(value))


def _day(value: Any) -> date:
    return parsed_date(_of_shape(value, _DAY, "a date like 2020-12-30"))


def _short_clock(value: Any) -> time:
    return parsed_time(_of_shape(value, _SHORT, "a time like 12:13:14"))


def _of_shape(value: Any, shape: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not shape.fullmatch(value):
        raise ValueError(f"not {what}")
    return value


def _clock(value: Any) -> time:
    """The end of a day is its beginning, as in Flink."""
    text = _of_shape(value, _CLOCK, "a time like 12:13:14")
    return time() if _DAYS_END.fullmatch(text) else parsed_time(text)


def _moments(kind: FlinkType, times: Times) -> Read:
    separator = " " if times == "SQL" else "T"
    local = kind.kind == "TIMESTAMP_LTZ"
    zone = "Z" if local else "Z?" if times == "RFC-3339" else ""
    clock = _CLOCK.pattern if times == "SQL" else _SHORT_CLOCK
    shape = re.compile(f"({_DAY.pattern}){separator}({clock})({zone})", re.ASCII)
    message = f"not a time like 2020-12-30{separator}12:13:14{'Z' if local else ''}"
    cut = cutter(kind)

    def read(value: Any) -> datetime:
        if value.__class__ is int and times == "RFC-3339":
            return _of_millis(value, aware=local)
        if not isinstance(value, str) or not (parts := shape.fullmatch(value)):
            raise ValueError(message)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:  # whose message has the value in it
            try:
                moment = _moment(*parts.group(1, 2, 3))
            except (ValueError, OverflowError):
                raise ValueError(message) from None
        cut_moment: datetime = cut(
            moment if local or not moment.tzinfo else moment.replace(tzinfo=None)
        )
        return cut_moment

    return read


def _moment(day: str, clock: str, zone: str) -> datetime:
    short = clock if clock.count(":") == 2 else f"{clock}:00"
    moment = parsed_moment(f"{day} {_DAYS_END.sub('24:00:00', short)}")
    return moment.replace(tzinfo=UTC) if zone else moment


def _of_millis(value: int, *, aware: bool) -> datetime:
    moment = _EPOCH + timedelta(milliseconds=value)
    return moment if aware else moment.replace(tzinfo=None)
