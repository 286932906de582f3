"""The share of a slice's records that may be rejected before the flow stops."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow_assets.contracts import Chunk, Slice, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.record_ids import record_place

_JUDGED_FROM = 1_000  # records; below that a share of rejected ones says little


class RejectedShare:
    """Counts the records of one slice, before it is committed; other tasks may commit theirs."""

    def __init__(self, target: Target, piece: Slice, most: float) -> None:
        self._target, self._piece, self._most = target, piece, most
        self._consumed = self._rejected = 0

    def add(self, consumed: int, chunks: Sequence[Chunk]) -> None:
        """Counts a batch's records. Raises PermanentError where too many were rejected."""
        self._consumed += consumed
        self._rejected += sum(len(chunk.rejected) for chunk in chunks)
        if too_many(self._rejected, self._consumed, self._most):
            raise PermanentError(self._sentence(chunks))

    def _sentence(self, chunks: Sequence[Chunk]) -> str:
        target, piece = self._target, self._piece
        last = next((chunk.rejected[-1] for chunk in chunks if chunk.rejected), None)
        example = f"; the last one, {record_place(last, piece)}: {last.reason}" if last else ""
        return (
            f"flow {target.flow}: {self._rejected} of {self._consumed} records of {target.source} "
            f"were rejected, more than maxRejectedPercent {self._most:g}{example}. "
            f"Nothing of this micro-batch's records of partition {piece.partition} is stored; "
            f"those of other partitions may be. Fix the table or the producer, or raise the limit"
        )


def too_many(rejected: int, consumed: int, most: float) -> bool:
    """True when more than `most` percent were rejected of enough records to judge by."""
    return consumed >= _JUDGED_FROM and rejected * 100 > most * consumed
