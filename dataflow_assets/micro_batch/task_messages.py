"""Slices of messages that a task reads itself, those of one server together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import pyarrow as pa

from dataflow_assets.contracts import OffsetSlice
from dataflow_assets.contracts.reading import Asked, ReadsMessages
from dataflow_assets.errors import DataflowError
from dataflow_assets.micro_batch.fused import Pass

Indexes = tuple[int, ...]
"""Slices of one pass that a task reads, in this order."""
Share = tuple[int, Indexes]
"""A pass of the job, and what a task reads of it."""


def read_together(
    works: Sequence[Pass], shares: Iterable[Share]
) -> Iterator[tuple[int, int, Iterator[pa.RecordBatch]]]:
    """Each slice with its batches, the slices that were read first come first.

    Called in each task of a job over slices of messages.

    Args:
        works: the passes of the job.
        shares: what this task reads of them.

    Returns:
        The pass, the index of the slice in its span, and the slice's messages.
        What is wrong with one source, such as a certificate that is not on this machine, is raised
        by the messages of its own slices.
    """
    groups: dict[Hashable, list[tuple[int, int]]] = {}
    for n, index in ((n, index) for n, indexes in shares for index in indexes):
        source = works[n].source
        try:
            shared = source.connection_group
        except DataflowError as error:
            yield n, index, _failing(error)
            continue
        groups.setdefault((type(source), shared), []).append((n, index))
    for group in groups.values():
        source = works[group[0][0]].source
        readings = [_ask(works[n], index) for n, index in group]
        assert isinstance(source, ReadsMessages)  # noqa: S101 - its session has chosen
        for at, batches in source.messages_together(readings):
            yield *group[at], batches


def _failing(error: DataflowError) -> Iterator[pa.RecordBatch]:
    raise error
    yield  # makes it an iterator, so that the error is of whoever reads


def _ask(work: Pass, index: int) -> Asked:
    piece = work.span.slices[index]
    assert isinstance(piece, OffsetSlice)  # noqa: S101 - messages have offsets
    identity = work.branches[0].ticket.target.source_id
    return Asked(work.source, identity, piece, work.metadata_to_read, index, len(work.span.slices))
