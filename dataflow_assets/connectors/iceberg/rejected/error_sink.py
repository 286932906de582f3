"""An Iceberg table as an error sink: a small commit of its own before that of the rows.

Append-only, so at least once: ids that stand in the table already are left out, and only two
drivers on one flow at the same moment can store one twice. A table without a column `id` cannot
tell, and keeps what a crash repeats.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
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
from dataflow_assets.connectors.iceberg.errors import translated
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.rejected.replay import latest, oldest, remove
from dataflow_assets.connectors.iceberg.table import create_table
from dataflow_assets.connectors.iceberg.table.commit import Change, Committer
from dataflow_assets.connectors.iceberg.table.data_files import data_file, write_target
from dataflow_assets.connectors.iceberg.table.file_writer import file_writer
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.connectors.iceberg.types import row_schema, table_schema
from dataflow_assets.contracts import Entry, ErrorRecord, ErrorStore, utc_now
from dataflow_assets.decoding import decode_json
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.rejected_records import HELD, entry, oldest_first

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


class IcebergErrors(ErrorStore):
    """Stores error records in the sink's table."""

    def __init__(self, sink: TableSinkOptions) -> None:
        self._sink = sink

    @override
    def prepare(self) -> None:
        catalog = connect(self._sink, "reach the error sink")
        with translated(self._sink, "prepare the error sink"):
            table = catalog.table(self._sink.identifier) or self._made(catalog)
            _layout(self._sink, table)
            if table.metadata.current_snapshot() is None:
                # Not every catalog asserts the absence of a head: two first appends would race.
                Committer(catalog, table).commit(_change(()))

    @override
    def store(self, records: Sequence[ErrorRecord]) -> None:
        reach("iceberg.errors")
        catalog = connect(self._sink, "reach the error sink")
        with translated(self._sink, "store rejected records in the error sink"):
            table = catalog.table(self._sink.identifier)
            if table is None:
                raise self._no_table()
            names = _layout(self._sink, table)
            new = {one.id: one for one in records}
            for known in _known(table, new, names) if "id" in names else ():
                del new[known]
            if new:
                self._append(Committer(catalog, table), list(new.values()), names)
        reach("iceberg.errors-stored")

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        catalog = connect(self._sink, "reach the error sink")
        with translated(self._sink, "read the error sink"):
            table = catalog.table(self._sink.identifier)
            if table is None:
                return []
            names = _layout(self._sink, table)
            parts = ("error", "original_message") if "error" in names else ("data",)
            known = [name for name in ("id",) if name in names]
            rows = oldest(table, flow, since, most, [*known, *parts])
        found = [one for row in rows if (one := _waits(row, parts, flow, since))]
        if found and not known:
            raise self._no_ids()
        return latest(oldest_first(found))[:most]

    @override
    def replayed(self, entries: Sequence[Entry]) -> None:
        remove(self._sink, self._sink.identifier, entries)

    def _made(self, catalog: TableCatalog) -> Table:
        if not self._sink.auto_create_table:
            raise self._no_table()
        create_table.ensure_namespace(catalog, self._sink)
        columns = {field.name: field for field in (_WHOLE if self._sink.raw_mode else _APART)}
        columns |= {name: parse_field(name, text) for name, text in self._sink.columns.items()}
        return catalog.made(self._sink.identifier, table_schema(columns.values()), _PROPERTIES)

    def _append(
        self, committer: Committer, records: Sequence[ErrorRecord], names: list[str]
    ) -> None:
        files = self._written(committer.table, records, names)
        try:
            committer.commit(_change(files))
        except TransientError as error:
            committer.discard(files)
            where = self._sink.address()
            raise TransientError(
                f"storing rejected records in the error sink {where}: {error}"
            ) from error

    def _written(
        self, table: Table, records: Sequence[ErrorRecord], names: list[str]
    ) -> list[DataFile]:
        writer = file_writer(
            write_target(table), "errors", names, self._sink.target_file_size_bytes
        )
        try:
            for first in range(0, len(records), _AT_ONCE):
                rows = [_row(one) for one in records[first : first + _AT_ONCE]]
                writer.write(pa.RecordBatch.from_pylist(rows, writer.schema))
            documents = writer.close()
        except BaseException:
            writer.abort()
            raise
        return [data_file(text, table) for text in documents]

    def _no_ids(self) -> PermanentError:
        return PermanentError(
            f"the error sink's table {'.'.join(self._sink.identifier)} has no column id of type "
            "string: a replay cannot take its records out again; name a new table and set "
            "autoCreateTable: true"
        )

    def _no_table(self) -> PermanentError:
        return PermanentError(
            f"the error sink's table {'.'.join(self._sink.identifier)} does not exist: create it, "
            "or set autoCreateTable: true"
        )


