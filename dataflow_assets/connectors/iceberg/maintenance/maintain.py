"""Keeps tables small: old snapshots expire, files that nothing lists are deleted.

Files first: those of a snapshot that expires now are deleted by a later round, so that a frame that
was planned on it can still be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.catalog import BoundedCatalog, connect, errors
from dataflow_assets.connectors.iceberg.maintenance.expire import expire, own_age
from dataflow_assets.connectors.iceberg.maintenance.orphans import sweep
from dataflow_assets.connectors.iceberg.rejected import table as rejects
from dataflow_assets.connectors.iceberg.sink.sink import IcebergSink
from dataflow_assets.contracts import utc_now
from dataflow_assets.errors import PermanentError

LEAST_DAYS = 1 / 24  # a driver that has lost an answer looks for its own commit for minutes
LEAST_ORPHAN_DAYS = 1.0  # files of a running task are listed by nothing yet


@dataclass(frozen=True)
class Keep:
    """What stays: this many snapshots, all of so many days, and unlisted files of so many.

    `unread_days`: for how long snapshots stay that a reader has not come to.
    """

    snapshots: int = 10
    days: float = 1.0
    orphan_days: float = 3.0
    unread_days: float = 14.0

    def __post_init__(self) -> None:
        if self.snapshots < 1 or self.days < LEAST_DAYS or self.orphan_days < LEAST_ORPHAN_DAYS:
            raise PermanentError(
                f"snapshots must be at least 1, days at least {LEAST_DAYS:.3f} (an hour) and "
                f"orphan_days at least {LEAST_ORPHAN_DAYS:g}: running flows need what is younger"
            )


@dataclass(frozen=True)
class Tidied:
    """What was removed from one table."""

    table: str
    snapshots: int = 0
    files: int = 0
    bytes: int = 0
    note: str = ""


def maintain(
    sink: IcebergSink, keep: Keep, *, unread: datetime | None = None, now: datetime | None = None
) -> list[Tidied]:
    """The sink's table and that of its rejected records; tables that are not there are left out.

    `unread`: the snapshots of the sink's table that were committed since then, and the one before,
    are still to be read by somebody.
    """
    catalog = connect(sink)
    found: list[Tidied] = []
    for name, since in ((sink.identifier, unread), (rejects.identifier(sink), None)):
        with errors(sink, "tidy"):
            table = catalog.table(name)
            if table is not None:
                found.append(_tidied(catalog, table, keep, since, now or utc_now()))
    return found


def _tidied(
    catalog: BoundedCatalog, table: Table, keep: Keep, unread: datetime | None, now: datetime
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
