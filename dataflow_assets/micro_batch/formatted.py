"""Messages whose bodies are not JSON: as columns where no step needs a record, else as JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import (
    INSERT,
    OFFSET,
    OP,
    REFUSED_ROW,
    SOURCE,
    Chunk,
    Kind,
    Rejection,
    Sink,
    kind_of,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.formats.columns import conform
from dataflow_assets.formats.json import Decoded, JsonDecoder
from dataflow_assets.formats.message_format import Group, MessageFormat
from dataflow_assets.formats.source_options import FormattedSource
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.forward import forward, keys_of, with_read_keys
from dataflow_assets.micro_batch.originals import OriginalMessages
from dataflow_assets.records.wrapped import METADATA, VALUE, unwrapped_texts


def format_of(flow: Flow) -> MessageFormat | None:
    """The format of the messages of a flow's source, as its steps need them; None for JSON."""
    source = flow.source
    form = source.message_format() if isinstance(source, FormattedSource) else None
    fields = [one.step.event_fields for one in flow.transformations]
    names = [fields_of_branch for fields_of_branch in fields if fields_of_branch is not None]
    return form.of_events(frozenset().union(*names)) if form and names else form


def in_json(
    batch: pa.RecordBatch, form: MessageFormat | None, *, keys: bool = True
) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """The batch with JSON bodies and keys as text, and by its row why one cannot be decoded.

    What cannot be decoded is null. Entries have their metadata, and so the text of their key, from
    the time when they were rejected. `keys`: whether somebody reads them; a sink that gets them as
    they were sent does not.
    """
    readable, unread = without_refused(batch)
    as_json, undecoded = _with_bodies(readable, form)
    refused = {**undecoded, **unread}
    if (
        form is None
        or not keys
        or ("key" not in batch.schema.names or "metadata" in batch.schema.names)
    ):
        return as_json, refused
    keys_read = form.keys(batch.column("key"))
    at = batch.schema.get_field_index("key")
    return as_json.set_column(at, "key", keys_read.texts), {**keys_read.refused, **refused}


