"""Bodies decoded as they are, without steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import Chunk, Slice
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.forward import forwarded
from dataflow_assets.micro_batch.originals import Messages
from dataflow_assets.micro_batch.places import Places
from dataflow_assets.records.wrapped import unwrapped_texts

Decode = Callable[[pa.RecordBatch, pa.Array], Chunk]


class Decoding:
    """Each branch's chunk of a batch of messages, no record between."""

    def __init__(
        self, branches: Sequence[PassBranch], tombstones: str, piece: Slice, slices: int
    ) -> None:
        places = Places(piece)
        self._decodes = [_decode(branch, tombstones, places) for branch in branches]
        self._slices = slices

    def __call__(self, batch: pa.RecordBatch) -> list[Chunk]:
        """Each branch's chunk."""
        offsets = pa.array(batch.column("_at").to_numpy() // self._slices, pa.int64())
        return [decode(batch, offsets) for decode in self._decodes]


def _decode(branch: PassBranch, tombstones: str, places: Places) -> Decode:
    if branch.sink.takes == "messages":
        return lambda batch, offsets: forwarded(batch, offsets, tombstones, places)
    decoder, unwraps = branch.decoder(tombstones), branch.unwraps

    def decode(batch: pa.RecordBatch, offsets: pa.Array) -> Chunk:
        return _decoded(decoder, unwraps, batch, Messages(offsets, batch, places=places))

    return decode


def _decoded(decoder: JsonDecoder, unwraps: bool, batch: pa.RecordBatch, sent: Messages) -> Chunk:
    bodies = batch.column("body")
    texts = unwrapped_texts(bodies) if unwraps else bodies
    keys = batch.column("key") if "key" in batch.schema.names else None
    decoded = decoder.decode(texts, sent.offsets, keys)
    size = pc.sum(pc.binary_length(bodies)).as_py() or 0
    rejected = [one.of(sent[one.offset]) for one in decoded.rejected]
    return Chunk(decoded.rows, rejected, int(sent.offsets[-1].as_py()) + 1, size, sent)
