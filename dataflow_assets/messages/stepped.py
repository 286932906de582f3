"""Bodies as records through the chain; what comes out, for each lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from dataflow_assets.chain import Chain
from dataflow_assets.contracts import Chunk, Sink
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.messages.forwarding import Forwarded
from dataflow_assets.messages.lanes import Lane, Steps
from dataflow_assets.messages.sent import Messages, rejection
from dataflow_assets.messages.shares import Share
from dataflow_assets.metadata import Rows
from dataflow_assets.records import Record, parse, text
from dataflow_assets.wrapped import unwrapped


class Stepped:
    """Bodies as records through the chain; what comes out, as JSON again, for each lane."""

    def __init__(self, steps: Steps, tombstones: str, lanes: Sequence[Lane], rows: Rows) -> None:
        self._chain = Chain(steps.transformations, steps.context)
        self._shares = [_shares(lane, tombstones) for lane in lanes]
        self._rows = rows

    def __call__(self, batch: pa.RecordBatch) -> list[Chunk]:
        """Each lane's chunk. Records of a route that is not among the lanes are left out."""
        offsets = self._rows.offsets(batch)
        shares = [share() for share in self._shares]
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
        return [share.chunk(offsets, sent) for share in shares]


def _shares(lane: Lane, tombstones: str) -> Callable[[], Share | Forwarded]:
    """Makes what the lane gets of one batch; what decodes is made once per slice."""
    if lane.sink.takes == "messages":
        return lambda: Forwarded(lane, tombstones)
    shape, decoder = lane.shape(), lane.decoder("delete")
    return lambda: Share(lane, shape, decoder, tombstones)


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
