"""The places of records of a part, told only of the few that are rejected."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from dataflow_assets.contracts import ONE_ROW, Note, PartSlice, Place, Slice, digest
from dataflow_assets.formats.rows import cells


class Places:
    """Places of one slice, in one attempt of its task."""

    def __init__(self, piece: Slice) -> None:
        self._in_parts = isinstance(piece, PartSlice)
        self._equal: dict[str, dict[int, int]] = {}

    def of(self, batch: pa.RecordBatch, row: int, offset: int, body: bytes | None) -> Place | None:
        """Returns where a row of a batch is; None where its offset names it.

        `offset` is the row's ordinal in the part: asked for again, a row has the same place. Equal
        rows are numbered, in whatever order they come: each of them stands for any other.
        """
        if not self._in_parts:
            return None
        values, shared = _values(batch, row)
        if not shared:
            return Place(values)
        place = Place(values, digest(body or b""))
        equal = self._equal.setdefault(place.key, {})
        number = equal.setdefault(offset, len(equal))
        return Place(values, f"{place.row}.{number}") if number else place


def place_column(schema: pa.Schema) -> int | None:
    """The index of the column of places; None where a source has none."""
    return next((at for at, one in enumerate(schema) if Note.PLACE.marks(one)), None)


def _values(batch: pa.RecordBatch, row: int) -> tuple[dict[str, str], bool]:
    """The values that name a row, and whether other rows may have them."""
    at = place_column(batch.schema)
    if at is None:
        return {}, True
    field = batch.schema.field(at)
    (cell,) = cells(batch.column(at).slice(row, 1), field)
    return {name: _text(value) for name, value in cell.items()}, field.metadata[
        Note.PLACE
    ] != ONE_ROW


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
