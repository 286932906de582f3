"""Typed rows for the branches that routers choose by metadata: columns go straight through.

Values keep the types of their source, and no row becomes JSON. What a router needs of the body, a
sink that takes messages, and what stores whole bodies all need records: see `transform`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow_assets.contracts import EVERYTHING, Chunk, Note, Slice, Source
from dataflow_assets.errors import PermanentError, RejectedRecord
from dataflow_assets.formats.rows import values
from dataflow_assets.micro_batch.branches import BranchSteps, PassBranch
from dataflow_assets.micro_batch.originals import with_offset
from dataflow_assets.micro_batch.parts import message_form
from dataflow_assets.micro_batch.places import Places
from dataflow_assets.micro_batch.typed_rows import (
    SentRows,
    chunk_of,
    nothing_of,
    with_ordinals,
)
from dataflow_assets.records.chain import Chain
from dataflow_assets.records.record import Record

Route = str | None
_KNOWN = 10_000  # values of metadata whose route is remembered


def are_routed(
    steps: BranchSteps | None, source: Source, piece: Slice, branches: Sequence[PassBranch]
) -> bool:
    """True where the steps do nothing but choose branches, by metadata that the source knows."""
    if steps is None or not steps.by_metadata:
        return False
    available = source.metadata_columns | source.metadata(piece).keys()
    messages = any(branch.sink.takes == "messages" for branch in branches)
    shaped = any(branch.shape() is not None for branch in branches)
    return steps.reads <= available and EVERYTHING not in steps.reads and not (messages or shaped)


class RoutedRows:
    """Chooses the branches of the rows of one part; made once for it, inside the task."""

    def __init__(
        self,
        steps: BranchSteps,
        source: Source,
        piece: Slice,
        branches: Sequence[PassBranch],
        places: Places,
    ) -> None:
        self._chain = Chain(steps.transformations, steps.context)
        self._source, self._branches, self._places = source, branches, places
        self._static = source.metadata(piece)
        self._known: dict[tuple[str, ...], Route] = {}

    def __call__(self, batch: pa.RecordBatch, seen: int) -> list[Chunk]:
        """Each branch's chunk of a batch whose first row has the ordinal `seen` in its part."""
        metadata = self._metadata(message_form(self._source, batch))
        routes = [self._route(one) for one in metadata]
        rows = with_ordinals(batch, seen)
        places = [with_offset(one, seen + row) for row, one in enumerate(metadata)]
        sent = SentRows(rows, seen, self._places, places)
        return [self._chunk(rows, branch, routes, sent) for branch in self._branches]

    def _metadata(self, batch: pa.RecordBatch) -> list[Mapping[str, Any]]:
        columns = {
            key: values(batch.column(field.name), field)
            for field in batch.schema
            if (key := Note.METADATA.of(field)) is not None
        }
        if not columns:
            return [self._static] * batch.num_rows
        rows = zip(*columns.values(), strict=True)
        return [{**self._static, **dict(zip(columns, row, strict=True))} for row in rows]

    def _route(self, metadata: Mapping[str, Any]) -> Route:
        """Rows seldom differ in what routers look at."""
        key = tuple(map(str, metadata.values()))
        if key not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = self._ask(metadata)
        return self._known[key]

    def _ask(self, metadata: Mapping[str, Any]) -> Route:
        try:
            (routed,) = self._chain(Record({}, metadata))
        except RejectedRecord as error:
            raise PermanentError(f"transformations[{error.step}]: {error.reason}") from None
        return routed.route

    @staticmethod
    def _chunk(
        rows: pa.RecordBatch, branch: PassBranch, routes: Sequence[Route], sent: SentRows
    ) -> Chunk:
        mine = np.fromiter((route in branch.routes for route in routes), np.bool_, len(routes))
        if not mine.any():
            return nothing_of(branch, sent)
        return chunk_of(rows if mine.all() else rows.filter(pa.array(mine)), branch, sent)
