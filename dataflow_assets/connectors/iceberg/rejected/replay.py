"""Rejected records in Iceberg tables that wait for a replay: then their rows are deleted.

So a table holds only what waits; older snapshots tell the rest until they expire. A delete may be
repeated: an id that is gone stays gone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc
from pyiceberg import exceptions as ice
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table
from typing_extensions import override

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.errors import translated
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.rejected.table import identifier
from dataflow_assets.contracts import Entries, Entry
from dataflow_assets.errors import TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.rejected_rows import metadata_of

ATTEMPTS = 20  # other writers' commits to give way to
_AT_ONCE = 1_000  # ids in one commit
_COLUMNS = ("id", "branch", "source", "partition", "offset", "n", "stage", "body", "key")
_LATER = ("rows", "reading", "metadata")  # which tables of an earlier version lack
_ID, _AT, _READING = Reference("id"), Reference("rejected_at"), Reference("reading")


class IcebergReplay(Entries):
    """Those of `<table>_rejected`."""

    def __init__(self, sink: TableSinkOptions) -> None:
        self._sink = sink

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        catalog = connect(self._sink, "reach the rejected records beside")
        with translated(self._sink, "read the rejected records beside"):
            table = catalog.table(identifier(self._sink))
            rows = [] if table is None else oldest(table, flow, since, most, _known(table))
        return latest(map(_entry, rows))

    @override
    def replayed(self, entries: Sequence[Entry]) -> None:
        remove(self._sink, identifier(self._sink), entries)


def _known(table: Table) -> list[str]:
    there = set(table.schema().column_names)
    return [*_COLUMNS, *(name for name in _LATER if name in there)]


def latest(entries: Iterable[Entry]) -> list[Entry]:
    """Each id once: a crash stores one twice, and a later reading of the source stores it again."""
    found: dict[str, Entry] = {}
    for one in entries:
        if one.id not in found or found[one.id].reading < one.reading:
            found[one.id] = one
    return list(found.values())


def oldest(
    table: Table, flow: str, since: datetime | None, most: int, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """The flow's rows by the time of their rejection; of many, bodies of the oldest are read only.

    A table without a column `flow` or `rejected_at` gives all its rows: their text tells.
    """
    known = {field.name for field in table.schema().fields}
    wanted: BooleanExpression = AlwaysTrue()
    if "flow" in known:
        wanted = EqualTo(term=Reference("flow"), value=literal(flow))
    if "rejected_at" not in known:
        return _rows(table, wanted, columns)
    if since is not None:
        wanted = And(wanted, GreaterThanOrEqual(term=_AT, value=_moment(since)))
    found = table.scan(row_filter=wanted, selected_fields=("rejected_at",)).to_arrow()
    times = pc.drop_null(found.column("rejected_at").combine_chunks())
    if len(times) > most:
        last = times.take(pc.array_sort_indices(times))[most - 1].as_py()
        wanted = And(wanted, LessThanOrEqual(term=_AT, value=_moment(last)))
    rows = _rows(table, wanted, [*columns, "rejected_at"])
    return sorted(rows, key=_age)[:most]


def _age(row: dict[str, Any]) -> tuple[datetime, int, int, str]:
    never = datetime.min.replace(tzinfo=UTC)
    place = row.get("offset") or 0, row.get("n") or 0
    return row["rejected_at"] or never, *place, str(row["id"])


def _rows(table: Table, wanted: BooleanExpression, columns: Sequence[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        table.scan(row_filter=wanted, selected_fields=tuple(columns)).to_arrow().to_pylist()
    )
    return rows


def _moment(at: datetime) -> Any:
    return literal(at.astimezone(UTC).isoformat())


def remove(sink: TableSinkOptions, name: tuple[str, ...], entries: Sequence[Entry]) -> None:
    """Takes the rows of these entries out of the table."""
    reach("iceberg.replayed")
    by_reading: dict[int, list[str]] = {}
    for one in entries:
        by_reading.setdefault(one.reading, []).append(one.id)
    for reading, ids in by_reading.items():
        for first in range(0, len(ids), _AT_ONCE):
            with translated(sink, "note a replay in the rejected records of"):
                _remove(sink, name, ids[first : first + _AT_ONCE], reading)


def _named(table: Table, ids: Sequence[str], reading: int) -> BooleanExpression:
    """The rows of these ids, but for those of a later reading of the source."""
    between = And(
        GreaterThanOrEqual(term=_ID, value=literal(min(ids))),
        LessThanOrEqual(term=_ID, value=literal(max(ids))),
    )  # bounds of files are not compared with long lists
    theirs = And(between, In(term=_ID, values={literal(one) for one in ids}))
    if "reading" not in table.schema().column_names:
        return theirs
    upto = LessThanOrEqual(term=_READING, value=literal(reading))
    return And(theirs, Or(IsNull(term=_READING), upto))


def _remove(
    sink: TableSinkOptions, name: tuple[str, ...], ids: Sequence[str], reading: int
) -> None:
    catalog = connect(sink, "note a replay in the rejected records of")
    for attempt in range(ATTEMPTS):
        table = catalog.load_table(name)
        theirs = _named(table, ids, reading)
        if not table.scan(row_filter=theirs, selected_fields=("id",), limit=1).to_arrow().num_rows:
            return
        try:
            table.delete(theirs)
        except (ice.CommitFailedException, ice.ValidationException):
            time.sleep(min(0.05 * 2**attempt, 2.0) * random.uniform(0.5, 1.5))  # noqa: S311
        else:
            return
    raise TransientError(f"table {'.'.join(name)} moves too fast to take replayed records out")


def _entry(row: dict[str, Any]) -> Entry:
    known = row.get("metadata")
    metadata = metadata_of(row["id"], row["source"], row["partition"], row["offset"], known)
    sent = row["body"], row["key"]
    again = row.get("rows"), row.get("reading") or 0
    return Entry(row["id"], row["branch"], row["stage"], row["n"], *sent, metadata, *again)
