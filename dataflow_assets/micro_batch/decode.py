"""Bodies decoded as they are, without steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import Chunk
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.formats.message_format import MessageFormat
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.formatted import (
    Formatted,
    forwarded_as_json,
    refusing,
    without_refused,
)
from dataflow_assets.micro_batch.forward import forward
from dataflow_assets.micro_batch.message_metadata import MetadataRows, with_time
from dataflow_assets.micro_batch.originals import OriginalMessages
from dataflow_assets.micro_batch.places import Places
from dataflow_assets.records.wrapped import unwrapped_texts

Decode = Callable[[pa.RecordBatch, OriginalMessages], Chunk]


class Decoding:
    """Each branch's chunk of a batch of messages, no record between."""

    def __init__(
        self, branches: Sequence[PassBranch], rows: MetadataRows, form: MessageFormat | None
    ) -> None:
        tombstones = rows.source.traits.null_messages
        self._rows, self._places = rows, Places(rows.piece)
        self._decodes = [
            (_decode(branch, tombstones, form), branch.traits.record_time) for branch in branches
        ]

    def __call__(self, batch: pa.RecordBatch) -> list[Chunk]:
        offsets = pa.array(self._rows.offsets(batch), pa.int64())
        readable, refused = without_refused(batch)
        sent = OriginalMessages(offsets, readable, places=self._places)
        chunks = ((decode(readable, sent), column) for decode, column in self._decodes)
        timed = [
            with_time(chunk, batch, offsets, column) if column else chunk
            for chunk, column in chunks
        ]
        if not refused:
            return timed
        whole = OriginalMessages(offsets, batch, places=self._places)
        return [refusing(chunk, refused, whole) for chunk in timed]


def _decode(branch: PassBranch, tombstones: str, form: MessageFormat | None) -> Decode:
    if branch.sink.takes == "messages":
        if form is None:
            return lambda batch, sent: forward(batch, sent, tombstones)
        return lambda batch, sent: forwarded_as_json(batch, sent, tombstones, form, branch.sink)
    decoder, unwraps = branch.decoder(tombstones), branch.unwraps
    if form is not None:
        return Formatted(form, branch, decoder)
    return lambda batch, sent: _decode_batch(decoder, unwraps, batch, sent)


def _decode_batch(
    decoder: JsonDecoder, unwraps: bool, batch: pa.RecordBatch, sent: OriginalMessages
) -> Chunk:
    bodies = batch.column("body")
    texts = unwrapped_texts(bodies) if unwraps else bodies
    keys = batch.column("key") if "key" in batch.schema.names else None
    decoded = decoder.decode(texts, sent.offsets, keys)
    size = pc.sum(pc.binary_length(bodies)).as_py() or 0
    rejected = [one.of(sent[one.offset]) for one in decoded.rejected]
    return Chunk(decoded.rows, rejected, int(sent.offsets[-1].as_py()) + 1, size, sent)
