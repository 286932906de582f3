"""The messages that a flow would read next, without Spark and without moving anything."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from dataflow_assets.cli.preview.messages import Message, unreadable, write
from dataflow_assets.contracts import OffsetSlice, Positions, SourceSession, lasting
from dataflow_assets.contracts.looking import Peeks
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.languages.promises import ShowsInheritance
from dataflow_assets.micro_batch.formatted import format_of, in_json
from dataflow_assets.micro_batch.message_metadata import MetadataRows, as_messages
from dataflow_assets.micro_batch.parts import message_form
from dataflow_assets.runs.branch_turns import lowest

_WIDEN = 8  # offsets may name no record: markers of transactions, what compaction took
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

Row = tuple[bytes | None, Mapping[str, Any], str | None]
"""Body and metadata; and why the body cannot be decoded."""


@dataclass(frozen=True)
class WaitingMessages:
    """Messages, and which ones they are, for people."""

    messages: Sequence[Message]
    which: str


def waiting(flow: Flow, limit: int) -> WaitingMessages:
    """The next messages of a flow; where nothing is waiting the last ones before the end.

    Raises TransientError or PermanentError where the source cannot be looked into.
    """
    resolved = flow.resolve()
    with closing(resolved.source.open(flow.id)) as session:
        after, place = _stands(resolved, session)
        rows = _peek(resolved, session, after, limit)[:limit]
        which = f"the next {_count(rows)} after {place}"
        if not rows:
            rows = _last(resolved, session, limit)
            which = f"nothing is waiting after {place}; the last {_count(rows)}"
        which = which if rows else "it holds no records"
    messages = [_message(*row) for row in rows]
    return WaitingMessages(messages, f"{flow.source_address}: {which}")


def _message(raw: bytes | None, metadata: Mapping[str, Any], reason: str | None) -> Message:
    if reason is not None:
        return unreadable(raw, metadata, reason)
    return Message(raw, metadata, write(raw, metadata))


def _count(rows: Sequence[Row]) -> str:
    return f"{len(rows)} record{'' if len(rows) == 1 else 's'}"


def _stands(flow: Flow, session: SourceSession) -> tuple[Positions, str]:
    """The lowest position of each partition: what some branch has not got yet."""
    stands = [_stored_positions(flow, branch, session) for branch in flow.branches]
    stored = [positions for positions in stands if not isinstance(positions, str)]
    if not stored and (left := _inherited_positions(flow)):
        return {**session.start(), **left}, "where the program before this flow has stopped"
    if not stored:
        reason = next((one for one in stands if isinstance(one, str) and one), "never run")
        return session.start(), f"the place where the flow begins ({reason})"
    return lowest(stored, session.lags), "the stored checkpoint"


def _stored_positions(flow: Flow, branch: Branch, session: SourceSession) -> Positions | str:
    """The branch's positions, or why there are none; a sink that is down does not matter much."""
    try:
        checkpoint = branch.sink.peek(flow.target(branch))
    except DataflowError as error:
        return f"its checkpoint cannot be read: {error}"
    if checkpoint is None or not checkpoint.positions:
        return ""
    if checkpoint.source not in (None, session.identity):
        return "its checkpoint is about the topic of this name that was there before"
    return lasting(checkpoint.positions)


def _inherited_positions(flow: Flow) -> Positions:
    for branch in flow.branches:
        with suppress(DataflowError):
            sink = branch.sink if isinstance(branch.sink, ShowsInheritance) else None
            if inherited := sink and sink.inheritance(flow.target(branch)):
                return inherited
    return {}


def _last(flow: Flow, session: SourceSession, limit: int) -> list[Row]:
    lows, ends = session.start("earliest"), session.end()
    if flow.source.delivers != "messages":
        return _peek(flow, session, lows, limit)[:limit]
    back = limit
    while True:
        after = {p: max(int(lows[p]), int(end) - back) for p, end in ends.items() if p in lows}
        rows = _peek(flow, session, after, back)
        if len(rows) >= limit or all(after[p] == lows[p] for p in after):
            return rows[-limit:]
        back *= _WIDEN


def _peek(flow: Flow, session: SourceSession, after: Positions, limit: int) -> list[Row]:
    """Partitions side by side in the order of time, each in its own order."""
    if not isinstance(session, Peeks):
        raise PermanentError(
            f"{flow.source_address} cannot be looked into without moving on; give records with "
            "--input FILE"
        )
    batches = sorted(session.peek(after, limit).items())
    several = [list(_rows(flow, partition, batch)) for partition, batch in batches]
    return list(heapq.merge(*several, key=lambda row: row[1].get("timestamp") or _LONG_AGO))


def _rows(flow: Flow, partition: str, batch: pa.RecordBatch) -> Iterator[Row]:
    everything = flow.source.metadata_columns | {"offset"}
    rows = MetadataRows(flow.source, OffsetSlice(partition, 0, 0), 1, everything)
    if flow.source.delivers == "columns":
        messages = as_messages([message_form(flow.source, batch)], 0, 1)
        return ((*row, None) for message in messages for row in rows.records(message))
    as_json, reasons = in_json(batch, format_of(flow))
    pairs = zip(rows.records(batch), rows.records(as_json), strict=True)
    return (
        (*sent, reasons[at]) if at in reasons else (*decoded, None)
        for at, (sent, decoded) in enumerate(pairs)
    )
