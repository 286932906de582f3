"""The messages of one slice as chunks, one for each lane of the pass.

Without steps the bodies are decoded straight into the sink's columns. With steps each message
becomes a record, runs through the chain, and each lane decodes the JSON of its own records by the
same rules. What fails before the lanes part is rejected once, by the main one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.chain import Chain, Transformation
from dataflow_assets.contracts import (
    KEY,
    OFFSET,
    Chunk,
    N,
    Rejection,
    Sent,
    Shape,
    Sink,
    Slice,
    Source,
    Ticket,
)
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.flow import Flow
from dataflow_assets.formats.json import JsonDecoder, Tombstones
from dataflow_assets.metadata import Rows
from dataflow_assets.records import NotJson, Record, encode, parse, text
from dataflow_assets.steps import Context
from dataflow_assets.wrapped import VALUE, unwrapped, unwrapped_texts


@dataclass(frozen=True)
class Lane:
    """One branch inside the pass. `routes`: the conditions that lead to it; None: no route's."""

    sink: Sink
    ticket: Ticket
    routes: tuple[str | None, ...] = (None,)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns by which the sink matches rows."""
        return tuple(json.loads((self.ticket.schema.metadata or {}).get(KEY, b"[]")))

    @property
    def unwraps(self) -> bool:
        """True where the object inside a wrapped body is stored: no column takes it as it is."""
        return self.sink.unwraps and VALUE not in self.ticket.schema.names

    def shape(self) -> Shape | None:
        """What is stored of a record, where that is not simply its body."""
        return self.sink.shape(self.ticket.schema)

    def decoder(self, mode: str) -> JsonDecoder:
        """What turns JSON into the sink's columns; `mode` says what a null message means."""
        tombstones = Tombstones(mode, self.key_columns)  # type: ignore[arg-type]
        return JsonDecoder(self.ticket.schema, self.sink.unknown_fields, tombstones)


Read = Callable[[pa.RecordBatch], list[Chunk]]
"""A batch of messages as one chunk for each lane."""


@dataclass(frozen=True)
class Steps:
    """What a task needs to take messages through records."""

    transformations: tuple[Transformation, ...]
    context: Context
    reads: frozenset[str]

    @classmethod
    def of(cls, flow: Flow, now: datetime, shapes: Iterable[Shape | None]) -> Steps | None:
        """None where no record is needed: columns are decoded straight from the messages."""
        reads = [shape.reads for shape in shapes if shape is not None]
        if not reads and not flow.transformations:
            return None
        return cls(flow.transformations, Context(now), flow.reads().union(*reads))


def reader(
    source: Source, steps: Steps | None, lanes: Sequence[Lane], piece: Slice, slices: int
) -> Read:
    """How the messages of one slice become rows; made once per slice, inside the task."""
    if steps is None:
        return Straight(lanes, source.tombstones, slices)
    return Stepped(steps, source.tombstones, lanes, Rows(source, piece, slices, steps.reads))


