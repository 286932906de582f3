"""An Iceberg table as an error sink: a small commit of its own before that of the rows.

Append-only, so at least once: ids that stand in the table already are left out, and only two
drivers on one flow at the same moment can store one twice. A table without a column `id` cannot
tell, and keeps what a crash repeats.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThanOrEqual, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from typing_extensions import override

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.column_types import parse_field
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.rejected.replay import oldest, remove
from dataflow_assets.connectors.iceberg.rejected.table import identifier
from dataflow_assets.connectors.iceberg.table import create_table
from dataflow_assets.connectors.iceberg.table.commit import Committer, TableChange
from dataflow_assets.connectors.iceberg.table.data_files import data_file, write_target
from dataflow_assets.connectors.iceberg.table.file_writer import file_writer
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.connectors.iceberg.types import row_schema, table_schema
from dataflow_assets.contracts import EntryName, utc_now
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.rejected_records import entry
from dataflow_assets.sdk.sql_table.rejected import (
    APART,
    REJECTED,
    ErrorTable,
    RejectedRows,
    RejectedTable,
    Row,
    entries_of,
    whole_record,
)

_STAMP = pa.timestamp("us", "UTC")
_ID = pa.field("id", pa.string(), nullable=False)
_APART = (
    _ID,
    pa.field("flow", pa.string()),
    pa.field("error", pa.json_(), nullable=False),
    pa.field("original_message", pa.json_(), nullable=False),
    pa.field("rejected_at", _STAMP),
    pa.field("reading", pa.int64()),
)
_WHOLE = (
    _ID,
    pa.field("data", pa.json_(), nullable=False),
    pa.field("_metadata", pa.json_()),
    pa.field("reading", pa.int64()),
)
_FILLED = {
    **dict.fromkeys(("id", "flow", "error", "original_message", "data", "_metadata"), pa.string()),
    "rejected_at": _STAMP,
    "reading": pa.int64(),
}
_PROPERTIES = {"write.metadata.metrics.column.id": "full"}  # bounds find the files of an id
_PROPERTY = "dataflow.errors"
_REFERENCE = Reference("id")
_AT_ONCE = 1_000  # rows of one batch on their way into the file


@dataclass(frozen=True)
class IcebergRejected(RejectedRows):
    """One table, of an error sink or beside a target; what goes beside one is staged instead."""

    catalog: TableCatalog
    sink: TableSinkOptions
    identifier: tuple[str, ...]

    @override
    def prepare(self) -> None:
        table = self.catalog.table(self.identifier) or self._create_table()
        _layout(self.sink, table)
        if table.metadata.current_snapshot() is None:
            # Not every catalog asserts the absence of a head: two first appends would race.
            Committer(self.catalog, table).commit(_change(()))

    @override
    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        table = self.catalog.table(self.identifier)
        if table is None:
            raise self._no_table()
        names = _layout(self.sink, table)
        new = {row["id"]: row for row in rows}
        for stored_id in _stored_ids(table, new, names) if "id" in names else ():
            del new[stored_id]
        if new:
            self._commit(Committer(self.catalog, table), list(new.values()), names)

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> Sequence[Row]:
        table = self.catalog.table(self.identifier)
        if table is None:
            return []
        if self.identifier != self.sink.identifier:
            names = [n for n in REJECTED.names if n in table.schema().column_names]
            return oldest(table, flow, since, most, names)
        filled = _layout(self.sink, table)
        names = [n for n in ("id", *APART, DATA) if n in filled]
        rows = oldest(table, flow, since, most, names)
        waiting = [row for row in rows if _is_of(row, flow)]
        if "id" not in names and entries_of(waiting, since, most):
            raise PermanentError(
                f"the error sink's table {'.'.join(self.sink.identifier)} has no column id of type "
                "string: a replay cannot take its records out again; name a new table and set "
                "autoCreateTable: true"
            )
        return waiting

    @override
    def mark_replayed(self, names: Sequence[EntryName]) -> None:
        remove(self.catalog, self.identifier, names)

    def _create_table(self) -> Table:
        if not self.sink.auto_create_table:
            raise self._no_table()
        create_table.ensure_namespace(self.catalog, self.sink)
        columns = {field.name: field for field in (_WHOLE if self.sink.raw_mode else _APART)}
        columns |= {name: parse_field(name, text) for name, text in self.sink.columns.items()}
        return self.catalog.make(self.identifier, table_schema(columns.values()), _PROPERTIES)

    def _commit(self, committer: Committer, rows: Sequence[Row], names: list[str]) -> None:
        files = self._write(committer.table, rows, names)
        try:
            committer.commit(_change(files))
        except TransientError as error:
            committer.discard(files)
            where = self.sink.address()
            raise TransientError(
                f"cannot store rejected records in the error sink {where}: {error}"
            ) from error

    def _write(self, table: Table, rows: Sequence[Row], names: list[str]) -> list[DataFile]:
        now, size = utc_now(), self.sink.target_file_size_bytes
        writer = file_writer(write_target(table), "errors", names, size)
        try:
            for first in range(0, len(rows), _AT_ONCE):
                some = [{"rejected_at": now, **row} for row in rows[first : first + _AT_ONCE]]
                writer.write(pa.RecordBatch.from_pylist(some, writer.schema))
            documents = writer.close()
        except BaseException:
            writer.abort()
            raise
        return [data_file(text, table) for text in documents]

    def _no_table(self) -> PermanentError:
        return PermanentError(
            f"the error sink's table {'.'.join(self.sink.identifier)} does not exist: create it, "
            "or set autoCreateTable: true"
        )


def _change(files: Sequence[DataFile]) -> TableChange:
    commit_id = uuid.uuid4().hex
    text = json.dumps({"commit": commit_id})
    return TableChange(_PROPERTY, lambda _: text, commit_id, files)


def _layout(sink: TableSinkOptions, table: Table) -> list[str]:
    """The columns that are filled. Raises PermanentError where error records do not fit."""
    create_table.check(table)
    fields = {field.name: field for field in row_schema(table.schema())}
    fits = {name for name, field in fields.items() if field.type == _FILLED.get(name)}
    apart = set(APART)
    required = {DATA} if sink.raw_mode or not apart <= fits else apart
    if not required <= fits:
        raise _unfit(sink, f"it has the columns {', '.join(fields)}")
    filled = fits - ({DATA, *apart} - required)
    if needed := [n for n, field in fields.items() if not field.nullable and n not in filled]:
        raise _unfit(sink, f"nothing fills its required columns {', '.join(needed)}")
    return sorted(filled)


def _unfit(sink: TableSinkOptions, why: str) -> PermanentError:
    columns = "data" if sink.raw_mode else "error and original_message, or data"
    return PermanentError(
        f"the error sink's table {'.'.join(sink.identifier)} cannot take error records: {why}; it "
        f"needs {columns} of type string, and no other required column: alter it, or name a new "
        "table and set autoCreateTable: true"
    )


def _stored_ids(table: Table, wanted: Mapping[str, Row], names: Sequence[str]) -> Iterator[str]:
    """The ids that stand in the table in this reading; those of one slice lie close together."""
    least, most = literal(min(wanted)), literal(max(wanted))
    between = And(
        GreaterThanOrEqual(term=_REFERENCE, value=least),
        LessThanOrEqual(term=_REFERENCE, value=most),
    )
    fields = [name for name in ("id", "reading") if name in names]
    rows = table.scan(row_filter=between, selected_fields=tuple(fields)).to_arrow().to_pylist()
    yield from {
        row["id"]
        for row in rows
        if row["id"] in wanted
        and ("reading" not in row or wanted[row["id"]]["reading"] <= (row["reading"] or 0))
    }


def _is_of(row: Row, flow: str) -> bool:
    """Tells an entry of this flow from what others have put there."""
    if None in [row[name] for name in (*APART, DATA) if name in row]:
        return False
    body = row.get(DATA) or whole_record(row)
    try:
        entry(body)
        return decode_json(body, _IcebergRead).error.flow == flow
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return False


class _IcebergOrigin(msgspec.Struct):
    flow: str


class _IcebergRead(msgspec.Struct):
    error: _IcebergOrigin


def error_table(sink: TableSinkOptions) -> ErrorTable:
    return ErrorTable("iceberg", partial(_open, sink, sink.identifier, "the error sink"))


def rejected_table(sink: TableSinkOptions) -> RejectedTable:
    name = "the rejected records beside"
    return RejectedTable("iceberg", partial(_open, sink, identifier(sink), name))


@contextmanager
def _open(
    sink: TableSinkOptions, table: tuple[str, ...], name: str, what: str
) -> Iterator[IcebergRejected]:
    catalog = connect(sink, f"reach {name}")
    with translate_errors(sink, f"{what} {name}"):
        yield IcebergRejected(catalog, sink, table)
