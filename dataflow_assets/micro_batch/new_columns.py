"""Columns of a table that the target of a branch lacks, where steps have made JSON of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec
import pyarrow as pa

from dataflow_assets.errors import blame
from dataflow_assets.formats.columns import new_columns
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.message_metadata import COLUMNS


def check(branch: PassBranch, batch: pa.RecordBatch, refused: Iterable[bytes | None]) -> None:
    """Raises NewColumns where a refused body has a column of its table that the target lacks.

    Called inside tasks, once for each batch of which a branch's decoder has refused something.

    Args:
        branch: whose target is asked.
        batch: of messages that were made of typed rows.
        refused: the bodies that the decoder has refused.
    """
    if branch.new_columns not in {"add", "fail"}:
        return
    schema = branch.ticket.schema
    columns = _columns(batch)
    unknown = [field for field in columns if branch.column(field.name) is None]
    keys = {key for body in refused for key in _keys(body)} if unknown else set()
    if lacked := [field for field in unknown if field.name in keys]:
        with blame(branch.ticket.target.branch):
            raise new_columns(lacked, schema, {*columns.names, *keys})


def _columns(batch: pa.RecordBatch) -> pa.Schema:
    return _read((batch.schema.metadata or {}).get(COLUMNS, b""))


@lru_cache(maxsize=64)
def _read(serialized: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(serialized)) if serialized else pa.schema([])


def _keys(body: bytes | None) -> Iterator[str]:
    try:
        yield from msgspec.json.decode(body or b"", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