class Straight:
    """Bodies decoded as they are."""

    def __init__(self, lanes: Sequence[Lane], tombstones: str, slices: int) -> None:
        self._lanes = [(lane.decoder(tombstones), lane.unwraps) for lane in lanes]
        self._slices = slices

    def __call__(self, batch: pa.RecordBatch) -> list[Chunk]:
        """Each lane's chunk."""
        return [self._decoded(decoder, unwraps, batch) for decoder, unwraps in self._lanes]

    def _decoded(self, decoder: JsonDecoder, unwraps: bool, batch: pa.RecordBatch) -> Chunk:
        bodies = batch.column("body")
        texts = unwrapped_texts(bodies) if unwraps else bodies
        offsets = pa.array(batch.column("_at").to_numpy() // self._slices, pa.int64())
        keys = batch.column("key") if "key" in batch.schema.names else None
        decoded = decoder.decode(texts, offsets, keys)
        size = pc.sum(pc.binary_length(bodies)).as_py() or 0
        seen, sent = int(offsets[-1].as_py()) + 1, Messages(offsets, batch)
        rejected = decoded.rejected
        if texts is not bodies:
            rejected = [replace(one, body=sent[one.offset].body) for one in rejected]
        return Chunk(decoded.rows, rejected, seen, size, sent)


class Stepped:
    """Bodies as records through the chain; what comes out, as JSON again, for each lane."""

    def __init__(self, steps: Steps, tombstones: str, lanes: Sequence[Lane], rows: Rows) -> None:
        self._chain = Chain(steps.transformations, steps.context)
        self._tombstones = tombstones
        self._lanes = lanes
        self._decoders = [lane.decoder("delete") for lane in lanes]
        self._shapes = [lane.shape() for lane in lanes]
        self._rows = rows

    def __call__(self, batch: pa.RecordBatch) -> list[Chunk]:
        """Each lane's chunk. Records of a route that is not among the lanes are left out."""
        offsets = self._rows.offsets(batch)
        shares = [
            Share(lane, shape, self._tombstones)
            for lane, shape in zip(self._lanes, self._shapes, strict=True)
        ]
        ways = {route: share for share in shares for route in share.lane.routes}
        only = self._rows.only(batch)
        rejected = []
        for at, (raw, metadata) in enumerate(self._rows.records(batch)):
            try:
                found = self._chain(Record(parse(raw), metadata))
            except RejectedRecord as error:
                rejected.append(rejection(int(offsets[at]), error, raw, metadata))
                continue
            for n, record in enumerate(found):
                share = ways.get(record.route)
                if share is not None and (only is None or only[at] in (None, n)):
                    share.take(at, n, record)
        if None in ways:
            ways[None].rejected += rejected
        sent = Messages(pa.array(offsets, pa.int64()), batch, self._rows)
        return [
            share.chunk(decoder, offsets, sent)
            for share, decoder in zip(shares, self._decoders, strict=True)
        ]


@dataclass
class Share:
    """What one lane gets of one batch."""

    lane: Lane
    shape: Shape | None
    tombstones: str
    at: list[int] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    texts: list[bytes | None] = field(default_factory=list)
    keys: dict[int, bytes | None] = field(default_factory=dict)
    failed: list[tuple[int, int, RejectedRecord]] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._unwraps = self.lane.unwraps
        self._key_columns = self.lane.key_columns

    def take(self, at: int, n: int, record: Record) -> None:
        """Takes a record: the n-th that became of row `at`."""
        try:
            self._add(at, n, record)
        except RejectedRecord as error:
            self.failed.append((at, n, error))

    def _add(self, at: int, n: int, record: Record) -> None:
        if self._unwraps and self.shape is None:
            record = Record(unwrapped(record.body), record.metadata)
        body = record.body if self.shape is None else self.shape(record)
        key = self._deleted(record) if self._key_columns else None
        if key is None and isinstance(body, NotJson) and body.raw is None:
            if self.tombstones == "skip":
                return
            key = self._named(record)
        sent = None if key is not None else text(body)
        if key is not None:
            self.keys[len(self.at)] = key
        self.at.append(at)
        self.n.append(n)
        self.texts.append(sent)

    def _deleted(self, record: Record) -> bytes | None:
        """The key of a row to delete, as a JSON object: of the record, else `metadata.id`."""
        if record.metadata.get("operation") != "delete" or not isinstance(record.body, dict):
            return None
        names = self._key_columns
        given = {name: record.body[name] for name in names if name in record.body}
        if not given and len(names) == 1 and record.metadata.get("id") is not None:
            given = {names[0]: record.metadata["id"]}
        return encode(given) if len(given) == len(names) else None

    def _named(self, record: Record) -> bytes | None:
        """The key of a tombstone, where tombstones delete."""
        key = record.metadata.get("key")
        return str(key).encode() if self.tombstones == "delete" and key else None

    def chunk(self, decoder: JsonDecoder, offsets: Any, sent: Messages) -> Chunk:
        """The rows in the sink's schema; offsets are the messages'."""
        ordinals = pa.array(np.arange(len(self.at)), pa.int64())
        keys = None
        if self.keys:
            keys = pa.array([self.keys.get(row) for row in range(len(self.at))], pa.binary())
        decoded = decoder.decode(pa.array(self.texts, pa.binary()), ordinals, keys)
        refused = [self._placed(one, offsets, sent) for one in decoded.rejected]
        refused += [_unstored(int(offsets[at]), n, error, sent) for at, n, error in self.failed]
        rows = self._numbered(decoded.rows, offsets)
        size = sum(len(body) for body in self.texts if body)
        rejected = sorted([*self.rejected, *refused], key=lambda one: (one.offset, one.n))
        notes = frozenset(self.shape.notes if self.shape else ())
        return Chunk(rows, rejected, int(offsets[-1]) + 1, size, sent, notes)

    def _placed(self, one: Rejection, offsets: Any, sent: Messages) -> Rejection:
        """The rejection of a row with the place of its message, and the message."""
        offset = int(offsets[self.at[one.offset]])
        found = sent[offset]
        stage = "decode" if self.texts[one.offset] == found.body else "encode"
        placed = replace(one, offset=offset, stage=stage, n=self.n[one.offset])
        return replace(placed, body=found.body, metadata=found.metadata)

    def _numbered(self, rows: pa.RecordBatch, offsets: Any) -> pa.RecordBatch:
        """The rows with their messages' offsets, and N where a message has become several."""
        ordinals = rows.column(OFFSET).to_numpy()
        places = offsets[np.array(self.at, np.int64)[ordinals]]
        index = rows.schema.get_field_index(OFFSET)
        rows = rows.set_column(index, OFFSET, pa.array(places, pa.int64()))
        if any(self.n):
            numbers = np.array(self.n, np.int32)[ordinals]
            rows = rows.append_column(N, pa.array(numbers, pa.int32()))
        return rows


@dataclass(frozen=True)
class Messages(Mapping[int, Sent]):
    """Finds the message of an offset, for the few rows that are refused."""

    offsets: pa.Array
    batch: pa.RecordBatch
    rows: Rows | None = None
    """What reads the metadata, where messages have become records."""

    def __getitem__(self, offset: int) -> Sent:  # KeyError for a foreign offset
        index = pc.index(self.offsets, offset).as_py()
        if index < 0:
            raise KeyError(offset)
        if self.rows is None:
            return Sent(self.batch.column("body")[index].as_py())
        ((body, metadata),) = self.rows.records(self.batch.slice(index, 1))
        return Sent(body, _placed(metadata, offset))

    def __iter__(self) -> Iterator[int]:
        return iter(self.offsets.to_pylist())

    def __len__(self) -> int:
        return len(self.offsets)


def rejection(
    offset: int, error: RejectedRecord, raw: bytes | None, metadata: Mapping[str, Any]
) -> Rejection:
    """A message that failed before the lanes part."""
    where = "" if error.step is None else f"transformations[{error.step}] ({error.step_type}): "
    reason = f"{where}{error.reason}"
    return Rejection(
        offset,
        error.stage,
        reason,
        raw,
        step=error.step,
        step_type=error.step_type,
        metadata=_placed(metadata, offset),
    )


def _unstored(offset: int, n: int, error: RejectedRecord, sent: Messages) -> Rejection:
    """A record that its lane could not take."""
    found = sent[offset]
    return replace(rejection(offset, error, found.body, found.metadata or {}), n=n)


def _placed(metadata: Mapping[str, Any], offset: int) -> Mapping[str, Any]:
    """With the offset, where nobody has read it; what is replayed has kept its own."""
    return {"offset": offset, **metadata}


def sampled(
    steps: Steps, rows: Rows, batch: pa.RecordBatch, sink: Sink, routes: tuple[str | None, ...]
) -> Iterator[Any]:
    """The bodies that one branch gets, as JSON or as objects; None for what it must reject."""
    chain = Chain(steps.transformations, steps.context)
    shape = sink.shape(None)
    for raw, metadata in rows.records(batch):
        try:
            found = chain(Record(parse(raw), metadata))
        except RejectedRecord:
            yield from (None,) if None in routes else ()
            continue
        for record in found:
            if record.route in routes:
                body = unwrapped(record.body) if sink.unwraps else record.body
                yield text(body) if shape is None else shape(record)
