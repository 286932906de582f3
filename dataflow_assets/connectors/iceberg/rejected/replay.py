"""Rejected records in Iceberg tables that wait for a replay: then their rows are deleted.

So a table holds only what waits; older snapshots tell the rest until they expire. A delete may be
repeated: an id that is gone stays gone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
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

from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.contracts import EntryName
from dataflow_assets.errors import TransientError

ATTEMPTS = 20  # other writers' commits to give way to
_AT_ONCE = 1_000  # ids in one commit
_ID, _AT, _READING = Reference("id"), Reference("rejected_at"), Reference("reading")


def oldest(
    table: Table, flow: str, since: datetime | None, most: int, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """The flow's rows by the time of their rejection; of many, bodies of the oldest are read only.

    A table without a column `flow` or `rejected_at` gives all its rows: their text tells.
    """
    stored_columns = {field.name for field in table.schema().fields}
    row_filter: BooleanExpression = AlwaysTrue()
    if "flow" in stored_columns:
        row_filter = EqualTo(term=Reference("flow"), value=literal(flow))
    if "rejected_at" not in stored_columns:
        return _rows(table, row_filter, columns)
    if since is not None:
        row_filter = And(row_filter, GreaterThanOrEqual(term=_AT, value=_moment(since)))
    waiting = table.scan(row_filter=row_filter, selected_fields=("rejected_at",)).to_arrow()
    times = pc.drop_null(waiting.column("rejected_at").combine_chunks())
    if len(times) > most:
        last = times.take(pc.array_sort_indices(times))[most - 1].as_py()
        row_filter = And(row_filter, LessThanOrEqual(term=_AT, value=_moment(last)))
    rows = _rows(table, row_filter, [*columns, "rejected_at"])
    return sorted(rows, key=_age)[:most]


def _age(row: dict[str, Any]) -> tuple[datetime, int, int, str]:
    never = datetime.min.replace(tzinfo=UTC)
    place = row.get("offset") or 0, row.get("n") or 0
    return row["rejected_at"] or never, *place, str(row.get("id"))


def _rows(table: Table, wanted: BooleanExpression, columns: Sequence[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        table.scan(row_filter=wanted, selected_fields=tuple(columns)).to_arrow().to_pylist()
    )
    return rows


def _moment(at: datetime) -> Any:
    return literal(at.astimezone(UTC).isoformat())


def remove(catalog: TableCatalog, name: tuple[str, ...], names: Sequence[EntryName]) -> None:
    """Takes the rows of these entries out of the table."""
    by_reading: dict[int, list[str]] = {}
    for id_, reading in names:
        by_reading.setdefault(reading, []).append(id_)
    for reading, ids in by_reading.items():
        for first in range(0, len(ids), _AT_ONCE):
            _remove(catalog, name, ids[first : first + _AT_ONCE], reading)


def _rows_of(table: Table, ids: Sequence[str], reading: int) -> BooleanExpression:
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


def _remove(catalog: TableCatalog, name: tuple[str, ...], ids: Sequence[str], reading: int) -> None:
    for attempt in range(ATTEMPTS):
        table = catalog.load_table(name)
        theirs = _rows_of(table, ids, reading)
        if not table.scan(row_filter=theirs, selected_fields=("id",), limit=1).to_arrow().num_rows:
            return
        try:
            table.delete(theirs)
        except (ice.CommitFailedException, ice.ValidationException):
            time.sleep(min(0.05 * 2**attempt, 2.0) * random.uniform(0.5, 1.5))  # noqa: S311
        else:
            return
    raise TransientError(f"table {'.'.join(name)} moves too fast to take replayed records out")
