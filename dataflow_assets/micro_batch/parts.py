"""The parts of a span, as a task reads them by what their source can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dataflow_assets.contracts import Slice, Source, Span
from dataflow_assets.contracts.reading import FormsMessages, ReadsInOrder, ReadsParts


def part_reader(source: Source) -> ReadsParts:
    """The source of columns or entries as what reads its parts."""
    assert isinstance(source, ReadsParts), f"{source.type} delivers messages"  # noqa: S101 - its `delivers` says so
    return source


def are_in_order(source: Source, span: Span, *, upserts: bool) -> bool:
    """Returns whether one task reads all parts of a span, one after the other."""
    return isinstance(source, ReadsInOrder) and source.reads_in_order(span, upserts=upserts)


def read_in_order(
    source: Source, pieces: Sequence[Slice], metadata: frozenset[str]
) -> Iterator[Iterator[pa.RecordBatch]]:
    """For each part its batches; closed, it lets go of what it reads from."""
    if isinstance(source, ReadsInOrder):
        return source.batches_in_order(pieces, metadata)
    return (part_reader(source).batches(piece, metadata) for piece in pieces)


def message_form(source: Source, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Typed rows as a batch whose columns are the keys of their messages."""
    return source.message_form(batch) if isinstance(source, FormsMessages) else batch
