"""Computes in memory the result of a few messages by themselves, for a preview."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dataflow_assets.contracts import OffsetSlice
from dataflow_assets.languages.sql.engine.changes import NONE, by_key, concatenate
from dataflow_assets.languages.sql.state.hops import NOTHING, Flowing
from dataflow_assets.languages.sql.state.output import OutputRow, batches, write_rows
from dataflow_assets.languages.sql.state.reading import ViewReader


def looked_at(reader: ViewReader, messages: Mapping[str, pa.RecordBatch]) -> pa.RecordBatch | None:
    """The rows of the target that messages make without a state; None where they make none.

    Called by `dataflow preview`. Windows are shown as if no row came later.

    Args:
        reader: of the view.
        messages: by the partition, as `Peeks.peek` gives them.
    """
    arrived: list[pa.Table] = []
    rows: list[OutputRow] = []
    for partition, batch in sorted(messages.items()):
        read = reader.read(OffsetSlice(partition, 0, 0), [batch])
        arrived.append(read.changes)
        rows += read.refused
    flowing = Flowing(reader.view, reader.environment)
    pending = flowing.arriving(concatenate(arrived))
    for hop in flowing.hops:
        moved = flowing.merge(hop, NOTHING, pending.get(hop.table, NONE))
        if flowing.is_windowed(hop):
            kept = {key: value for key, value in by_key(moved.puts).items() if value is not None}
            moved = moved.and_then(flowing.close(hop, kept))
        for name, some in moved.changes.items():
            pending[name] = concatenate([pending.get(name, NONE), some])
        rows += moved.output
    table = pa.Table.from_batches(batches(write_rows(rows))).combine_chunks() if rows else None
    return None if table is None else table.to_batches()[0]
