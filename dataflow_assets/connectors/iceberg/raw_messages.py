"""Rows of raw tables as messages.

| columns | message |
|---|---|
| `data`, `_metadata` | `{"data": "<text>", "_metadata": "<text>"}`, as they stand |
| `data` and others, no `_metadata` | `{"value": <data>, "_metadata": {...}}` |
| any others | the row as an object |

Tables of the second kind are what `flattenMetadataColumns` makes: the beginning that the other
columns share, up to its last underscore, is left out of the keys of `_metadata`, and these keys are
metadata of the message too.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from dataflow_assets.contracts import Kind, Note, system_name
from dataflow_assets.formats.rows import is_beside

DATA, WHOLE = "data", "_metadata"


def message_form(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the keys of their messages as columns."""
    names = [field.name for field in batch.schema if not is_beside(field)]
    if DATA not in names or not pa.types.is_string(batch.schema.field(DATA).type):
        return batch
    if set(names) == {DATA, WHOLE}:
        return _texts(batch)
    if len(names) == 1 or WHOLE in names:
        return batch
    return _wrap(batch, [name for name in names if name != DATA])


def _texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    fields = [field if is_beside(field) else field.remove_metadata() for field in batch.schema]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def _wrap(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    keys = _keys(names)
    fields = [batch.schema.field(name).with_name(keys[name]) for name in names]
    columns = [batch.column(name) for name in names]
    metadata = [field for field in batch.schema if is_beside(field)]
    marked = [
        field.with_metadata({**(field.metadata or {}), Note.METADATA: field.name.encode()})
        for field in fields
    ]
    values = pa.array([_json(text) for text in batch.column(DATA).to_pylist()], pa.string())
    schema = [
        Kind.JSON.field("value"),
        pa.field(WHOLE, pa.struct(fields)),
        *(field.with_name(system_name(f"column {field.name}")) for field in marked),
        *metadata,
    ]
    whole = pa.StructArray.from_arrays(columns, fields=fields)
    arrays = [values, whole, *columns, *(batch.column(field.name) for field in metadata)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(schema))


def _keys(names: Sequence[str]) -> dict[str, str]:
    shared = os.path.commonprefix(list(names)).rpartition("_")  # noqa: RUF071 - that is the point
    cut = len(shared[0] + shared[1])
    return {name: name[cut:] or name for name in names}


def _json(text: str | None) -> str | None:
    """JSON as it is; any other text as a JSON string."""
    try:
        if text is not None:
            msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return msgspec.json.encode(text).decode()
    return text
