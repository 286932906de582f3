"""Tables of rejected records, beside a target or of an error sink: their columns, and their replay.

A table beside a target has the columns of `REJECTED`. That of an error sink has the record of the
DataFlow Operator, in `error` and `original_message`, or whole in `data`. A connector says by
`RejectedRows` how its system keeps such rows; all else is here.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts import (
    Entries,
    Entry,
    EntryName,
    ErrorRecord,
    ErrorStore,
    Rejection,
    Slice,
    Target,
)
from dataflow_assets.failpoints import reach
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.record_ids import rejected_reading, rejection_id
from dataflow_assets.sdk.rejected_records import entry, waiting
from dataflow_assets.sdk.rejected_rows import metadata_of, metadata_text

Row = Mapping[str, Any]
"""A rejected record by the names of columns."""

REJECTED = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("flow", pa.string(), nullable=False),
        pa.field("branch", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("n", pa.int32(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("body", pa.string()),
        pa.field("body_encoding", pa.string()),
        pa.field("key", pa.string()),
        pa.field("key_encoding", pa.string()),
        pa.field("rejected_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("step", pa.int32()),
        pa.field("step_type", pa.string()),
        pa.field("rows", pa.int32()),
        pa.field("reading", pa.int64()),
        pa.field("metadata", pa.string()),
    ]
)
"""The columns of a table beside a target. Tables of earlier versions lack some of the nullable."""
APART = ("error", "original_message")
"""The columns of an error sink's record in two parts."""


def rejected_row(target: Target, piece: Slice, one: Rejection) -> dict[str, Any]:
    """A rejected record as a row beside its target.

    Called by a connector inside tasks, once for each record.

    Args:
        target: the branch that rejected it.
        piece: the slice that it is of.
        one: why, and the message itself.

    Returns:
        A value for each column of `REJECTED` but `rejected_at`, which is the moment of storing.
        No text has the character NUL, which some systems refuse.
    """
    body, body_encoding = _encode(one.body)
    key, key_encoding = _encode(one.key)
    return {
        "id": rejection_id(one, target, piece),
        "flow": target.flow,
        "branch": target.branch,
        "source": target.source,
        "partition": piece.partition,
        "offset": one.offset,
        "n": one.n,
        "stage": one.stage,
        "reason": one.reason.encode("utf-8", "replace").decode().replace("\0", "\\0"),
        "body": body,
        "body_encoding": body_encoding,
        "key": key,
        "key_encoding": key_encoding,
        "step": one.step,
        "step_type": one.step_type,
        "rows": one.rows,
        "reading": rejected_reading(one, target, piece),
        "metadata": metadata_text(one.metadata),
    }


class _Body(msgspec.Struct):
    error: msgspec.Raw
    original_message: msgspec.Raw


def error_row(record: ErrorRecord) -> dict[str, Any]:
    """An error record as a row of an error sink's table, in either layout.

    Called by a connector inside tasks, once for each record.

    Args:
        record: as `error_record` makes it.
    """
    body = decode_json(record.body, _Body)
    return {
        "id": record.id,
        "flow": record.flow,
        "error": bytes(body.error).decode(),
        "original_message": bytes(body.original_message).decode(),
        DATA: record.body.decode(),
        METADATA: record.metadata.decode(),
        "reading": record.reading,
    }


def entries_of(rows: Iterable[Row], since: datetime | None, most: int) -> list[Entry]:
    """Rows read back for a replay, each id once: of several the one of the latest reading.

    Called here and by tests, with the rows of one table in the order of their rejection.

    Args:
        rows: of either kind.
        since: what is kept as an error record goes by the time in it; None for all.
        most: how many at the most.
    """
    kept = list(rows)
    if not kept or "stage" not in kept[0]:
        whole = (row.get(DATA) or whole_record(row) for row in kept)
        return waiting(map(entry, whole), since, most)
    latest: dict[str, Entry] = {}
    for one in map(_entry, kept):
        if one.id not in latest or latest[one.id].reading < one.reading:
            latest[one.id] = one
    return list(latest.values())[:most]


def whole_record(row: Row) -> str:
    """The error record of a row that has it in two parts.

    Called by a connector inside tasks, and here for each row that a replay looks at.
    """
    return '{{"error":{},"original_message":{}}}'.format(*(row[name] for name in APART))


def _entry(row: Row) -> Entry:
    origin = (row["source"], row["partition"], row["offset"], row.get("metadata"))
    return Entry(
        row["id"],
        row["branch"],
        row["stage"],
        row["n"],
        _decode(row["body"], row.get("body_encoding")),
        _decode(row["key"], row.get("key_encoding")),
        metadata_of(row["id"], *origin),
        row.get("rows"),
        row.get("reading") or 0,
    )


def _encode(value: bytes | None) -> tuple[str | None, str | None]:
    if value is None:
        return None, None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return (base64.b64encode(value).decode(), "base64") if "\0" in text else (text, "utf-8")


def _decode(kept: str | bytes | None, encoding: str | None) -> bytes | None:
    """A body or a key as it was sent; tables of Iceberg made by an earlier version have bytes."""
    if kept is None or isinstance(kept, bytes):
        return kept
    return base64.b64decode(kept) if encoding == "base64" else kept.encode()


class RejectedRows(ABC):
    """A table of rejected records over an open connection: what a connector implements."""

    @abstractmethod
    def prepare(self) -> None:
        """Makes the table where that is asked for, and checks that it fits.

        Called by the driver once for each attempt, for the table of an error sink.

        Raises:
            PermanentError: it is missing, or does not fit.
        """

    @abstractmethod
    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        """Stores rows; they are durable when it returns.

        Called inside tasks. Where the system can tell, a row that is known by its id stays as it
        is, and one of a later reading waits once more.

        Args:
            rows: of `rejected_row` or `error_row`; the table may lack some of their columns.
        """

    @abstractmethod
    def pending(self, flow: str, since: datetime | None, most: int) -> Iterable[Row]:
        """Reads the oldest rows without a replay, by the time of their rejection.

        Called by a replay, on the driver.

        Args:
            flow: `namespace/name`.
            since: only what was rejected from then on; None for all.
            most: how many at the most.

        Returns:
            Nothing where there is no table, and none whose id ends with `HELD`; more than `most`
            where the table does not tell when they were rejected.
        """

    @abstractmethod
    def mark_replayed(self, names: Sequence[EntryName]) -> None:
        """Notes that rows have had their replay; may be repeated.

        Called by a replay, on the driver.

        Args:
            names: ids with the readings up to which it counts.
        """


Opening = Callable[[str], AbstractContextManager[RejectedRows]]
"""Connects to a table: it gets what for, such as `read`, for the words of an error."""


class RejectedTable(Entries):
    """The rejected records beside a target."""

    def __init__(self, system: str, opening: Opening) -> None:
        """`system`: begins the names of its failpoints."""
        self._system, self._open = system, opening

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        with self._open("read") as table:
            return entries_of(table.pending(flow, since, most), since, most)

    @override
    def mark_replayed(self, entries: Sequence[Entry]) -> None:
        reach(f"{self._system}.replayed")
        with self._open("note a replay in") as table:
            table.mark_replayed([one.name for one in entries])


class ErrorTable(RejectedTable, ErrorStore):
    """The error records of an error sink."""

    @override
    def prepare(self) -> None:
        with self._open("prepare") as table:
            table.prepare()

    @override
    def store(self, records: Sequence[ErrorRecord]) -> None:
        reach(f"{self._system}.errors")
        with self._open("store rejected records in") as table:
            table.append([error_row(one) for one in records])
        reach(f"{self._system}.errors-stored")
