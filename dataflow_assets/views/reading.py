"""One slice of messages as what the first tables of a view see of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dataflow_assets.contracts import Asked, OffsetSlice, Source
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.micro_batch.formatted import in_json
from dataflow_assets.micro_batch.message_metadata import Rows, wanted
from dataflow_assets.records.record import Record, parse
from dataflow_assets.sql.function import Environment
from dataflow_assets.sql.plan import KEY
from dataflow_assets.sql.view import Arrivals, ViewPlan
from dataflow_assets.views.hops import Change
from dataflow_assets.views.output import REFUSED, Row

_TIME = "timestamp"


@dataclass
class Read:
    """What came of a slice."""

    changes: list[Change] = field(default_factory=list)
    refused: list[Row] = field(default_factory=list)
    records: int = 0


@dataclass(frozen=True)
class Reader:
    """Reads slices of one source for a view; sent to the tasks."""

    source: Source
    identity: str
    view: ViewPlan
    environment: Environment

    def asked(self, piece: OffsetSlice) -> Asked:
        """The slice by itself."""
        columns = wanted(self.source, self.view.reads())
        return Asked(self.source, self.identity, piece, columns, 0, 1)

    def together(self, pieces: Iterable[OffsetSlice]) -> Iterator[Read]:
        """Each of the slices, in any order. Raises what is wrong with one of them."""
        asked = [self.asked(piece) for piece in pieces if not piece.empty]
        if asked:
            for at, batches in type(self.source).messages_together(asked):
                yield self.read(asked[at].piece, batches)

    def read(self, piece: OffsetSlice, batches: Iterable[pa.RecordBatch]) -> Read:
        """What the messages of a slice come to, those that are equal counted together."""
        rows = Rows(self.source, piece, 1, self.view.columns())
        taking = _Taking(Arrivals(self.view, self.environment))
        form, keys = self.source.message_format(), KEY in self.view.reads()
        for batch in batches:
            as_json, unreadable = in_json(batch, form, keys=keys)
            offsets, times = rows.offsets(batch).tolist(), _times(batch)
            for at, (raw, metadata) in enumerate(rows.records(as_json)):
                try:
                    taking.take(raw, metadata, times[at], unreadable.get(at))
                except RejectedRecord as error:
                    body = batch.column("body")[at].as_py()
                    taking.refuse(body, {**metadata, "offset": offsets[at]}, error.reason)
        return taking.found()


class _Taking:
    """Collects the rows of a slice: of each key the last, else how often each comes."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals, self._read = arrivals, Read()
        self._latest: dict[bytes, tuple[bytes | None, int]] = {}
        self._counted: dict[bytes, int] = {}

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
        arrived = self._arrived(Record(parse(raw), metadata))
        if arrived is None:
            return
        key, row = arrived
        if key is not None:
            self._latest[key] = row, time
        elif row is not None:
            self._counted[row] = self._counted.get(row, 0) + 1

    def _arrived(self, record: Record) -> tuple[bytes | None, bytes | None] | None:
        try:
            return self._arrivals(record)
        except RejectedRecord:
            raise
        except Exception as error:  # as with steps: it never loses the record
            reason = f"{type(error).__name__}: the query cannot handle this record"
            raise RejectedRecord("step", reason) from error

    def refuse(self, body: bytes | None, metadata: Mapping[str, Any], reason: str) -> None:
        """Keeps a record that cannot be read, with its place."""
        place = {name: metadata.get(name) for name in ("topic", "partition", "offset")}
        self._read.refused.append(Row(body, REFUSED, reason, **place, key=metadata.get(KEY)))

    def found(self) -> Read:
        """All of the slice."""
        latest = [Change(key, row, at) for key, (row, at) in self._latest.items()]
        counted = [Change(b"", row, times) for row, times in self._counted.items()]
        self._read.changes = latest or counted
        return self._read


def _times(batch: pa.RecordBatch) -> list[int]:
    """Of each record, in milliseconds."""
    if _TIME not in batch.schema.names:
        return [0] * batch.num_rows
    times = batch.column(_TIME).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    found: list[int] = times.fill_null(0).to_pylist()
    return found
