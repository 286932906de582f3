"""The life of one slice inside its task, whatever stores it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa
import pytest
from typing_extensions import override

from dataflow_assets.contracts import (
    OFFSET,
    Chunk,
    OffsetSlice,
    PartSlice,
    Rejection,
    Run,
    Slice,
    Target,
    Ticket,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.sink.slice_commit import SliceCommit, SliceStore, SliceWriter

ROWS = pa.record_batch({OFFSET: pa.array([0, 1], pa.int64())})


class Refusing(SliceStore):
    """Its target takes nothing, and does not let go of what it has of it either."""

    @override
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        raise PermanentError("the target refuses the rows")

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        raise PermanentError("the target refuses the rows")

    @override
    def end(self) -> NoReturn:
        raise TransientError("what was written cannot be removed")


@pytest.mark.parametrize("piece", [OffsetSlice("0", 0, 2), PartSlice("part-0", None, "2")])
def test_why_a_slice_has_failed_is_not_hidden_by_what_cannot_be_cleared_away(piece: Slice) -> None:
    ticket = Ticket(Target("shop/orders", "main", "h1", "orders"), Run(), 1, ROWS.schema)
    writer = SliceWriter(ticket, piece, Refusing())
    chunk = Chunk(ROWS, [], seen=2, size=10)
    is_part = isinstance(piece, PartSlice)
    with pytest.raises(PermanentError, match="the target refuses the rows"):
        writer.close(complete=True) if is_part else writer.write(chunk)
