"""What happens to rejected records when a slice is committed, and the record an error sink gets.

The record is that of the DataFlow Operator with more of its origin: id, flow,
branch, step, place in the source, class of the error.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dataflow_assets.contracts import Entry, ErrorRecord, Rejection, Slice, Target, utc_now
from dataflow_assets.errors import RejectedRecord, Stopped
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.records.record import encode, parse
from dataflow_assets.sdk.record_ids import attempt_of, record_place, rejected_reading, rejection_id
from dataflow_assets.sdk.rejected_rows import metadata_text, with_place

log = logging.getLogger(__name__)

Records = Sequence[ErrorRecord]

HELD = "#held"
"""Ends the id of an entry at which the flow stopped: no replay takes it.

The flow reads the record again itself, and stores it, or rejects it under the id without this.
"""

_CLASSES = (
    ("timeout", "timeout|deadline exceeded"),
    ("connection_error", "connection refused|not connected|failed to connect|connection failure"),
    ("auth_error", "authentication|invalid password|unauthorized|sasl"),
    (
        "transient",
        (
            "too_many_requests_failed|transient|retry your query|worker node|under too much load"
            "|too many errors|the node may have crashed"
        ),
    ),
    ("invalid_data", "json|parse|schema|validation|invalid|syntax error"),
)
_UNKNOWN_FIELD = "Object contains unknown field"
"""How msgspec says that a record has a key without a column."""
_ELSE = {
    True: "set ackPolicy: afterWrite, which sets it aside for a replay and goes on",
    False: (
        "set onRejected: table (kept beside the target for a replay), onRejected: skip (counted "
        "and logged), or errors (a sink for such records)"
    ),
}
"""What a manifest may say instead of stopping at a record, by whether it has an error sink."""


def settle(
    target: Target,
    piece: Slice,
    rejections: Sequence[Rejection],
    beside: Callable[[Sequence[Rejection]], None],
    joined: Callable[[Records], bool] | None = None,
) -> None:
    """Does with rejected records what the flow asks for.

    Called by a sink's writer inside the task, once for each slice, before the commit of the slice.

    Args:
        target: the branch, with what its manifest says about rejected records.
        piece: the slice that the records are of.
        rejections: the records, none of which the checkpoint covers.
        beside: stores them in the sink's own table of rejected records.
        joined: stores error records in the sink's own transaction; False where the error sink is
            elsewhere.

    Raises:
        Stopped: the flow stops at the first of them.
        TransientError: the error sink cannot be reached.
    """
    if not rejections:
        return
    # Replays go by the order in which entries are stored.
    found, way = sorted(rejections, key=lambda one: (one.offset, one.n)), target.rejects.way
    if way == "table":
        beside(found)
    elif way == "skip":
        _log(target, piece, found)
    elif way == "errors" and target.rejects.sink is not None:
        records = [error_record(target, piece, one) for one in found]
        # What a flow stops at is rolled back with the rows: its error record must not be.
        if target.rejects.holds or joined is None or not joined(records):
            target.rejects.sink.error_store().store(records)
    if way == "fail" or target.rejects.holds:
        raise _stop(target, piece, found[0])


def _log(target: Target, piece: Slice, rejections: Sequence[Rejection]) -> None:
    for one in rejections:
        log.warning(
            "flow %s: skipped %s, %s: %s",
            target.flow,
            target.source,
            record_place(one, piece),
            one.reason,
        )


def _stop(target: Target, piece: Slice, one: Rejection) -> Stopped:
    holds = target.rejects.holds
    kept = "it is in the error sink, and " if holds else ""
    return Stopped(
        f"flow {target.flow} stops at {target.source}, {record_place(one, piece)}, for "
        f"{target.branch}: {one.stage}: {one.reason}; {kept}the flow goes on once it can be "
        f"stored: {_fix(one)}, or {_ELSE[holds]}",
        piece.partition,
        one.offset,
    )


def _fix(one: Rejection) -> str:
    if one.reason.startswith(_UNKNOWN_FIELD):
        return "add the column to the table, set unknownFields: ignore in the sink"
    return "fix the table, the steps or the record"


def error_record(target: Target, piece: Slice, one: Rejection) -> ErrorRecord:
    """The record for the error sink.

    Called inside tasks, once for each rejected record.

    Args:
        target: the branch that rejected it.
        piece: the slice that it is of.
        one: why, and the message itself.

    Returns:
        Body and metadata as JSON, under an id that is the same whenever the message is read.
    """
    encoding, original = _original(one.body)
    error = _error(target, piece, one) | {"encoding": encoding}
    body = {"error": error, "original_message": original}
    metadata = {
        "error": error["message"],
        "error_timestamp": error["timestamp"],
        "original_sink": error["original_sink"],
        "is_error_message": True,
    }
    return ErrorRecord(error["id"], target.flow, encode(body), encode(metadata), error["reading"])


def _error(target: Target, piece: Slice, one: Rejection) -> dict[str, Any]:
    place = {"topic": target.source, "partition": piece.partition, "offset": one.offset}
    name = rejection_id(one, target, piece) + (HELD if target.rejects.holds else "")
    return {
        "message": one.reason.encode("utf-8", "backslashreplace").decode(),
        "timestamp": utc_now().isoformat().replace("+00:00", "Z"),
        "original_sink": target.branch.partition(":")[0],
        "metadata": _metadata(one.metadata or {}, place),
        "id": name,
        "type": one.error_type or classify(one.reason, one.stage),
        "flow": target.flow,
        "branch": target.branch,
        "stage": one.stage,
        "step": one.step,
        "step_type": one.step_type,
        "source": {**place, "n": one.n, "rows": one.rows},
        "reading": rejected_reading(one, target, piece),
        "attempt": attempt_of(name),
        "key": None if one.key is None else base64.b64encode(one.key).decode(),
    }


def _metadata(metadata: Mapping[str, Any], place: Mapping[str, Any]) -> Any:
    text = metadata_text(with_place(metadata, place))
    return place if text is None else msgspec.Raw(text.encode())


def _original(body: bytes | None) -> tuple[str, Any]:
    if body is None:
        return "null", {"original_data": None}
    try:
        parsed = parse(body)
    except RejectedRecord:
        parsed = None
    if isinstance(parsed, dict):
        return "json", msgspec.Raw(body)
    try:
        return "text", {"original_data": body.decode()}
    except UnicodeDecodeError:
        return "base64", {"original_data_base64": base64.b64encode(body).decode()}


class _Written(msgspec.Struct):
    """An error record as it is read back."""

    error: msgspec.Raw
    original_message: msgspec.Raw


def entry(body: bytes | str) -> tuple[datetime, Entry]:
    """An error record read back for a replay.

    Called by a connector's error sink on the driver, for each record that a replay looks at.

    Args:
        body: what `error_record` made.

    Returns:
        When the record was rejected, and the entry.
    """
    read = decode_json(body, _Written)
    error = parse(bytes(read.error))  # with all digits of the metadata
    found = Entry(
        error["id"],
        error["branch"],
        error["stage"],
        error["source"]["n"],
        _sent_body(error["encoding"], bytes(read.original_message)),
        None if error["key"] is None else base64.b64decode(error["key"]),
        error["metadata"],
        error["source"].get("rows"),
        error.get("reading", 0),
        error["source"].get("offset", 0),
    )
    return datetime.fromisoformat(error["timestamp"]), found


def waiting(
    found: Iterable[tuple[datetime, Entry]],
    since: datetime | None,
    most: int,
    done: Mapping[str, int] | None = None,
) -> list[Entry]:
    """The entries that wait for a replay, in the order in which they were rejected.

    Called by a connector's error sink on the driver, once for each look of a replay.

    Args:
        found: of one flow, as `entry` reads them; of several of one id the latest reading counts.
        since: only what was rejected from then on; None for all.
        most: how many at the most.
        done: by id the reading up to which an entry has had its replay.

    Returns:
        Those of one moment by their offsets; none at which the flow has stopped.
    """
    latest: dict[str, tuple[datetime, Entry]] = {}
    for at, one in found:
        if one.id not in latest or latest[one.id][1].reading < one.reading:
            latest[one.id] = at, one
    left = [
        (at, one.offset, one.n, one.id)
        for at, one in latest.values()
        if one.reading > (done or {}).get(one.id, -1)
        and (since is None or at >= since)
        and not one.id.endswith(HELD)
    ]
    return [latest[id_][1] for *_, id_ in sorted(left)[:most]]


def _sent_body(encoding: str, original: bytes) -> bytes | None:
    if encoding == "json":
        return original
    held = msgspec.json.decode(original)
    if encoding == "base64":
        return base64.b64decode(held["original_data_base64"])
    return None if encoding == "null" else str(held["original_data"]).encode()


def classify(reason: str, stage: str) -> str:
    """The class of an error by its text; data that does not fit is invalid.

    Called inside tasks, once for each rejected record whose sink names no class.

    Args:
        reason: why the record was rejected.
        stage: source, decode, step, encode or sink.

    Returns:
        One of the classes of the DataFlow Operator, or `unknown`.
    """
    for name, pattern in _CLASSES:
        if re.search(pattern, reason, re.IGNORECASE):
            return name
    return "unknown" if stage == "sink" else "invalid_data"
