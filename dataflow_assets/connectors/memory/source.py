"""In-memory sources: messages in offset slices, and a typed table read in parts."""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from dataflow_assets.connectors.memory.store import Store
from dataflow_assets.contracts import (
    Address,
    Lag,
    Limit,
    MessageSource,
    OffsetSlice,
    PartSlice,
    Position,
    Positions,
    Slice,
    Source,
    SourceSession,
    Span,
    folded,
)
from dataflow_assets.errors import TransientError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MESSAGES = pa.schema([("_at", pa.int64()), ("body", pa.binary()), ("key", pa.binary())])
_DDL = "_at bigint, body binary, key binary"


class _MemorySource(Source):
    reads_back: ClassVar[bool] = False  # topics and tables of one name are two things in a store
    store: str
    """Name of the store."""
    topic: str
    """Topic or table inside the store."""

    def address(self) -> Address:
        """memory, store, topic."""
        return Address("memory", self.store, None, self.topic)


class MemoryOffsetSource(_MemorySource, MessageSource):
    """A topic with integer offsets; `partitions` of them."""

    type: ClassVar[str] = "memory-offsets"
    continuous: ClassVar[bool] = True
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"key"})
    partitions: int = 2

    def metadata(self, piece: Slice) -> dict[str, Any]:
        """Topic and partition."""
        return {"topic": self.topic, "partition": int(piece.partition)}

    def open(self, flow: str) -> SourceSession:  # noqa: ARG002 - no server keeps anything by flow
        """Opens the store."""
        return _OffsetSession(self)

    def confirm(self, identity: str) -> None:
        """Looks the topic up again."""
        if _identity(self) != identity:
            raise TransientError(f"topic {self.topic} was made anew while it was read")


def _identity(source: _MemorySource) -> str:
    return Store(source.store).identity(f"topic {source.topic}") or source.topic


class _StoreSession(SourceSession, ABC):
    def __init__(self, source: _MemorySource) -> None:
        self.source = source
        self.store = Store(source.store)
        self.store.create()

    @property
    def identity(self) -> str:
        return _identity(self.source)

    def release(self, upto: Positions) -> None:
        self.store.identify(f"released {self.source.topic}", json.dumps(dict(upto)))

    def close(self) -> None:
        pass


class _OffsetSession(_StoreSession):
    source: MemoryOffsetSource

    def start(self) -> Positions:
        return self.seek("earliest")

    def seek(self, where: str) -> Positions:
        if where == "latest":
            return self.ends()
        return {str(number): 0 for number in range(self.source.partitions)}

    def ends(self) -> Positions:
        sql = 'select partition, max("offset") + 1 from messages where topic = ? group by 1'
        found = {str(p): int(end) for p, end in self.store.query(sql, self.source.topic)}
        return {**self.seek("earliest"), **found}

    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        ends = self.ends()
        slices, full = [], False
        for partition in sorted(ends, key=int):
            start = int(after.get(partition, 0))
            end = max(start, min(int(ends[partition]), int((until or ends).get(partition, start))))
            full = full or end - start > limit.records
            slices.append(OffsetSlice(partition, start, min(end, start + limit.records)))
        return Span(tuple(slices), full)

    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        slices = len(span.slices)
        frame = spark.range(0, slices, 1, slices).mapInArrow(_Read(self.source, span), _DDL)
        return frame.select("_at", "body", *sorted(columns))

    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        starts = {p: int(after.get(p, 0)) for p in self.seek("earliest")}
        return {p: self._first(p, start, limit) for p, start in starts.items()}

    def _first(self, partition: str, after: int, limit: int) -> pa.RecordBatch:
        sql = (
            'select "offset", body, key from messages where topic = ? and partition = ? '
            'and "offset" >= ? order by "offset" limit ?'
        )
        found = self.store.query(sql, self.source.topic, int(partition), after, limit)
        names = _MESSAGES.names
        rows = [dict(zip(names, row, strict=True)) for row in found]
        return pa.RecordBatch.from_pylist(rows, _MESSAGES)

    def lag(self, after: Positions) -> Lag:
        ends = self.ends()
        records = sum(int(end) - int(after.get(p, 0)) for p, end in ends.items())
        return Lag(records, float(records > 0), ends)


@dataclass(frozen=True)
class _Read:
    """Reads the messages of the slices named by `id`."""

    source: MemoryOffsetSource
    span: Span

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = Store(self.source.store)
        for index in (index for batch in batches for index in batch.column("id").to_pylist()):
            piece = self.span.slices[index]
            sql = (
                'select "offset", body, key from messages where topic = ? and partition = ? '
                'and "offset" >= ? and "offset" < ? order by "offset"'
            )
            found = store.query(
                sql, self.source.topic, int(piece.partition), piece.after, piece.upto
            )
            at = [offset * len(self.span.slices) + index for offset, _, _ in found]
            columns = [at, [row[1] for row in found], [row[2] for row in found]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(c, f.type) for c, f in zip(columns, _MESSAGES, strict=True)],
                schema=_MESSAGES,
            )


class MemoryPartSource(_MemorySource):
    """A table with columns `id` and `name`, ids ascending; read in `parts` parts per span.

    Rows are the messages of partition 0: the offset is the id, the body the name.
    """

    type: ClassVar[str] = "memory-parts"
    delivers: ClassVar[Literal["messages", "columns"]] = "columns"
    parts: int = 3

    def open(self, flow: str) -> SourceSession:  # noqa: ARG002 - no server keeps anything by flow
        """Opens the store."""
        return _PartSession(self)

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - rows have none
        """The rows of one part."""
        assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
        yield _read(self, *json.loads(piece.part))


def _read(source: MemoryPartSource, low: int, high: int) -> pa.RecordBatch:
    sql = 'select "offset", body from messages where topic=? and "offset">=? and "offset"<?'
    found = Store(source.store).query(sql + " order by 1", source.topic, low, high)
    ids = pa.array([row[0] for row in found], pa.int64())
    names = pa.array([(row[1] or b"").decode() for row in found], pa.string())
    return pa.RecordBatch.from_arrays([ids, names], names=["id", "name"])


class _PartSession(_StoreSession):
    source: MemoryPartSource

    def start(self) -> Positions:
        return {"table": "0"}

    def seek(self, where: str) -> Positions:
        return self.ends() if where == "latest" else self.start()

    def ends(self) -> Positions:
        sql = 'select coalesce(max("offset") + 1, 0) from messages where topic = ?'
        return {"table": str(self.store.query(sql, self.source.topic)[0][0])}

    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        low, high = int(after.get("table", "0")), int((until or self.ends())["table"])
        high = min(high, low + limit.records)
        step = max(1, -(-(high - low) // self.source.parts))
        borders = [(n, min(n + step, high)) for n in range(low, high, step)]
        return Span.of_parts(str(high), map(json.dumps, borders))

    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        low, high = json.loads(piece.part)
        step = limit.records
        return [json.dumps([n, min(n + step, high)]) for n in range(low, high, step)]

    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        raise NotImplementedError("this source delivers columns")

    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        low = int(after.get("table", "0"))
        return {"table": _read(self.source, low, low + limit)}

    def behind(self, partition: str, position: Position | None, end: Position) -> bool:  # noqa: ARG002 - there is one
        return int(position or 0) < int(end)

    def fold(self, positions: Positions) -> Positions:
        return {"table": folded(positions, "table") or "0"}

    def lag(self, after: Positions) -> Lag:
        ends = self.ends()
        records = int(ends["table"]) - int(after.get("table", "0"))
        return Lag(records, float(records > 0), ends)
