"""Durations and moments as manifests write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from dataflow_assets.records.times.instant import duration

_MOST = timedelta(days=24)  # Kafka's clients count milliseconds in 31 bits


def milliseconds(text: str) -> int:
    """Go's way to write a duration, `1m30s` or `500ms`; ValueError unless above half of one."""
    time = duration(text, _MOST)
    if time <= timedelta(milliseconds=0.5):
        raise ValueError("must be a duration above zero, like 500ms or 1m30s")
    return round(time / timedelta(milliseconds=1))


def _duration(text: str) -> str:
    milliseconds(text)
    return text


def _text(value: Any) -> Any:
    if isinstance(value, int | float):
        raise ValueError("must be a duration with its unit, like 500ms or 1m30s")  # noqa: TRY004
    return value


Duration = Annotated[str, AfterValidator(_duration), BeforeValidator(_text)]


def moment(text: str) -> datetime:
    """An ISO 8601 date and time; without a zone it is in UTC. ValueError for anything else."""
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _with_zone(text: str) -> str:
    try:
        zone = datetime.fromisoformat(text).tzinfo
    except ValueError:
        zone = None
    if zone is None:
        raise ValueError("must be a date and time with a zone, like 2026-01-31T00:00:00Z")
    return text


Timestamp = Annotated[str, AfterValidator(_with_zone)]
