"""Reads where a flow starts and ends: `scan.startup.*` and `scan.bounded.*`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from dataflow_assets.connectors.kafka.values import Begin, End
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.sql.reader.options import UPSERT
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared

_STARTUP, _BOUNDED = "scan.startup", "scan.bounded"
_STARTS = {
    "group-offsets": "group",
    "earliest-offset": "earliest",
    "latest-offset": "latest",
    "timestamp": "timestamp",
    "specific-offsets": "group",
}
_ENDS = ("unbounded", "latest-offset", "timestamp", "specific-offsets")
_MILLIS = re.compile(r"[0-9]{1,14}")
_OFFSET = re.compile(r"\s*partition:([0-9]{1,9})\s*,\s*offset:([0-9]{1,18})\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def begin(table: FlinkDeclared, notes: Notes) -> tuple[dict[str, Any], Begin | None]:
    """The fields of a source that say where a flow without a checkpoint begins, or its offsets."""
    if table.connector == UPSERT:
        return {"starting_offsets": "earliest"}, None
    mode = table.text(f"{_STARTUP}.mode", "group-offsets")
    if mode not in _STARTS:
        notes.wrong((table.document, f"{_STARTUP}.mode"), suggest(mode, _STARTS))
        return {}, None
    fields: dict[str, Any] = {"starting_offsets": _STARTS[mode]}
    millis, offsets = _start_of(table, _STARTUP, mode, notes)
    if millis is not None:
        time = _EPOCH + timedelta(milliseconds=millis)
        return {**fields, "starting_timestamp": time.isoformat()}, None
    return fields, None if offsets is None else Begin(offsets)


def end(table: FlinkDeclared, notes: Notes) -> End | None:
    """Returns the place where a flow ends for ever."""
    key = f"{_BOUNDED}.mode"
    mode = table.text(key, "unbounded")
    if mode not in _ENDS:
        reason = "is where a flow begins: end at a time, or at offsets; " if "group" in mode else ""
        notes.wrong((table.document, key), f"{reason}{suggest(mode, _ENDS)}")
        return None
    if mode == "latest-offset":
        message = "each run reads what is there when the run begins: `dataflow run` ends then"
        notes.note((table.document, key), message)
    millis, offsets = _start_of(table, _BOUNDED, mode, notes)
    if millis is not None:
        return End(millis=millis)
    return None if offsets is None else End(offsets)


def _start_of(
    table: FlinkDeclared, start: str, mode: str, notes: Notes
) -> tuple[int | None, dict[int, int] | None]:
    """The time or the offsets that a mode needs; `notes` gets what is wrong with them."""
    time, offsets = f"{start}.timestamp-millis", f"{start}.specific-offsets"
    for key, wanted in ((time, "timestamp"), (offsets, "specific-offsets")):
        if key in table.options and mode != wanted:
            notes.wrong((table.document, key), f"is used only with {start}.mode = {wanted}")
    if mode == "timestamp":
        return _millis(table, time, notes), None
    return None, _offsets(table, offsets, notes) if mode == "specific-offsets" else None


def _millis(table: FlinkDeclared, key: str, notes: Notes) -> int | None:
    text = table.text(key)
    if _MILLIS.fullmatch(text):
        return int(text)
    notes.wrong((table.document, key), "must be a number of milliseconds", key=not text)
    return None


def _offsets(table: FlinkDeclared, key: str, notes: Notes) -> dict[int, int] | None:
    text = table.text(key)
    matches = [_OFFSET.fullmatch(part) for part in text.split(";") if part.strip()]
    pairs = [(int(one[1]), int(one[2])) for one in matches if one]
    if len(pairs) < len(matches) or not pairs or len(dict(pairs)) < len(pairs):
        message = "must be partition:0,offset:42;partition:1,offset:300, each partition once"
        notes.wrong((table.document, key), message, key=not text)
        return None
    return dict(pairs)
