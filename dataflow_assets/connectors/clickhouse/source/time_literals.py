"""Points in time as texts of a column: rounded to what the column keeps, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dataflow_assets.sdk.polling import moment
from dataflow_assets.sdk.polling.ticks import DAY, SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(text: str, digits: int, *, day: bool = False) -> str:
    """The last tick that is not behind a point in time."""
    tick = _tick(digits, day=day)
    return _text(_nanoseconds(text) // tick * tick, digits, day=day)


def before(text: str, digits: int, *, day: bool = False) -> str:
    """The last tick that is before a point in time."""
    tick = _tick(digits, day=day)
    return _text((-(-_nanoseconds(text) // tick) - 1) * tick, digits, day=day)


def moment_text(nanoseconds: int, digits: int) -> str:
    """Nanoseconds since 1970 as a value of a column."""
    return _text(nanoseconds, digits, day=False)


def _tick(digits: int, *, day: bool) -> int:
    return DAY if day else 10 ** (9 - digits)


def _nanoseconds(text: str) -> int:
    whole, _, zone = moment(text, 9).rpartition("+")
    seconds, _, fraction = whole.partition(".")
    since = datetime.fromisoformat(f"{seconds}+{zone}") - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + int(fraction.ljust(9, "0") or 0)


def _text(nanoseconds: int, digits: int, *, day: bool) -> str:
    seconds, rest = divmod(nanoseconds, SECOND)
    found = _EPOCH + timedelta(seconds=seconds)
    if day:
        return found.date().isoformat()
    fraction = f".{rest:09}"[: digits + 1] if digits else ""
    return f"{found:%Y-%m-%d %H:%M:%S}{fraction}"
