"""Flink's durations: `500ms`, `1 s`, `5 min`; a number alone is milliseconds."""

from __future__ import annotations

import re

_DURATION = re.compile(r"\s*([0-9]{1,15})\s*([a-zµ]*)\s*", re.IGNORECASE)
_UNITS = {
    ("d", "day", "days"): 86_400_000.0,
    ("h", "hour", "hours"): 3_600_000.0,
    ("m", "min", "minute", "minutes"): 60_000.0,
    ("s", "sec", "secs", "second", "seconds"): 1000.0,
    ("", "ms", "milli", "millis", "millisecond", "milliseconds"): 1.0,
    ("µs", "micro", "micros", "microsecond", "microseconds"): 1e-3,
    ("ns", "nano", "nanos", "nanosecond", "nanoseconds"): 1e-6,
}


def milliseconds(text: str) -> int | None:
    """A duration in milliseconds; None where the text is not one."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    units = (size for names, size in _UNITS.items() if found[2].lower() in names)
    unit = next(units, None)
    return None if unit is None else int(int(found[1]) * unit)