def without_refused(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """The batch with null for what its source has refused, and by its row why."""
    if REFUSED_ROW not in batch.schema.names:
        return batch, {}
    reasons = batch.column(REFUSED_ROW)
    reasons_by_row = {row: why for row, why in enumerate(reasons.to_pylist()) if why is not None}
    at = batch.schema.get_field_index("body")
    bodies = pc.if_else(reasons.is_null(), batch.column("body"), pa.scalar(None, pa.binary()))
    return batch.set_column(at, "body", bodies), reasons_by_row


def refusing(chunk: Chunk, refused: Mapping[int, str], sent: OriginalMessages) -> Chunk:
    """The chunk in which these rows of the batch are rejected, whatever it has made of their null.

    `sent`: the messages as the source has delivered them.
    """
    at = {sent.offsets[row].as_py(): why for row, why in refused.items()}
    others = [one for one in chunk.rejected if one.offset not in at]
    ours = [Rejection(offset, SOURCE, why, None).of(sent[offset]) for offset, why in at.items()]
    rejected = sorted([*others, *ours], key=lambda one: (one.offset, one.n))
    return replace(chunk, rows=_without(chunk.rows, at), rejected=rejected)


def _without(rows: pa.RecordBatch, offsets: Collection[int]) -> pa.RecordBatch:
    gone = pa.array([*offsets], pa.int64())
    return rows.filter(pc.invert(pc.is_in(rows.column(OFFSET), gone)))


def _with_bodies(
    batch: pa.RecordBatch, form: MessageFormat | None
) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    if form is None:
        return batch, {}
    texts = form.texts(batch.column("body"))
    return batch.set_column(
        batch.schema.get_field_index("body"), "body", texts.texts
    ), texts.refused


def forwarded_as_json(
    batch: pa.RecordBatch, sent: OriginalMessages, tombstones: str, form: MessageFormat, sink: Sink
) -> Chunk:
    """The messages of a batch with JSON bodies, for sinks that take messages.

    Keys stay bytes, but those of null messages where the sink reads them.
    """
    as_json, undecoded = _with_bodies(batch, form)
    chunk = forward(as_json, sent, tombstones)
    offsets = sent.offsets.to_pylist()
    refused = {offsets[row]: reason for row, reason in undecoded.items()}
    rows = _without(chunk.rows, refused) if refused else chunk.rows
    rows, nameless = with_read_keys(rows, keys_of(form, sink))
    refused |= nameless
    rejected = [
        _decode_rejection(offset, reason, sent) for offset, reason in sorted(refused.items())
    ]
    return replace(chunk, rows=rows, rejected=rejected)


class Formatted:
    """Each schema's messages as typed columns, converted without loss into those of the sink."""

    def __init__(self, form: MessageFormat, branch: PassBranch, decoder: JsonDecoder) -> None:
        """`decoder`: reads null messages, and what is no record."""
        self._form, self._decoder = form, decoder
        self._schema, self._unknown = branch.ticket.schema, branch.unknown_fields
        self._unwraps, self._branch = branch.unwraps, branch
        self._as_json = frozenset(one.name for one in self._schema if kind_of(one) == Kind.JSON)

    def __call__(self, batch: pa.RecordBatch, sent: OriginalMessages) -> Chunk:
        bodies = batch.column("body")
        columns = self._form.columns(bodies, self._as_json)
        parts = [self._decode(group, bodies, sent) for group in columns.groups]
        if bodies.null_count or not parts:
            parts.append(self._nulls(batch.filter(bodies.is_null()), sent))
        offsets = sent.offsets
        rejected = [
            _decode_rejection(offsets[row].as_py(), why, sent)
            for row, why in columns.refused.items()
        ]
        rejected += [one.of(sent[one.offset]) for part in parts for one in part.rejected]
        size = pc.sum(pc.binary_length(bodies)).as_py() or 0
        ordered = sorted(rejected, key=lambda one: one.offset)
        seen = offsets[-1].as_py() + 1
        return Chunk(merge([one.rows for one in parts]), ordered, seen, size, sent)

    def _decode(self, group: Group, bodies: pa.Array, sent: OriginalMessages) -> Decoded:
        offsets = sent.offsets.take(pa.array(group.at))
        if isinstance(group.rows, pa.RecordBatch):
            if not (self._unwraps and is_wrapped(group.rows.schema)):
                return self._conform(group.rows.append_column(OFFSET, offsets))
            texts = self._form.texts(bodies.take(pa.array(group.at))).texts
        else:
            texts = group.rows
        return self._decoder.decode(unwrapped_texts(texts) if self._unwraps else texts, offsets)

    def _conform(self, rows: pa.RecordBatch) -> Decoded:
        offsets = rows.column(OFFSET)
        try:
            conformed = conform(self._branch.with_target_names(rows), self._schema, self._unknown)
        except PermanentError as error:  # of this schema; other messages may have another one
            refused = dict.fromkeys(range(rows.num_rows), str(error))
            none = self._decoder.decode(pa.array([], pa.binary()), pa.array([], pa.int64())).rows
            return Decoded(none, list(_rejections(refused, offsets)))
        return Decoded(conformed.rows, list(_rejections(conformed.refused, offsets)))

    def _nulls(self, batch: pa.RecordBatch, sent: OriginalMessages) -> Decoded:
        offsets = sent.offsets.filter(sent.batch.column("body").is_null())
        skips = self._decoder.tombstones.mode == "skip"
        if "key" not in batch.schema.names or skips:
            return self._decoder.decode(batch.column("body"), offsets)
        keys = self._form.keys(batch.column("key"))
        read = np.ones(batch.num_rows, np.bool_)
        read[list(keys.refused)] = False
        mask = pa.array(read)
        nulls = keys.texts.filter(mask)
        decoded = self._decoder.decode(
            batch.column("body").filter(mask), offsets.filter(mask), nulls
        )
        bad = [
            Rejection(offsets[row].as_py(), "decode", why, None)
            for row, why in keys.refused.items()
        ]
        # Kept as they were sent, for a replay decodes keys again.
        raw = dict(zip(offsets.to_pylist(), batch.column("key").to_pylist(), strict=True))
        rejected = [replace(one, key=raw[one.offset]) for one in (*decoded.rejected, *bad)]
        return Decoded(decoded.rows, rejected)


def is_wrapped(schema: pa.Schema) -> bool:
    """True where records of a schema are wrapped bodies, as a sink in raw mode hands them on."""
    return set(schema.names) == {VALUE, METADATA}


def _rejections(reasons: Mapping[int, str], offsets: pa.Array) -> Iterator[Rejection]:
    for row, reason in sorted(reasons.items()):
        yield Rejection(offsets[row].as_py(), "encode", reason, None)


def _decode_rejection(offset: int, reason: str, sent: OriginalMessages) -> Rejection:
    return Rejection(offset, "decode", reason, None).of(sent[offset])


def merge(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in the order of their offsets. Called inside tasks, for rows read in two ways."""
    if len(parts) == 1:
        return parts[0]
    tables = [pa.Table.from_batches([one]) for one in _with_operations(parts)]
    merged = pa.concat_tables(tables, promote_options="default")
    batches = merged.sort_by(OFFSET).combine_chunks().to_batches()
    return batches[0] if batches else parts[0]


def _with_operations(parts: Sequence[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    if not any(OP in one.schema.names for one in parts):
        return parts
    return [
        one
        if OP in one.schema.names
        else one.append_column(OP, pa.array(np.full(one.num_rows, INSERT), pa.int8()))
        for one in parts
    ]
