"""Keeps tables small: old snapshots expire, files that nothing lists are deleted.

Files first: those of a snapshot that expires now are deleted by a later round, so that a frame that
was planned on it can still be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.maintenance.expire import expire, own_age
from dataflow_assets.connectors.iceberg.maintenance.orphans import sweep
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.rejected.table import identifier
from dataflow_assets.connectors.iceberg.table.position import SnapshotPosition
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.contracts import Positions, utc_now
from dataflow_assets.sdk.maintenance import Keep, Tidied

_EPOCH = datetime.fromtimestamp(0, UTC)


def maintain(
    sink: TableSinkOptions,
    keep: Keep,
    readers: Sequence[Positions] = (),
    now: datetime | None = None,
) -> list[Tidied]:
    """Implements `Maintained.maintain`; nobody reads the table of rejected records by snapshots."""
    catalog = connect(sink)
    # When the snapshot was committed from which the reader that is furthest behind goes on. The
    # snapshots since then, and that one, are still to be read. Of the parts of an unfinished span
    # the earliest counts. None where every reader begins with the snapshot that is current then.
    positions = [SnapshotPosition.parse(text) for stored in readers for text in stored.values()]
    commits = [position.at for position in positions if position.snapshot is not None]
    unread_since = min(
        (datetime.fromisoformat(at) if at else _EPOCH for at in commits), default=None
    )
    tables = (sink.identifier, unread_since), (identifier(sink), None)
    tidied: list[Tidied] = []
    for name, unread in tables:
        with translate_errors(sink, "tidy"):
            table = catalog.table(name)
            if table is not None:
                tidied.append(_tidy(catalog, table, keep, unread, now or utc_now()))
    return tidied


def _tidy(
    catalog: TableCatalog, table: Table, keep: Keep, unread: datetime | None, now: datetime
) -> Tidied:
    name = ".".join(table.name())
    if table.properties.get("gc.enabled", "true").lower() == "false":
        return Tidied(name, note="its property gc.enabled is false: somebody else tidies it")
    swept = sweep(catalog, table, now - timedelta(days=keep.orphan_days))
    before = now - max(timedelta(days=keep.days), own_age(table))
    needed = before
    if unread is not None and _has_newer(table, unread):
        needed = max(unread, now - timedelta(days=keep.unread_days))
    removed = expire(catalog, table, keep.snapshots, min(before, needed))
    notes = []
    if not isinstance(table.io, PyArrowFileIO):
        notes.append("its files cannot be listed through this py-io-impl: none deleted")
    if needed < before:
        notes.append(f"a flow has not read the snapshots since {needed:%Y-%m-%d %H:%M}: they stay")
    return Tidied(name, removed, swept.files, swept.bytes, "; ".join(notes))


def _has_newer(table: Table, when: datetime) -> bool:
    current = table.current_snapshot()
    return current is not None and current.timestamp_ms > when.timestamp() * 1000
