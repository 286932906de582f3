"""Text with placeholders, read once: `${$.path}` of the body, `${metadata.key}`, `${now}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.record import MISSING, Record, text_form
from dataflow_assets.records.times.instant import Instant, rfc3339_nano

Value = Callable[[Record], Any]

METADATA = re.compile(r"\$\{metadata\.([^{}]+)\}")
_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}]*)\}?")
_ALLOWED = "allowed are ${now}, ${metadata.key} and ${$.path}; a literal ${ is written $${"


def alone(text: str) -> list[str]:
    """The metadata key that the text is nothing but a placeholder of, if it is."""
    match = METADATA.fullmatch(text)
    return [match[1]] if match else []


def paths(text: str) -> list[Path]:
    """The paths of the body that are named, in their order."""
    texts = (match[1] or "" for match in _PLACEHOLDER.finditer(text))
    return [Path.parse(path) for path in texts if path.startswith("$.")]


def constant(value: Any) -> Value:
    return lambda _: value


def metadata(key: str) -> Value:
    """Metadata as text; a time in UTC with all its digits, what is missing as nothing."""

    def value(record: Record) -> str:
        text = record.metadata.get(key)
        if isinstance(text, datetime):
            return rfc3339_nano(Instant.of(text).at(UTC))
        return text_form(text)

    return value


def value_of(text: str, now: str) -> Value:
    """The text of each record; one placeholder of the body alone is its value, or MISSING.

    Raises ValueError for a placeholder that does not exist.
    """
    parts = list(_parts(text, now))
    if len(parts) == 1:
        return parts[0]

    def value(record: Record) -> str:
        texts = (part(record) for part in parts)
        return "".join(text_form(None if part is MISSING else part) for part in texts)

    return value


def _parts(text: str, now: str) -> Iterator[Value]:
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        if match.start() > end:
            yield constant(text[end : match.start()])
        yield constant("${") if match[0] == "$${" else _placeholder(match, now)
        end = match.end()
    if end < len(text) or not text:
        yield constant(text[end:])


def _placeholder(match: re.Match[str], now: str) -> Value:
    for key in alone(match[0]):
        return metadata(key)
    if match[0] == "${now}":
        return constant(now)
    if match[0].endswith("}") and match[1].startswith("$."):
        get = Path.parse(match[1]).getter()
        return lambda record: get(record.body)
    raise ValueError(f"a placeholder that does not exist; {_ALLOWED}")
