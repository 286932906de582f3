"""Records become parts of the spool, in one sequence for all tasks."""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.kafka_connect.host import resuming
from dataflow_assets.connectors.kafka_connect.host.protocol import ConnectOrder
from dataflow_assets.connectors.kafka_connect.parts import ConnectPart
from dataflow_assets.connectors.kafka_connect.spool import (
    SCHEMA,
    ConnectOffset,
    Offsets,
    Spool,
    canonical,
)
from dataflow_assets.errors import TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.records.decoding import decode_json


class Sealer:
    """Gives parts their numbers. Used by the threads of all tasks.

    `last`: number of the last part that is there. `known`: the offsets behind all parts.
    """

    def __init__(self, spool: Spool, last: int, known: Offsets, order: ConnectOrder) -> None:
        self.seconds = order.part_seconds
        self._spool, self._last, self._order = spool, last, order
        self.known = dict(known)
        self._lock, self._token = threading.Lock(), uuid.uuid4().hex[:8]
        self._sealed = spool.size
        """Bytes of parts, some of which may be forgotten by now."""
        self._failed = ""
        self._open = defaultdict[int, set[str]](set)
        """By the task the source partitions behind whose last record it cannot go on: nothing that
        the task delivers is read before it can go on behind all of them."""

    def has_room(self) -> bool:
        if self._sealed > self._order.spool_bytes:
            self._sealed = self._spool.size
        return any(self._open.values()) or self._sealed <= self._order.spool_bytes

    def is_open(self, task: int) -> bool:
        """Returns whether a task cannot go on behind what it has delivered last."""
        return bool(self._open[task])

    def full(self, batches: Sequence[pa.RecordBatch]) -> bool:
        """Returns whether these records are a part, however young they are."""
        rows: int = sum(batch.num_rows for batch in batches)
        size: int = sum(batch.nbytes for batch in batches)
        return rows >= self._order.part_rows or size >= self._order.part_bytes

    def may_be_cut(self, batches: Sequence[pa.RecordBatch]) -> bool:
        """Returns whether a task must not be asked to go on behind these records yet."""
        filled = [batch for batch in batches if batch.num_rows]
        if not filled:
            return False
        partition, first, last = (
            batch.column(name)[at].as_py()
            for batch, name, at in (
                (filled[-1], "partition", -1),
                (filled[0], "offset", 0),
                (filled[-1], "offset", -1),
            )
        )
        if None in (partition, first, last):
            return False
        offset = self.known.get(canonical(msgspec.json.decode(partition)))
        return resuming.may_be_cut(msgspec.json.decode(first), msgspec.json.decode(last), offset)

    def seal(self, task: int, delivered: pa.Table) -> None:
        """Stores what a task has delivered, with all columns; it is durable when this returns.

        Raises:
            TransientError: the spool cannot be written. Whether the part is there the next process
                finds out: this one seals nothing more.
        """
        rows = rows_of(delivered)
        with self._lock:
            if self._failed:
                raise TransientError(self._failed)
            offsets = offsets_of(delivered, task, self.known)
            still_open = self._open[task] - offsets.keys() | _not_resumable(offsets)
            part = ConnectPart(
                self._last + 1, task, rows.num_rows, rows.nbytes, bool(still_open), self._token
            )
            reach("connect.sealing")
            self._store(part, rows, offsets)
            reach("connect.sealed")
            self._last, self._sealed = part.number, self._sealed + part.bytes
            self.known |= offsets
            self._open[task] = still_open

    def _store(self, part: ConnectPart, rows: pa.Table, offsets: Offsets) -> None:
        try:
            order = self._order
            self._spool.seal(part, rows, offsets, plain=order.plain, schemas=order.schemas)
        except OSError as error:
            self._failed = (
                f"the spool {self._spool.folder} cannot be written ({error.strerror or error}): "
                "check the disk's space and rights; nothing is lost, the connector delivers again "
                "what was not stored"
            )
            raise TransientError(self._failed) from None


def rows_of(table: pa.Table) -> pa.Table:
    """The columns of a part; a record without a key has its place in the source as id.

    What a transformation has dropped is left out.
    """
    table = table.filter(table["dropped"].is_null())
    ids = table["key"]
    if ids.null_count:
        places = (table[name].to_pylist() for name in ("key", "partition", "offset"))
        ids = pa.chunked_array([pa.array(list(_ids(zip(*places, strict=True))), pa.string())])
    columns = [table["topic"], ids, table["value"], _reasons(table)]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _reasons(table: pa.Table) -> pa.ChunkedArray:
    """Why records were refused, and where they are in the source."""
    why = table["refused"]
    if why.null_count == len(why):
        return why
    partition, offset = (pc.fill_null(table[name], "none") for name in ("partition", "offset"))
    return pc.binary_join_element_wise(
        why, pa.scalar("; source partition "), partition, pa.scalar(", offset "), offset, ""
    )


def offsets_of(table: pa.Table, task: int, known: Offsets) -> dict[str, ConnectOffset]:
    """The last offset of each source partition; records without one leave it as it was.

    `known`: the offsets before the records.
    """
    texts, keys = defaultdict[str, list[str]](list), dict[str, str]()
    columns = (table[name].to_pylist() for name in ("partition", "offset"))
    for partition, offset in zip(*columns, strict=True):
        if partition is not None and offset is not None:
            if partition not in keys:
                keys[partition] = canonical(msgspec.json.decode(partition))
            texts[keys[partition]].append(offset)
    return {key: resuming.after(after, task, known.get(key)) for key, after in texts.items()}


def _not_resumable(offsets: Offsets) -> set[str]:
    return {key for key, one in offsets.items() if not resuming.resumable(one.last)}


def _ids(rows: Any) -> Iterator[str]:
    for key, partition, offset in rows:
        yield key if key is not None else _merge(partition, offset)


def _merge(partition: str | None, offset: str | None) -> str:
    """Both objects as one, as text; one inside the other where a name is in both of them."""
    if partition is not None and offset is not None and _names(partition) & _names(offset):
        return f'{{"partition":{partition},"offset":{offset}}}'
    inner = [one[1:-1] for one in (partition, offset) if one is not None and one != "{}"]
    return "{" + ",".join(inner) + "}"


def _names(text: str) -> set[str]:
    return set(decode_json(text, dict[str, msgspec.Raw]))
