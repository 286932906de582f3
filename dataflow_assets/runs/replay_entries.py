"""Entries as a source: planned one part at a time, read by the pass itself.

A position is the list of the tokens of what is done.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts import (
    HEADER_LIST,
    MESSAGES,
    REFUSED_ROW,
    SOURCE,
    Address,
    Entry,
    EntryName,
    Lag,
    Limit,
    PartSlice,
    Positions,
    Slice,
    SourceSession,
    Span,
    Target,
)
from dataflow_assets.contracts.reading import ReadsParts
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.formats.source_options import MessageSource
from dataflow_assets.micro_batch.message_metadata import ORDINAL
from dataflow_assets.micro_batch.row_changes import RowChange, parse, with_changes
from dataflow_assets.records.record import encode
from dataflow_assets.sdk.record_ids import REPLAY, names_in, part_of

REMEMBERED = 500  # entries put back of late: a store that deletes them may be given one once more
WHOLE = (SOURCE, "decode", "step")
"""Stages before a record has a branch."""
_PARTITION = "entries"
_LEFT = (
    "the source has refused this record, and only its text was kept: let the source deliver the "
    "record again, corrected"
)
_SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("key", pa.binary()),
        MESSAGES.field("headers"),
        ("metadata", pa.binary()),
        ("only", pa.int32()),
        ("of", pa.int32()),
        (ORDINAL, pa.int64()),
    ]
)


class EntrySource(MessageSource, ReadsParts):
    """The entries of one part that still wait."""

    type: ClassVar[str] = "entries"
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "entries"
    entries: tuple[Entry, ...]
    of_rows: bool = False
    """They were rows of a table, of which the key says what its source knew of them."""

    @override
    def address(self) -> Address:
        return Address(self.type, "replay", None, self.type)

    @override
    def open(self, flow: str) -> EntrySession:
        return EntrySession(self.entries)

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """At their places in the part: those that somebody has deleted leave gaps."""
        by_name = {one.name: one for one in self.entries}
        mine = [(at, by_name[name]) for at, name in enumerate(names_of(piece)) if name in by_name]
        if not mine:
            return
        changes = [self.change(entry) for _, entry in mine]
        rows = [_row(entry, at, one) for (at, entry), one in zip(mine, changes, strict=True)]
        batch = _with_refusals(
            pa.RecordBatch.from_pylist(rows, _SCHEMA), [entry for _, entry in mine]
        )
        yield with_changes(batch, changes) if any(changes) else batch

    def change(self, entry: Entry) -> RowChange | None:
        """Returns what the source of a table's row knew of it beside the values; None: nothing."""
        return parse(entry.key) if self.of_rows else None


def _row(entry: Entry, ordinal: int, change: RowChange | None) -> dict[str, Any]:
    whole = entry.stage in WHOLE
    deleted = {"operation": "delete"} if change and change.deleted else {}
    return {
        "body": entry.body,
        "key": None if change else entry.key,
        "headers": _headers(entry.metadata),
        "metadata": encode({**entry.metadata, **deleted}),
        "only": None if whole else entry.n,
        "of": None if whole else entry.rows,
        ORDINAL: ordinal,
    }


def _with_refusals(batch: pa.RecordBatch, entries: Sequence[Entry]) -> pa.RecordBatch:
    why = [_LEFT if entry.stage == SOURCE else None for entry in entries]
    if not any(why):
        return batch
    return batch.append_column(pa.field(REFUSED_ROW, pa.string()), pa.array(why))


def _headers(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All of them with their bytes; of entries of older versions those that were texts."""
    if listed := metadata.get(HEADER_LIST):
        return [{"key": one["key"], "value": _bytes(one["value"])} for one in listed]
    values = metadata.get("headers")
    values = values if isinstance(values, dict) else {}
    return [{"key": name, "value": str(value).encode()} for name, value in values.items()]


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def token_of(entry: Entry) -> str:
    """A short stand-in for the name of an entry: 16 hex digits."""
    text = f"{entry.id}@{entry.reading}" if entry.reading else entry.id
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def names_of(piece: Slice) -> tuple[EntryName, ...]:
    """The entries of a slice, by their ordinals."""
    assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
    return names_in(piece.part)


def is_for(branch: Branch, entry: Entry) -> bool:
    return entry.stage in WHOLE or entry.branch.removesuffix(REPLAY) == branch.stored_id


def replay_target(flow: Flow, branch: Branch) -> Target:
    """A branch as its sink sees it in a replay."""
    target = flow.target(branch)
    return replace(target, branch=f"{target.branch}{REPLAY}", source_id=EntrySource.type)


class EntrySession(SourceSession):
    """Plans the entries that the checkpoint does not name yet.

    `waiting` are the tokens of all entries that wait in any store; None: nobody has seen them all.
    `noted` are those that this replay has noted as replayed since.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        waiting: frozenset[str] | None = None,
        noted: Collection[str] = (),
    ) -> None:
        self._entries, self._waiting, self._noted = entries, waiting, noted

    @property
    @override
    def identity(self) -> str:
        return EntrySource.type

    @override
    def start(self, where: str | None = None) -> Positions:
        return {_PARTITION: ""}

    @override
    def end(self) -> Positions:
        return {_PARTITION: ",".join(map(token_of, self._entries))}

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        position = str(after.get(_PARTITION, ""))
        done = position.split(",") if position else []
        settled = frozenset(done)
        new = [entry for entry in self._entries if token_of(entry) not in settled]
        if not new:
            return Span((PartSlice(_PARTITION, position, position),))
        recent = frozenset(done[-REMEMBERED:])
        tokens_to_keep = [token for token in done if token in recent or self._waits(token)]
        upto = ",".join([*tokens_to_keep, *map(token_of, new)])
        return Span((PartSlice(_PARTITION, position, upto, part_of(new)),))

    def _waits(self, token: str) -> bool:
        return token not in self._noted and (self._waiting is None or token in self._waiting)

    @override
    def lag(self, after: Positions) -> Lag:
        return Lag(0, 0.0, self.end())
