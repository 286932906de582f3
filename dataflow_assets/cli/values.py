"""Texts of the command line -> values, or argparse's error with what is allowed."""

from __future__ import annotations

import argparse
import re
from datetime import datetime

_OFFSETS = re.compile(r"[^=,\s]+=\d+(,[^=,\s]+=\d+)*")
_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[smhd]?)", re.ASCII)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d.*")


def listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if colon and host and port.isascii() and port.isdecimal() and int(port) < 1 << 16:
        return host.strip("[]"), int(port)
    raise argparse.ArgumentTypeError("must be host:port, such as 0.0.0.0:9464")


def duration(text: str) -> float:
    """A number with or without a unit -> seconds."""
    match = _DURATION.fullmatch(text)
    seconds = float(match["number"]) * _UNITS[match["unit"]] if match else 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError("must be seconds, or a time such as 90s, 30m, 1h or 2d")
    return seconds


def count(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError("must be a whole number, more than 0")


def time(text: str) -> str:
    if _is_time(text):
        return text
    raise argparse.ArgumentTypeError("must be a timestamp such as 2026-01-31T00:00:00Z")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return _TIMESTAMP.fullmatch(text) is not None


def moment(text: str) -> datetime:
    from dataflow_assets.runs.replay import moment as read  # takes PyArrow along

    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def start(text: str) -> str:
    """`--from`: a word, a timestamp, or offsets by partition."""
    if text in {"checkpoint", "earliest", "latest"}:
        return text
    if _OFFSETS.fullmatch(text) or _is_time(text):
        return text
    raise argparse.ArgumentTypeError(
        "must be checkpoint, earliest, latest, a timestamp such as 2026-01-31T00:00:00Z, or "
        "offsets such as 0=120,1=300"
    )
