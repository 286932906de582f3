"""A task's answer to the driver: receipts, a failure, notes, and where it has stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

import msgspec
import pyarrow as pa

from dataflow_assets.contracts import Chunk, Receipt
from dataflow_assets.micro_batch.task_failures import TaskFailure
from dataflow_assets.micro_batch.tasks import RESULT
from dataflow_assets.sdk.rejected_records import classify

Reason = tuple[str, str, str, str]
"""Of rejected records: stage, class of the error, type and index of the step."""


@dataclass(frozen=True)
class SliceCounts:
    """A task's count of one slice: records, seconds, and why records of it were rejected."""

    records: int
    bytes: int
    read: float
    transform: float
    write: float
    rejected: tuple[tuple[str, str, str, str, int], ...] = ()
    """Each `Reason` with how many it has met."""

    @property
    def seconds(self) -> float:
        return self.read + self.transform + self.write


@dataclass(frozen=True)
class Result:
    """A task's answer: one of the five."""

    receipt: Receipt | None = None
    failure: TaskFailure | None = None
    note: str | None = None
    cut: tuple[str, int] | None = None
    """Partition, and the offset before which the task has stopped: its slice was too large."""
    counts: SliceCounts | None = None
    of: int = 0
    """Which of the job's passes it is about."""


class SliceMeter:
    """Measures one slice, batch by batch: no row is looked at but those that were rejected."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self._records = self._bytes = 0
        self._read = self._write = 0.0
        self._rejected: Counter[Reason] = Counter()

    def reading(self, batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        """Yields the same batches and counts them; closed, it closes them."""
        source = iter(batches)
        try:
            while True:
                began = perf_counter()
                batch = next(source, None)
                self._read += perf_counter() - began
                if batch is None:
                    return
                self._records += batch.num_rows
                self._bytes += batch.nbytes
                yield batch
        finally:
            if isinstance(source, Generator):
                source.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        began = perf_counter()
        yield
        self._write += perf_counter() - began

    def refuse(self, chunk: Chunk) -> None:
        """Counts what of a chunk was rejected before it got to the writer."""
        for one in chunk.rejected:
            kind = one.error_type or classify(one.reason, one.stage)
            step = "" if one.step is None else str(one.step)
            self._rejected[one.stage, kind, one.step_type or "", step] += 1

    def counts(self, receipts: Sequence[Receipt]) -> SliceCounts:
        """Returns what was measured; the target has refused what else the receipts reject."""
        refused = sum(receipt.totals.rejected for receipt in receipts) - self._rejected.total()
        if refused > 0:
            self._rejected["sink", "refused", "", ""] += refused
        spent = perf_counter() - self._began - self._read - self._write
        return SliceCounts(
            self._records,
            self._bytes,
            self._read,
            max(0.0, spent),
            self._write,
            tuple((*reason, times) for reason, times in self._rejected.items()),
        )


@dataclass
class TaskReport:
    """A task's report beside its receipts."""

    notes: set[str] = field(default_factory=set)
    cuts: dict[str, int] = field(default_factory=dict)
    meter: SliceMeter = field(default_factory=SliceMeter)
    counts: list[SliceCounts] = field(default_factory=list)

    def results(self) -> Iterator[Result]:
        yield from (Result(note=note) for note in sorted(self.notes))
        yield from (Result(cut=cut) for cut in self.cuts.items())
        yield from (Result(counts=counts) for counts in self.counts)

    def end_slice(self, receipts: Sequence[Receipt]) -> None:
        """The slice is committed or staged: its counts are those of the next one no more."""
        self.counts.append(self.meter.counts(receipts))
        self.meter = SliceMeter()


def encode(results: Iterable[Result]) -> pa.RecordBatch:
    return pa.record_batch([[msgspec.msgpack.encode(result) for result in results]], RESULT)
