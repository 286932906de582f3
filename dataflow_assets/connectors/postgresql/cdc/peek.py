"""A look at the first records behind a position, for which nothing moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dataflow_assets.connectors.postgresql.cdc import errors, slot
from dataflow_assets.connectors.postgresql.cdc.errors import explain_errors
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import (
    PARTITION,
    Lsn,
    SnapshotPart,
    StreamPart,
    dump_part,
)
from dataflow_assets.connectors.postgresql.cdc.read import read
from dataflow_assets.connectors.postgresql.cdc.snapshot import NOW
from dataflow_assets.connectors.postgresql.cdc.tables import CdcTable
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import PartSlice

Records = Mapping[str, pa.RecordBatch]
"""As `Peeks.peek` returns them."""


def first_rows(source: PostgresqlCdcOptions, tables: Sequence[CdcTable], limit: int) -> Records:
    """First rows for a flow that has not begun: rows of the first table, as they are now."""
    leaf = next((one for one in tables[0].leaves if one.bytes), None)
    if leaf is None or not source.loads:
        return {}
    return _first(source, SnapshotPart(NOW, "", tables[0].name, leaf.oid, 0, None), limit)


def first_changes(source: PostgresqlCdcOptions, after: Lsn, limit: int) -> Records:
    """First changes for a flow that has come so far."""
    with explain_errors(source, "looking for changes"), lent_to_source(source.dsn()) as link:
        state = slot.check(source, slot.find(link, source), after)
        end = slot.end_of_log(link)
    if state.pid is not None:
        raise errors.in_use(source, state.pid, state.application)
    return _first(source, StreamPart(str(after), str(end)), limit)


def _first(source: PostgresqlCdcOptions, part: StreamPart | SnapshotPart, limit: int) -> Records:
    piece = PartSlice("part-0", None, "", dump_part(part))
    first = next(read(source, piece, source.metadata_columns))
    return {PARTITION: first.slice(0, limit)} if first.num_rows else {}
