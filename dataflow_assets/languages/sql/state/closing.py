"""Windows of one table on the driver: which keys are final, and when the first of the others is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from msgspec.structs import replace as with_fields

from dataflow_assets.languages.sql.engine.changes import by_key
from dataflow_assets.languages.sql.engine.changes import kept_rows as as_rows
from dataflow_assets.languages.sql.engine.windows import at_front
from dataflow_assets.languages.sql.state import tables
from dataflow_assets.languages.sql.state.hops import Flowing, Hop, MovedRows
from dataflow_assets.languages.sql.state.manifest import StateFile, StateTable

Load = Callable[[StateFile], pa.Table]


def ends(table: StateTable, final: int | None) -> bool:
    """Returns whether a window ends whose keys are kept; `final`: up to when windows are final."""
    return table.first is not None and final is not None and table.first <= final


def close_windows(
    flowing: Flowing, hop: Hop, moved: MovedRows, kept: Mapping[bytes, bytes], final: int
) -> MovedRows:
    """Returns what was merged, with what comes of windows that are final: nothing is kept of them.

    Args:
        flowing: the view.
        hop: the table, one of windows.
        moved: what was merged into it.
        kept: what it had under keys that are final.
        final: up to when windows are final.
    """
    written = by_key(moved.puts)
    over = {key: value for key, value in written.items() if at_front(key) <= final}
    both = {**kept, **over}
    ended = {key: value for key in sorted(both) if (value := both[key]) is not None}
    puts = {key: value for key, value in written.items() if key not in over}
    more = flowing.close(hop, ended)
    return replace(moved, puts=as_rows(puts | dict.fromkeys(kept))).and_then(more)


def with_first_end(table: StateTable, puts: pa.Table, final: int | None, load: Load) -> StateTable:
    """The table with the time at which its first window is final.

    Args:
        table: with the files behind the micro-batch, and the time before it.
        puts: what was written in the micro-batch.
        final: as in `close_windows`.
        load: gives the rows of a file.
    """
    if ends(table, final):
        return with_fields(table, first=tables.first(map(load, table.files), behind=final))
    candidates = (tables.first([puts]), table.first)
    moments = [one for one in candidates if one is not None]
    return with_fields(table, first=min(moments, default=None))
