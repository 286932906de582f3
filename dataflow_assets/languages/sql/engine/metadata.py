"""Reads and writes columns of a record that are in neither its key nor its value."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.casts import cast, or_null
from dataflow_assets.languages.sql.engine.texts import parsed_moment
from dataflow_assets.languages.sql.engine.types import (
    BIGINT,
    BYTES,
    INT,
    STRING,
    TIMESTAMP_LTZ,
    FlinkType,
)

Read = Callable[[Mapping[str, Any]], Any]
"""From a record's metadata to the value of a column."""
TIMESTAMP, HEADERS, HEADER_LIST = "timestamp", "headers", "header-list"
_HEADER = FlinkType("ROW", items=(STRING, BYTES), names=("key", "value"))
METADATA: Mapping[str, FlinkType] = {
    "topic": STRING,
    "partition": INT,
    "offset": BIGINT,
    TIMESTAMP: TIMESTAMP_LTZ,
    HEADERS: FlinkType("MAP", items=(STRING, BYTES)),
    HEADER_LIST: FlinkType("ARRAY", items=(_HEADER,)),
}
"""By the key of METADATA what its values are."""
_NAMES = FlinkType("ARRAY", items=(STRING,))
OF_CHANGES: Mapping[str, Mapping[str, FlinkType]] = {
    "debezium": {
        "value.schema": STRING,
        "value.ingestion-timestamp": TIMESTAMP_LTZ,
        "value.source.timestamp": TIMESTAMP_LTZ,
        "value.source.database": STRING,
        "value.source.schema": STRING,
        "value.source.table": STRING,
        "value.source.properties": FlinkType("MAP", items=(STRING, STRING)),
    },
    "canal": {
        "value.database": STRING,
        "value.table": STRING,
        "value.sql-type": FlinkType("MAP", items=(STRING, INT)),
        "value.pk-names": _NAMES,
        "value.ingestion-timestamp": TIMESTAMP_LTZ,
        "value.event-timestamp": TIMESTAMP_LTZ,
    },
    "maxwell": {
        "value.database": STRING,
        "value.table": STRING,
        "value.primary-key-columns": _NAMES,
        "value.ingestion-timestamp": TIMESTAMP_LTZ,
    },
}
"""The same of what is in the envelope of a change, by what has captured it."""
_ALL = {name: one for some in (METADATA, *OF_CHANGES.values()) for name, one in some.items()}
WRITABLE = (TIMESTAMP, HEADERS, HEADER_LIST)
"""The keys that an INSERT can fill."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_envelope(key: str) -> bool:
    """Returns whether it is in the message itself, around the row."""
    return key.startswith("value.")


def metadata_of_key(key: str) -> frozenset[str]:
    """Returns what a source must read for a key of METADATA."""
    if in_envelope(key):
        return frozenset()
    return frozenset({HEADERS, HEADER_LIST} if key in (HEADERS, HEADER_LIST) else {key})


def reader(key: str, wanted: FlinkType, zone: ZoneInfo) -> Read:
    """Returns what reads a column of METADATA, cast to its declared type."""
    read = _READS.get(key) or (lambda metadata: metadata.get(key))
    if wanted == _ALL[key]:
        return read
    change = cast(_ALL[key], wanted, zone)
    assert change is not None, "was looked at when the file was loaded"  # noqa: S101
    guarded = or_null(change)
    return lambda metadata: guarded(read(metadata))


def writer(key: str) -> Callable[[Any], Any]:
    """Returns the JSON form of a value to write: milliseconds, or pairs of name and base64."""
    if key == TIMESTAMP:
        return _millis
    if key == HEADERS:
        return lambda value: _pairs(value.items())
    return _pairs


def _millis(value: datetime) -> int:
    """Raises ValueError for what no record can carry: to the client 0 is the present."""
    number = (value - _EPOCH) // timedelta(milliseconds=1)
    if number < 1:
        raise ValueError("a record's timestamp must be later than 1970-01-01 00:00:00 UTC")
    return number


def _pairs(value: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [[name or "", _base64(one)] for name, one in value]


def headers_of(pairs: Any) -> list[tuple[str, bytes | None]]:
    """Written headers as a producer takes them."""
    return [(name, None if text is None else base64.b64decode(text)) for name, text in pairs or ()]


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _time(metadata: Mapping[str, Any]) -> datetime | None:
    value = metadata.get(TIMESTAMP)
    if isinstance(value, int):
        raise RejectedRecord("step", "the record's timestamp is beyond the year 9999")
    if isinstance(value, str):  # of a rejected record that is put back
        value = parsed_moment(value.replace("T", " ").removesuffix("Z")).replace(tzinfo=UTC)
    return None if value is None else _in_millis(value.astimezone(UTC))


def _in_millis(value: datetime) -> datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _header_list(metadata: Mapping[str, Any]) -> list[list[Any]]:
    return [[one["key"], _bytes(one["value"])] for one in metadata.get(HEADER_LIST) or ()]


def _bytes(value: Any) -> bytes | None:
    return base64.b64decode(value) if isinstance(value, str) else value


_READS: Mapping[str, Read] = {
    TIMESTAMP: _time,
    HEADERS: lambda metadata: dict(_header_list(metadata)),
    HEADER_LIST: _header_list,
}
