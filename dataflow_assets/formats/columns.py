"""Typed columns, as tables deliver them, to a sink's schema."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataflow_assets.contracts import ABSENT, SYSTEM_COLUMNS
from dataflow_assets.errors import PermanentError


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the schema's columns, by name, cast without loss; system columns are kept.

    A column that the batch lacks is null and marked in ABSENT. Raises PermanentError when a column
    of the batch is unknown to the schema or does not fit its type.
    """
    given = set(batch.schema.names) - set(SYSTEM_COLUMNS)
    unknown = given - set(schema.names)
    if unknown:
        raise PermanentError(
            f"the source delivers columns that the target lacks: {', '.join(sorted(unknown))}; "
            f"the target has {', '.join(schema.names)}"
        )
    arrays = [_cast(batch, field) for field in schema]
    fields = list(schema)
    for name in SYSTEM_COLUMNS:
        if name in batch.schema.names:
            fields.append(batch.schema.field(name))
            arrays.append(batch.column(name))
    missing = [field.name not in given for field in schema]
    if any(missing) and ABSENT not in batch.schema.names:
        mask = np.packbits(np.array(missing), bitorder="little").tobytes()
        fields.append(pa.field(ABSENT, pa.binary()))
        arrays.append(pa.array([mask] * batch.num_rows, pa.binary()))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, schema.metadata))


def _cast(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise PermanentError(
            f"column {field.name} is {column.type} in the source and {field.type} in the target: "
            f"{str(error).splitlines()[0]}"
        ) from None
