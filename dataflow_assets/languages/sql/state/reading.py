"""One slice of messages as what the first tables of a view see of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kafka.source.source import KafkaSource
from dataflow_assets.contracts import OffsetSlice
from dataflow_assets.contracts.reading import Asked
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.arrivals import Arrivals
from dataflow_assets.languages.sql.engine.changes import NONE, changes
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.input import FlinkMessages
from dataflow_assets.languages.sql.engine.plan import KEY
from dataflow_assets.languages.sql.engine.united import TableRows
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.engine.window_rows import WindowArrivals
from dataflow_assets.languages.sql.state.output import REFUSED, OutputRow
from dataflow_assets.languages.sql.state.united import identities, of_table
from dataflow_assets.micro_batch.formatted import in_json
from dataflow_assets.micro_batch.message_metadata import MetadataRows, metadata_to_read
from dataflow_assets.records.record import Record, parse

_TIME = "timestamp"
TOGETHER = 4_096
"""Messages that are read at once; with one among them that cannot be read, one by one."""


@dataclass
class StateRead:
    """The result of a slice."""

    changes: pa.Table = field(default_factory=lambda: NONE)
    refused: list[OutputRow] = field(default_factory=list)
    records: int = 0
    late: int = 0
    """Rows that came when all of their windows were final."""
    moment: int | None = None
    """The latest watermark of the rows, in milliseconds."""


@dataclass(frozen=True)
class ViewReader:
    """Reads slices of messages for a view; sent to the tasks."""

    source: KafkaSource
    identity: str
    view: ViewPlan
    environment: Environment
    reached: int | None = None
    """The watermark in front of the micro-batch."""
    others: tuple[KafkaSource, ...] = ()
    """Of the other tables of a UNION ALL."""

    def ask(self, piece: OffsetSlice) -> Asked:
        number, partition = of_table(piece.partition)
        source, table = self._sources[number], self.view.tables[number]
        columns = metadata_to_read(source, self.view.reads(table))
        own = replace(piece, partition=partition)
        return Asked(source, identities(self.identity)[number], own, columns, 0, 1)

    @property
    def _sources(self) -> tuple[KafkaSource, ...]:
        return (self.source, *self.others)

    def together(self, pieces: Iterable[OffsetSlice]) -> Iterator[tuple[OffsetSlice, StateRead]]:
        """Each of the slices, in any order. Raises what is wrong with one of them."""
        by_table: dict[int, list[OffsetSlice]] = {}
        for piece in pieces:
            if not piece.empty:
                by_table.setdefault(of_table(piece.partition)[0], []).append(piece)
        for some in by_table.values():
            questions = [self.ask(piece) for piece in some]
            for at, batches in type(self.source).messages_together(questions):
                yield some[at], self.read(some[at], batches)

    def read(self, piece: OffsetSlice, batches: Iterable[pa.RecordBatch]) -> StateRead:
        """Returns what the messages of a slice come to, those that are equal counted together."""
        number, partition = of_table(piece.partition)
        source, table = self._sources[number], self.view.tables[number]
        rows = MetadataRows(source, replace(piece, partition=partition), 1, table.metadata())
        taking = self._taking(table)
        form, keys = source.message_format(), KEY in self.view.reads(table)
        for batch in batches:
            as_json, unreadable = in_json(batch, form, keys=keys)
            for first in range(0, batch.num_rows, TOGETHER):
                some, last = as_json.slice(first, TOGETHER), first + TOGETHER
                bad = {at - first: why for at, why in unreadable.items() if first <= at < last}
                if bad or not taking.take_all(some, rows):
                    _one_by_one(taking, some, rows, bad, batch["body"].slice(first, TOGETHER))
        topics = identities(self.identity)
        before = topics[:number].count(topics[number])
        return taking.result(before + 1 if before else None)

    def _taking(self, table: TableRows) -> _Taking:
        if self.view.windows is None:
            return _KeyedRows(self.view, table, self.environment)
        return _WindowedRows(self.view, self.environment, self.reached)


def _one_by_one(
    taking: _Taking,
    messages: pa.RecordBatch,
    rows: MetadataRows,
    unreadable: Mapping[int, str],
    sent: pa.Array,
) -> None:
    """`sent`: the bodies as they were sent."""
    offsets, times = rows.offsets(messages).tolist(), _times(messages)
    for at, (raw, metadata) in enumerate(rows.records(messages)):
        try:
            taking.take(raw, metadata, times[at], unreadable.get(at))
        except RejectedRecord as error:
            taking.refuse(sent[at].as_py(), {**metadata, "offset": offsets[at]}, error.reason)


class _Taking(ABC):
    """Collects the rows of a slice."""

    def __init__(self, view: ViewPlan) -> None:
        self._view = view
        self._read = StateRead()
        self._counted: Counter[bytes] = Counter()
        self._latest: dict[bytes, bytes | None] = {}
        self._times: dict[bytes, int] = {}

    def take(
        self, raw: bytes | None, metadata: Mapping[str, Any], time: int, unreadable: str | None
    ) -> None:
        """Raises RejectedRecord.

        Args:
            raw: the body as JSON.
            metadata: what the query looks at.
            time: that the record carries, in milliseconds; 0 where it has none.
            unreadable: why the body is not there.
        """
        self._read.records += 1
        if unreadable is not None:
            raise RejectedRecord("decode", unreadable)
        record = Record(parse(raw), metadata)
        try:
            self._take(record, time)
        except RejectedRecord:
            raise
        except Exception as error:  # as with steps: it never loses the record
            reason = f"{type(error).__name__}: the query cannot handle this record"
            raise RejectedRecord("step", reason) from error

    def take_all(self, messages: pa.RecordBatch, rows: MetadataRows) -> bool:  # noqa: ARG002
        """Takes readable messages at once; False: it takes none of them.

        Args:
            messages: with bodies and keys as JSON.
            rows: reads their metadata.
        """
        return False

    @abstractmethod
    def _take(self, record: Record, time: int) -> None:
        """Keeps what comes of a record. Raises RejectedRecord."""

    def refuse(self, body: bytes | None, metadata: Mapping[str, Any], reason: str) -> None:
        """Keeps a record that cannot be read, with its place."""
        place = {name: metadata.get(name) for name in ("topic", "partition", "offset")}
        self._read.refused.append(OutputRow(body, REFUSED, reason, **place, key=metadata.get(KEY)))

    def result(self, table: int | None) -> StateRead:
        """All of the slice; `table`: as a row that is refused has it."""
        counted, latest = self._counted, self._latest
        rows, numbers = [*counted, *latest.values()], [*counted.values(), *self._times.values()]
        self._read.changes = changes([b""] * len(counted) + [*latest], rows, numbers)
        self._read.refused = [one._replace(table=table) for one in self._read.refused]
        return self._read

    def _replace(self, key: bytes, seen: Sequence[bytes], time: int) -> None:
        self._latest[key], self._times[key] = self._view.keep(seen), time


def _messages(batch: pa.RecordBatch, rows: MetadataRows) -> FlinkMessages:
    keys = batch["key"].to_pylist() if "key" in batch.schema.names else ()
    return FlinkMessages(
        batch["body"].to_pylist(), keys, lambda: [one for _, one in rows.records(batch)]
    )


def _times(batch: pa.RecordBatch) -> list[int]:
    if _TIME not in batch.schema.names:
        return [0] * batch.num_rows
    times = batch.column(_TIME).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    numbers: list[int] = times.fill_null(0).to_pylist()
    return numbers


class _KeyedRows(_Taking):
    """The last row of each key, or how often each row comes."""

    def __init__(self, view: ViewPlan, table: TableRows, environment: Environment) -> None:
        super().__init__(view)
        self._arrivals = Arrivals(view, table, environment)

    @override
    def take_all(self, messages: pa.RecordBatch, rows: MetadataRows) -> bool:
        try:
            arrived = self._arrivals.together(_messages(messages, rows))
        except Exception:  # noqa: BLE001 - which of them, and why, is found out one by one
            return False
        self._read.records += messages.num_rows
        if arrived.keys is None:
            self._counted.update(row for row in arrived.seen if row is not None)
            self._counted.subtract(row for row in arrived.gone if row is not None)
        else:
            times = _times(messages)
            if arrived.owners != range(len(times)):
                times = [times[at] for at in arrived.owners]
            self._latest.update(zip(arrived.keys, arrived.seen, strict=True))
            self._times.update(zip(arrived.keys, times, strict=True))
        return True

    @override
    def _take(self, record: Record, time: int) -> None:
        for arrived in self._arrivals(record):
            if arrived.key is not None:
                self._replace(arrived.key, arrived.rows, time)
            elif arrived.gone:
                self._counted.subtract(arrived.rows)
            else:
                self._counted.update(arrived.rows)


class _WindowedRows(_Taking):
    """Counts each row in each window, and follows how far their time has come."""

    def __init__(self, view: ViewPlan, environment: Environment, reached: int | None) -> None:
        super().__init__(view)
        self._arrivals = WindowArrivals(view, environment, reached)

    @override
    def _take(self, record: Record, time: int) -> None:
        for seen in self._arrivals(record):
            if seen.key is not None:
                self._replace(seen.key, seen.rows, time)
            else:
                self._counted.update(seen.rows)
            self._read.late += seen.late
            moments = [one for one in (self._read.moment, seen.watermark) if one is not None]
            self._read.moment = max(moments, default=None)
