"""Rows as COPY wants them.

Binary: jsonb with its version byte, uuid as 16 bytes, packed digits. Text: PostgreSQL's own way to
write arrays, bytes, and the times that Arrow writes otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.client import BinaryLink, Link
from dataflow_assets.connectors.postgresql.sink.encode_arrays import literals
from dataflow_assets.connectors.postgresql.sink.encode_numerics import numerics
from dataflow_assets.connectors.postgresql.sink.encode_texts import text_values
from dataflow_assets.connectors.postgresql.sink.encode_uuids import uuids
from dataflow_assets.connectors.postgresql.sink.parse_texts import parse_values
from dataflow_assets.connectors.postgresql.table.column import TYPE
from dataflow_assets.contracts import Note

_JSONB_VERSION = b"\x01"


def copy_rows(
    link: Link, place: tuple[str | None, str], fields: Sequence[pa.Field], rows: pa.RecordBatch
) -> None:
    """Copies the rows' columns of these names, typed as the table's, or texts. Raises Failure."""
    arrays = [rows.column(field.name) for field in fields]
    plain = [field.with_nullable(True) for field in fields]
    found = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(plain))
    if isinstance(link, BinaryLink) and (values := parse_values(found)) is not None:
        link.load(*place, binary(values))
    else:
        link.load_text(*place, textual(found))


def binary(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in PostgreSQL's own receive formats; names unchanged."""
    arrays = [_array(rows.column(i), field) for i, field in enumerate(rows.schema)]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def textual(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in PostgreSQL's text formats, as far as CSV would not write them itself."""
    arrays = [_write(rows.column(i), field) for i, field in enumerate(rows.schema)]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def _write(values: pa.Array, field: pa.Field) -> pa.Array:
    if Note.ELEMENT.marks(field):
        return literals(values, field)
    return text_values(values, field)


def _array(values: pa.Array, field: pa.Field) -> pa.Array:
    declared = (field.metadata or {}).get(TYPE, b"")
    if declared == b"jsonb":
        return pc.binary_join_element_wise(_JSONB_VERSION, values.cast(pa.binary()), b"")
    if declared.partition(b"(")[0] == b"numeric":
        return numerics(values, field.name)
    return uuids(values, field.name) if declared == b"uuid" else values
