"""Dates and times. The present is the time when the micro-batch was planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from dataflow_assets.languages.sql.engine.casts import cutter, to_local, to_utc
from dataflow_assets.languages.sql.engine.function import Environment, Function, Resolved
from dataflow_assets.languages.sql.engine.functions import moments
from dataflow_assets.languages.sql.engine.functions.signatures import fit
from dataflow_assets.languages.sql.engine.types import (
    BIGINT,
    DATE,
    MILLIS,
    MONTHS,
    TIMESTAMP,
    FlinkType,
)

INSTANT = FlinkType("TIMESTAMP_LTZ", 3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Change = Callable[[Any], Any]


def _local(kind: FlinkType, environment: Environment) -> Change:
    """A time as a clock in the session's zone shows it."""
    zone = environment.local
    if kind.kind == "TIMESTAMP_LTZ":
        return lambda value: to_local(value, zone)
    return lambda value: value


def _back(kind: FlinkType, environment: Environment) -> Change:
    zone = environment.local
    if kind.kind == "TIMESTAMP_LTZ":
        return lambda value: to_utc(value, zone)
    return lambda value: value


def _current_time(wanted: FlinkType) -> Callable[[Sequence[FlinkType], Environment], Resolved]:
    def resolve(types: Sequence[FlinkType], environment: Environment) -> Resolved:
        fit(types, ())
        now = cutter(INSTANT)(environment.now.astimezone(UTC))
        if wanted.kind == "TIMESTAMP":
            now = to_local(now, environment.local)
        elif wanted.kind == "DATE":
            now = to_local(now, environment.local).date()
        return Resolved(wanted, lambda: now, nulls=True)

    return resolve


def _extract(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("text", "time"))
    local = _local(types[1], environment)
    return Resolved(BIGINT, lambda unit, value: moments.part(local(value), unit))


def _to_unit(
    move: Callable[[Any, str], Any],
) -> Callable[[Sequence[FlinkType], Environment], Resolved]:
    def resolve(types: Sequence[FlinkType], environment: Environment) -> Resolved:
        fit(types, ("time", "text"))
        if types[0].kind == "TIME":
            raise ValueError("argument 1 is of type TIME; allowed: a date, or date and time")
        local, back = _local(types[0], environment), _back(types[0], environment)
        return Resolved(types[0], lambda value, unit: back(move(local(value), unit)))

    return resolve


def _add(types: Sequence[FlinkType], _: Environment) -> Resolved:
    """TIMESTAMPADD(unit, number, time), where the unit of a date is one of days."""
    fit(types, ("text", "integer", "time"))
    months = moments.shift(types[2], MONTHS)
    millis = moments.shift(types[2], MILLIS)

    def call(unit: str, number: int, value: Any) -> Any:
        if unit in moments.MONTHS:
            return months(value, number * moments.MONTHS[unit])
        return millis(value, number * moments.MILLIS[unit])

    return Resolved(types[2], call)


def _difference(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    """TIMESTAMPDIFF(unit, from, to): of two instants no clock is asked."""
    fit(types, ("text", "date|moment", "date|moment"))
    if {one.kind for one in types[1:]} == {"TIMESTAMP_LTZ"}:
        return Resolved(FlinkType("INT"), moments.between)
    first, second = (at_midnight(one, environment) for one in types[1:])
    return Resolved(FlinkType("INT"), lambda unit, a, b: moments.between(unit, first(a), second(b)))


def at_midnight(kind: FlinkType, environment: Environment) -> Change:
    if kind.kind == "DATE":
        return lambda value: datetime(value.year, value.month, value.day)  # noqa: DTZ001
    return _local(kind, environment)


def presents(name: str, arguments: int) -> bool:
    """Returns whether the result of a function is the present time, and so another one later."""
    return name in _PRESENT or (name == "UNIX_TIMESTAMP" and not arguments)


_PRESENT = ("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE")
_GROUP = "Times"
_UNITS = "YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND"
_NOON = "TIMESTAMP '2020-12-30 12:13:14'"
FUNCTIONS = (
    Function(
        "CURRENT_TIMESTAMP",
        "CURRENT_TIMESTAMP",
        "TIMESTAMP_LTZ(3): when the micro-batch was planned, the same for all its rows and when "
        "they are read again. Also `NOW()`, `CURRENT_ROW_TIMESTAMP()`, `PROCTIME()`.",
        _current_time(INSTANT),
        (("CURRENT_TIMESTAMP = NOW()", "TRUE"),),
        _GROUP,
    ),
    Function(
        "LOCALTIMESTAMP",
        "LOCALTIMESTAMP",
        "The same as TIMESTAMP(3) in `table.local-time-zone`.",
        _current_time(TIMESTAMP),
        (("LOCALTIMESTAMP", "2026-07-20 10:00:00.000"),),
        _GROUP,
    ),
    Function(
        "CURRENT_DATE",
        "CURRENT_DATE",
        "",
        _current_time(DATE),
        (("CURRENT_DATE", "2026-07-20"),),
        _GROUP,
    ),
    Function(
        "EXTRACT",
        "EXTRACT(unit FROM a)",
        f"{_UNITS}, MILLISECOND, DOY, DOW (Sunday is 1). Also `YEAR(a)`, `QUARTER(a)`, `MONTH(a)`, "
        "`WEEK(a)`, `DAYOFMONTH(a)`, `DAYOFYEAR(a)`, `DAYOFWEEK(a)`, `HOUR(a)`, `MINUTE(a)`, "
        "`SECOND(a)`.",
        _extract,
        ((f"EXTRACT(HOUR FROM {_NOON})", "12"), ("YEAR(DATE '2020-12-30')", "2020")),
        _GROUP,
    ),
    Function(
        "FLOOR TO",
        "FLOOR(a TO unit)",
        f"{_UNITS}; weeks begin on Sunday.",
        _to_unit(moments.floor),
        ((f"FLOOR({_NOON} TO HOUR)", "2020-12-30 12:00:00"),),
        _GROUP,
    ),
    Function(
        "CEIL TO",
        "CEIL(a TO unit)",
        "",
        _to_unit(moments.ceiling),
        ((f"CEIL({_NOON} TO DAY)", "2020-12-31 00:00:00"),),
        _GROUP,
    ),
    Function(
        "TIMESTAMPADD",
        "TIMESTAMPADD(unit, number, a)",
        f"{_UNITS}. Of a DATE a TIMESTAMP(0) where the unit is smaller than a day.",
        _add,
        (
            (f"TIMESTAMPADD(MINUTE, 3, {_NOON})", "2020-12-30 12:16:14"),
            ("TIMESTAMPADD(HOUR, 25, DATE '2020-12-30')", "2020-12-31 01:00:00"),
            ("TIMESTAMPADD(DAY, 1, DATE '2020-12-30')", "2020-12-31"),
        ),
        _GROUP,
    ),
    Function(
        "TIMESTAMPDIFF",
        "TIMESTAMPDIFF(unit, a, b)",
        "Whole units from a to b, an INT that overflows as in Java. The last day of a month counts "
        "as the day that it lacks. Of two TIMESTAMP_LTZ the time that has passed: a day on which "
        "clocks change has 23 or 25 hours.",
        _difference,
        (
            (f"TIMESTAMPDIFF(DAY, DATE '2020-12-01', {_NOON})", "29"),
            ("TIMESTAMPDIFF(MONTH, DATE '2020-01-31', DATE '2020-02-29')", "1"),
            ("TIMESTAMPDIFF(SECOND, DATE '1900-01-01', DATE '2100-01-01')", "2016466304"),
        ),
        _GROUP,
    ),
)