def _change(files: Sequence[DataFile]) -> Change:
    commit_id = uuid.uuid4().hex
    text = json.dumps({"commit": commit_id})
    return Change(_PROPERTY, lambda _: text, commit_id, files)


def _layout(sink: TableSinkOptions, table: Table) -> list[str]:
    """The columns that are filled. Raises PermanentError where error records do not fit."""
    create_table.check(table)
    known = {field.name: field for field in row_schema(table.schema())}
    fits = {name for name, field in known.items() if field.type == _FILLED.get(name)}
    apart = {"error", "original_message"}
    wanted = {"data"} if sink.raw_mode or not apart <= fits else apart
    if not wanted <= fits:
        raise _unfit(sink, f"it has the columns {', '.join(known)}")
    filled = fits - ({"data", *apart} - wanted)
    if needed := [n for n, field in known.items() if not field.nullable and n not in filled]:
        raise _unfit(sink, f"nothing fills its required columns {', '.join(needed)}")
    return sorted(filled)


def _unfit(sink: TableSinkOptions, why: str) -> PermanentError:
    wanted = "data" if sink.raw_mode else "error and original_message, or data"
    return PermanentError(
        f"the error sink's table {'.'.join(sink.identifier)} cannot take error records: {why}; it "
        f"needs {wanted} of type string, and no other required column: alter it, or name a new "
        "table and set autoCreateTable: true"
    )


def _known(table: Table, wanted: Mapping[str, ErrorRecord], names: Sequence[str]) -> Iterator[str]:
    """The ids that stand in the table in this reading; those of one slice lie close together."""
    least, most = literal(min(wanted)), literal(max(wanted))
    between = And(
        GreaterThanOrEqual(term=_REFERENCE, value=least),
        LessThanOrEqual(term=_REFERENCE, value=most),
    )
    fields = [name for name in ("id", "reading") if name in names]
    found = table.scan(row_filter=between, selected_fields=tuple(fields)).to_arrow().to_pylist()
    yield from {
        row["id"]
        for row in found
        if row["id"] in wanted
        and ("reading" not in row or wanted[row["id"]].reading <= (row["reading"] or 0))
    }


def _waits(
    row: Mapping[str, Any], parts: Sequence[str], flow: str, since: datetime | None
) -> tuple[datetime, Entry] | None:
    """A row read back, with the time of its rejection; None for somebody else's or a held one."""
    texts = [row[name] for name in parts]
    if None in texts:
        return None
    whole = "data" in parts
    body = texts[0] if whole else f'{{"error":{texts[0]},"original_message":{texts[1]}}}'
    try:
        told = decode_json(body, _Told).error
        at, found = entry(body)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return None
    waits = told.flow == flow and not found.id.endswith(HELD)
    return (at, found) if waits and (since is None or at >= since) else None


class _Origin(msgspec.Struct):
    flow: str


class _Told(msgspec.Struct):
    error: _Origin


class _Body(msgspec.Struct):
    error: msgspec.Raw
    original_message: msgspec.Raw


def _row(record: ErrorRecord) -> dict[str, Any]:
    body = decode_json(record.body, _Body)
    return {
        "id": record.id,
        "flow": record.flow,
        "error": bytes(body.error).decode(),
        "original_message": bytes(body.original_message).decode(),
        "data": record.body.decode(),
        "_metadata": record.metadata.decode(),
        "rejected_at": utc_now(),
        "reading": record.reading,
    }
