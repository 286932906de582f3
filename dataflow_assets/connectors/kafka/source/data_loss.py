"""What is no longer there although it was not read, in words that name it."""

from __future__ import annotations

from collections.abc import Mapping

RESET = "run `dataflow reset` to begin anew"


def expired(topic: str, begins: Mapping[int, int], lows: Mapping[int, int]) -> str:
    """The offsets below the log start; empty when nothing is missing.

    Only the log start tells: compaction and transaction markers leave gaps above it.
    """
    lost = [
        f"partition {partition} offsets {begin} to {lows[partition] - 1}"
        for partition, begin in sorted(begins.items())
        if begin < lows[partition]
    ]
    if not lost:
        return ""
    return (
        f"topic {topic}: {'; '.join(lost)}: removed by retention, or by somebody, before they were "
        f"read"
    )


def replaced(topic: str, begins: Mapping[int, int], kept: Mapping[int, int | None]) -> str:
    """The logs that were cut off below what was read, and have grown again since."""
    if not kept:
        return ""
    cut = [
        f"partition {partition} was cut off at offset {'?' if end is None else end}, below "
        f"{begins[partition]}, which comes next"
        for partition, end in sorted(kept.items())
    ]
    return (
        f"topic {topic}: {'; '.join(cut)}: a broker has lost records that were read, and other "
        f"records have their offsets now, which were not"
    )


def beyond(topic: str, begins: Mapping[int, int], highs: Mapping[int, int]) -> str:
    """The positions that lie above the end of the log; empty when there are none."""
    wrong = [
        f"partition {partition} ends at offset {highs[partition]}, but {begin} comes next"
        for partition, begin in sorted(begins.items())
        if begin > highs[partition]
    ]
    if not wrong:
        return ""
    return f"topic {topic}: {'; '.join(wrong)}: the log was cut off, or the topic was made anew"
