"""Durations as Go writes them, `1m30s` or `500ms`: the DataFlow Operator's own way."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

_UNITS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}
_MOST = 24 * 24 * 3.6e6  # Kafka's clients count milliseconds in 31 bits
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")


def milliseconds(duration: str) -> int:
    """Go's way to write a duration, `1m30s` or `500ms`; ValueError unless above zero."""
    parts = _PART.findall(duration)
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != duration or total <= 0.5:
        raise ValueError("must be a duration above zero, like 500ms or 1m30s")
    if total > _MOST:
        raise ValueError("must be a duration of at most 24 days")
    return round(total)


def _duration(text: str) -> str:
    milliseconds(text)
    return text


def _text(value: Any) -> Any:
    if isinstance(value, int | float):
        raise ValueError("must be a duration with its unit, like 500ms or 1m30s")  # noqa: TRY004
    return value


Duration = Annotated[str, AfterValidator(_duration), BeforeValidator(_text)]
