"""A task's answer to the driver: receipts, a failure, notes, and where it has stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from dataflow_assets.contracts import (
    Receipt,
)
from dataflow_assets.micro_batch.task_failures import TaskFailure
from dataflow_assets.micro_batch.tasks import RESULT


@dataclass(frozen=True)
class Result:
    """A task's answer: one of the four."""

    receipt: Receipt | None = None
    failure: TaskFailure | None = None
    note: str | None = None
    cut: tuple[str, int] | None = None
    """Partition, and the offset before which the task has stopped: its slice was too large."""
    of: int = 0
    """Which of the job's passes it is about."""


@dataclass
class TaskReport:
    """A task's report beside its receipts."""

    notes: set[str] = field(default_factory=set)
    cuts: dict[str, int] = field(default_factory=dict)

    def results(self) -> Iterator[Result]:
        yield from (Result(note=note) for note in sorted(self.notes))
        yield from (Result(cut=cut) for cut in self.cuts.items())


def encode(results: Iterable[Result]) -> pa.RecordBatch:
    return pa.record_batch([[msgspec.msgpack.encode(result) for result in results]], RESULT)
