"""The column by which a source of parts names each of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow_assets.contracts import ONE_ROW, ROWS, Note, system_name


def with_place(batch: pa.RecordBatch, values: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Adds the places of records that no two of them share.

    Called by `ReadsParts.batches`, inside tasks, once for each batch.

    Args:
        batch: rows of a part.
        values: by the words that people read, what names each row: a file, and a byte in it.

    Returns:
        The batch with a column marked PLACE.
    """
    fields = [pa.field(name, array.type) for name, array in values.items()]
    return _with(batch, list(values.values()), fields, ONE_ROW)


def named_by(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Adds places by columns of the rows themselves, whose values several rows may share.

    Called by `ReadsParts.batches`, inside tasks, once for each batch. Nothing is copied.

    Args:
        batch: rows of a part.
        columns: names of the columns; those that the batch lacks are left out.

    Returns:
        The batch with a column marked PLACE; the batch itself where it has none of the columns.
    """
    known = [name for name in dict.fromkeys(columns) if name in batch.schema.names]
    if not known:
        return batch
    fields = [batch.schema.field(name) for name in known]
    return _with(batch, [batch.column(name) for name in known], fields, ROWS)


def constant(value: str, rows: int) -> pa.Array:
    """A text that many rows share, stored once.

    Called by sources for the file that rows are from.

    Args:
        value: the text.
        rows: how many rows share it.

    Returns:
        A dictionary array.
    """
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([value]))


def _with(
    batch: pa.RecordBatch, arrays: list[pa.Array], fields: list[pa.Field], kind: bytes
) -> pa.RecordBatch:
    column = pa.StructArray.from_arrays(arrays, fields=fields)
    place = pa.field(system_name("place"), column.type, metadata={Note.PLACE: kind})
    return batch.append_column(place, column)
