"""The driver's side of the sources: bounds are fixed first, then it says what to read."""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.memory.options import MemorySourceOptions
from dataflow_assets.connectors.memory.source.read import DDL, ReadSlices, read_messages, read_rows
from dataflow_assets.connectors.memory.store import Store
from dataflow_assets.contracts import (
    Lag,
    Limit,
    OffsetSlice,
    PartSlice,
    Position,
    Positions,
    SourceSession,
    Span,
    fold_parts,
)
from dataflow_assets.contracts.capabilities import ReplansParts
from dataflow_assets.contracts.looking import Peeks
from dataflow_assets.contracts.reading import SparkFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTS = 3  # of a span of the table


def current_identity(source: MemorySourceOptions) -> str:
    """The id of the topic; its name as long as nobody has given it one."""
    return Store(source.store).identity(f"topic {source.topic}") or source.topic


class _StoreSession(SourceSession, ABC):
    def __init__(self, source: MemorySourceOptions) -> None:
        self.source = source
        self.store = Store(source.store)
        self.store.create()

    @property
    def identity(self) -> str:
        return current_identity(self.source)

    def acknowledge(self, upto: Positions) -> None:
        self.store.identify(f"released {self.source.topic}", json.dumps(dict(upto)))

    def lag(self, after: Positions) -> Lag:
        ends = self.end()
        records = sum(int(end) - int(after.get(name, 0)) for name, end in ends.items())
        return Lag(records, float(records > 0), ends)


class MemoryOffsetSession(_StoreSession, Peeks, SparkFrames):
    """A topic: one offset slice for each partition."""

    def __init__(self, source: MemorySourceOptions, partitions: int) -> None:
        super().__init__(source)
        self._begin = {str(number): 0 for number in range(partitions)}

    @override
    def start(self, where: str | None = None) -> Positions:
        return self.end() if where == "latest" else self._begin

    @override
    def end(self) -> Positions:
        sql = 'select partition, max("offset") + 1 from messages where topic = ? group by 1'
        ends = self.store.query(sql, self.source.topic)
        return {**self._begin, **{str(partition): int(end) for partition, end in ends}}

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        ends = self.end()
        slices, full = [], False
        for partition in sorted(ends, key=int):
            start = int(after.get(partition, 0))
            end = max(start, min(int(ends[partition]), int((until or ends).get(partition, start))))
            full = full or end - start > limit.records
            slices.append(OffsetSlice(partition, start, min(end, start + limit.records)))
        return Span(tuple(slices), full)

    @override
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        slices = len(span.slices)
        frame = spark.range(0, slices, 1, slices).mapInArrow(ReadSlices(self.source, span), DDL)
        return frame.select("_at", "body", *sorted(columns))

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        starts = {partition: int(after.get(partition, 0)) for partition in self._begin}
        return {p: read_messages(self.source, p, at, at + limit) for p, at in starts.items()}


class MemoryPartSession(_StoreSession, Peeks, ReplansParts):
    """A table: its one position is the id behind the last row read, as text."""

    @override
    def start(self, where: str | None = None) -> Positions:
        return self.end() if where == "latest" else {"table": "0"}

    @override
    def end(self) -> Positions:
        sql = 'select coalesce(max("offset") + 1, 0) from messages where topic = ?'
        return {"table": str(self.store.query(sql, self.source.topic)[0][0])}

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        low, high = int(after.get("table", "0")), int((until or self.end())["table"])
        upto = min(high, low + limit.records)
        step = max(1, -(-(upto - low) // _PARTS))
        return Span.of_parts(str(upto), _borders(low, upto, step), full=upto < high)

    @override
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        low, high = json.loads(piece.part)
        return _borders(low, high, limit.records)

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        low = int(after.get("table", "0"))
        return {"table": read_rows(self.source, low, low + limit)}

    @override
    def lags(self, partition: str, position: Position | None, end: Position) -> bool:
        return int(position or 0) < int(end)

    @override
    def fold(self, positions: Positions) -> Positions:
        return {"table": fold_parts(positions, "table") or "0"}


def _borders(low: int, high: int, step: int) -> Sequence[str]:
    return [json.dumps([at, min(at + step, high)]) for at in range(low, high, step)]
