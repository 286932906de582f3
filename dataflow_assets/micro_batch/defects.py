"""A mistake in our code meets a slice: the error that names flow, slice and record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.contracts import OffsetSlice, Slice
from dataflow_assets.errors import DataflowError, Defect
from dataflow_assets.errors.defects import describe, is_defect

log = logging.getLogger(__name__)

Made = TypeVar("Made")

_ADVICE = (
    "This is a defect of dataflow-assets or of a library, which trying again does not fix: report "
    "it with this sentence. Nothing of the slice is stored"
)


@contextmanager
def report_defects(flow: str, where: str) -> Iterator[None]:
    """Defects inside as the error that names flow and place; every other error stays as it is."""
    try:
        yield
    except DataflowError:
        raise
    except Exception as error:
        if not is_defect(error):
            raise
        log.exception("flow %s: %s", flow, where)
        if isinstance(error, _AtRecord):
            where, error = f"{where}, record {error.offset}", error.error
        raise Defect(f"flow {flow}: {where}: {describe(error)}. {_ADVICE}") from error


def place(source: str, piece: Slice) -> str:
    if isinstance(piece, OffsetSlice):
        offsets = f"offsets {piece.after} to {piece.upto - 1}"
        return f"{source}, partition {piece.partition}, {offsets}"
    return f"{source}, {piece.partition} {piece.part}".rstrip()


def blaming_record(
    batch: pa.RecordBatch,
    make: Callable[[pa.RecordBatch], Made],
    again: Callable[[], Callable[[pa.RecordBatch], object]],
    numbers: npt.NDArray[np.int64],
) -> Made:
    """Returns what is made of a batch; a defect names the record at which it fails.

    `again` gives a fresh `make`, which has seen no record yet: by it the batch is halved.
    `numbers`: the offset of each row.
    """
    try:
        return make(batch)
    except Exception as error:
        row = _culprit(batch, again) if is_defect(error) else None
        if row is None:
            raise
        raise _AtRecord(int(numbers[row]), error) from error


class _AtRecord(ValueError):
    """A defect, and the record that it is about."""

    def __init__(self, offset: int, error: Exception) -> None:
        self.offset, self.error = offset, error
        super().__init__(str(error))


def _culprit(
    batch: pa.RecordBatch, again: Callable[[], Callable[[pa.RecordBatch], object]]
) -> int | None:
    """The first record that fails alone; None where only some of them together do."""
    first, rows = 0, batch.num_rows
    while rows > 1:
        half = rows // 2
        if _fails(batch.slice(first, half), again):
            rows = half
        elif _fails(batch.slice(first + half, rows - half), again):
            first, rows = first + half, rows - half
        else:
            return None
    return first if _fails(batch.slice(first, 1), again) else None


def _fails(batch: pa.RecordBatch, again: Callable[[], Callable[[pa.RecordBatch], object]]) -> bool:
    try:
        again()(batch)
    except Exception as error:  # noqa: BLE001 - whatever it is, this part cannot be read
        return is_defect(error)
    return False
