"""Records become parts of the spool, in one sequence for all tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.kafka_connect.host.protocol import Order
from dataflow_assets.connectors.kafka_connect.spool import SCHEMA, Offsets, Part, Spool, canonical
from dataflow_assets.failpoints import reach


class Sealer:
    """Gives parts their numbers. Used by the threads of all tasks."""

    def __init__(self, spool: Spool, last: int, order: Order) -> None:
        self.seconds = order.part_seconds
        self._spool, self._last, self._order = spool, last, order
        self._lock = threading.Lock()
        self._sealed = spool.size
        """Bytes of parts, some of which may be forgotten by now."""

    def has_room(self) -> bool:
        """Whether more records may wait."""
        if self._sealed > self._order.spool_bytes:
            self._sealed = self._spool.size
        return self._sealed <= self._order.spool_bytes

    def full(self, batches: Sequence[pa.RecordBatch]) -> bool:
        """Whether these records are a part, however young they are."""
        rows: int = sum(batch.num_rows for batch in batches)
        size: int = sum(batch.nbytes for batch in batches)
        return rows >= self._order.part_rows or size >= self._order.part_bytes

    def seal(self, task: int, rows: pa.Table, offsets: Offsets) -> None:
        """Durable when it returns."""
        with self._lock:
            part = Part(self._last + 1, task, rows.num_rows, rows.nbytes)
            reach("connect.sealing")
            self._spool.seal(part, rows, offsets)
            reach("connect.sealed")
            self._last = part.number
            self._sealed += part.bytes


def rows_of(table: pa.Table) -> pa.Table:
    """The columns of a part; a record without a key has its place in the source as id."""
    ids = table["key"]
    if ids.null_count:
        columns = (table[name].to_pylist() for name in ("key", "partition", "offset"))
        ids = pa.chunked_array([pa.array(list(_ids(zip(*columns, strict=True))), pa.string())])
    return pa.Table.from_arrays([table["topic"], ids, table["value"]], schema=SCHEMA)


def offsets_of(table: pa.Table) -> dict[str, Any]:
    """By the source partition the last offset; records without one leave it as it was."""
    last = dict(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    return {
        canonical(msgspec.json.decode(partition)): msgspec.json.decode(offset)
        for partition, offset in last.items()
        if partition is not None and offset is not None
    }


def _ids(rows: Any) -> Iterator[str]:
    for key, partition, offset in rows:
        yield key if key is not None else _merged(partition, offset)


def _merged(*objects: str | None) -> str:
    """Objects as one, as text: they have no names in common."""
    inner = [one[1:-1] for one in objects if one is not None and one != "{}"]
    return "{" + ",".join(inner) + "}"
