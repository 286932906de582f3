"""Records made of changes: the row with facts of its change, or Debezium's envelope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.connectors.postgresql.cdc.layout import CdcLayout
from dataflow_assets.contracts import (
    DELETE,
    INSERT,
    OP,
    UPDATE,
    Kind,
    Note,
    metadata_column,
    system_name,
)
from dataflow_assets.formats.rows import objects, unfit_values
from dataflow_assets.sdk.free_names import free_stem
from dataflow_assets.sdk.place import constant, with_place

PAYLOAD = Kind.JSON.field("payload")
UNLOGGED = pa.field(system_name("unlogged"), pa.string(), metadata={Note.LACKS: b"1"})
"""Of each row why values of it are not known; null where all are."""
OPERATION = metadata_column("operation", pa.string())
_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
_CODES = {INSERT: "c", UPDATE: "u", DELETE: "d"}
_SNAPSHOT, _TRUNCATE = "r", "t"
_NULL = msgspec.Raw(b"null")
_UNIX = 946_684_800_000_000  # 2000, in microseconds since 1970


class CdcTransaction(msgspec.Struct, frozen=True, gc=False):
    """A transaction of the log; of a snapshot's rows only `lsn` is known.

    `committed`: microseconds since 2000.
    """

    lsn: str
    xid: int | None = None
    committed: int | None = None


@dataclass(frozen=True)
class Records:
    """Rows of one table, in their order, and what is known about each of them."""

    layout: CdcLayout
    rows: pa.RecordBatch
    """The columns that are read; OP, and ABSENT where a value is not known."""
    transactions: Sequence[CdcTransaction]
    of: npt.NDArray[np.int64]
    """Of each row the index of its transaction."""
    number: pa.Array | None = None
    """Of each row which change of its table it is in its transaction; None: of a snapshot."""
    before: Mapping[int, bytes] = field(default_factory=dict)
    """The old row of those that were updated, where it is known, as JSON."""

    @property
    def in_snapshot(self) -> bool:
        return self.number is None

    def each(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        """A value of each transaction, for each row."""
        return pa.array(values, kind).take(pa.array(self.of))


def delivery(
    records: Records, wanted: frozenset[str], id_column: str, *, debezium: bool
) -> pa.RecordBatch:
    """The batch that a task delivers.

    Args:
        records: of one table.
        wanted: the metadata that somebody reads.
        id_column: whose value is the metadata `id`.
        debezium: an envelope instead of the table's columns.
    """
    batch = _envelopes(records) if debezium else records.rows
    for column, array in _metadata(records, wanted, id_column):
        batch = batch.append_column(column, array)
    place = _place(records)
    return with_place(batch, place) if place else batch


def empty(layout: CdcLayout, *, debezium: bool) -> pa.RecordBatch:
    fields = [PAYLOAD] if debezium else [column.field for column in layout.read]
    return pa.RecordBatch.from_pylist([], pa.schema(fields))


def truncation(
    layout: CdcLayout, transaction: CdcTransaction, number: int, wanted: frozenset[str]
) -> pa.RecordBatch:
    """That a table was emptied, as a record of Debezium's envelope."""
    only_op = pa.record_batch({OP: pa.array([INSERT], pa.int8())})
    one = np.zeros(1, np.int64)
    records = Records(layout, only_op, [transaction], one, pa.array([number]))
    payload = _payload(_NULL, _NULL, _TRUNCATE, records, 0)
    batch = pa.RecordBatch.from_arrays([pa.array([payload])], schema=pa.schema([PAYLOAD]))
    for column, array in _metadata(records, wanted, ""):
        is_operation = column.name == OPERATION.name
        batch = batch.append_column(column, pa.array(["truncate"]) if is_operation else array)
    return with_place(batch, _place(records))


def operations(codes: pa.Array) -> pa.Array:
    return pa.array([_NAMES[code] for code in sorted(_NAMES)]).take(codes.cast(pa.int32()))


def _metadata(
    records: Records, wanted: frozenset[str], id_column: str
) -> list[tuple[pa.Field, pa.Array]]:
    transactions, rows = records.transactions, records.rows
    times = [None if t.committed is None else t.committed + _UNIX for t in transactions]
    columns = {
        "lsn": lambda: records.each([one.lsn or None for one in transactions], pa.string()),
        "xid": lambda: records.each([one.xid for one in transactions], pa.int64()),
        "committed_at": lambda: records.each(times, pa.timestamp("us", "UTC")),
        "table": lambda: pa.array([records.layout.name] * rows.num_rows, pa.string()),
        "operation": lambda: operations(rows.column(OP)),
    }
    fields = []
    for name in sorted(wanted & columns.keys()):
        array = columns[name]()
        fields.append((metadata_column(name, array.type), array))
    at = rows.schema.get_field_index(id_column)
    if "id" in wanted and at >= 0:
        column = rows.schema.field(at)
        marked = metadata_column("id", column.type, column.metadata)
        fields.append((marked, rows.column(at)))
    return fields


def _place(records: Records) -> dict[str, pa.Array]:
    count = len(records.of)
    table = constant(records.layout.name, count)
    if records.number is not None:
        lsn = records.each([one.lsn for one in records.transactions], pa.string())
        return {"table": table, "lsn": lsn, "change": records.number}
    names = records.rows.schema.names
    if not records.layout.key or not set(records.layout.key) <= set(names):
        return {}
    unfit = unfit_values(records.rows).values()
    if not all(set(records.layout.key).isdisjoint(one) for one in unfit):
        return {}  # null stands for all such keys
    key = {name: records.rows.column(name) for name in records.layout.key}
    # Ids of rejected records are made of these names: only a key of that very name has another.
    return {free_stem(key, "table") if "table" in key else "table": table, **key}


def _envelopes(records: Records) -> pa.RecordBatch:
    """Each change as an event: none of them is an update or a deletion of another record."""
    images = map(msgspec.Raw, objects(records.rows))
    codes = records.rows.column(OP).to_pylist()
    payloads = []
    for row, (image, code) in enumerate(zip(images, codes, strict=True)):
        before = msgspec.Raw(records.before[row]) if row in records.before else _NULL
        pair = (image, _NULL) if code == DELETE else (before, image)
        op = _SNAPSHOT if records.in_snapshot else _CODES[code]
        payloads.append(_payload(*pair, op, records, row))
    arrays, fields = [pa.array(payloads, pa.string())], [PAYLOAD]
    if UNLOGGED.name in records.rows.schema.names:
        arrays.append(records.rows.column(UNLOGGED.name))
        fields.append(UNLOGGED)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _payload(before: msgspec.Raw, after: msgspec.Raw, op: str, records: Records, row: int) -> str:
    transaction = records.transactions[records.of[row]]
    schema, table = records.layout.place
    source = {"schema": schema, "table": table, "lsn": transaction.lsn}
    if transaction.committed is not None:
        source |= {"txId": transaction.xid, "ts_us": transaction.committed + _UNIX}
    payload = {"before": before, "after": after, "op": op, "source": source}
    return msgspec.json.encode(payload).decode()
