"""What a branch gets of a span, as a schema: for the tables that are still to be made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from dataflow_assets.contracts import Sink, Source, SourceSession, Span
from dataflow_assets.formats.json_types import infer, merge
from dataflow_assets.formats.rows import table_columns
from dataflow_assets.messages import Steps, sampled
from dataflow_assets.metadata import Rows, as_messages, wanted
from dataflow_assets.tasks import RESULT, collect, forget_archives, frame
from dataflow_assets.wrapped import unwrapped_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Sample:
    """How many records reach a branch, rejected ones included, and their widest schema."""

    records: int
    schema: pa.Schema


@dataclass(frozen=True)
class Sampler:
    """Infers the schema of what one branch gets of each Spark partition."""

    source: Source
    span: Span
    steps: Steps | None
    sink: Sink
    routes: tuple[str | None, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row: the sample, as msgpack."""
        forget_archives()
        sample = self.sample(batches)
        output = msgspec.msgpack.encode((sample.records, sample.schema.serialize().to_pybytes()))
        yield pa.record_batch([[output]], RESULT)

    def sample(self, batches: Iterable[pa.RecordBatch]) -> Sample:
        """What all of them tell."""
        found = [list(self._bodies(batch)) for batch in batches if batch.num_rows]
        return Sample(sum(map(len, found)), merge(map(infer, found)))

    def typed(self) -> Sample:
        """Of typed rows: without steps their own types, else what the first rows become."""
        piece = self.span.slices[0]
        reads = wanted(self.source, self.steps.reads) if self.steps else frozenset()
        batches = self.source.batches(piece, reads)
        if self.steps is None:
            first = next(batches, None)
            return Sample(1, pa.schema([] if first is None else table_columns(first.schema)))
        bodies = as_messages(map(self.source.message_form, batches), 0, len(self.span.slices))
        return self.sample(islice(bodies, 1))

    def _bodies(self, batch: pa.RecordBatch) -> Iterable[Any]:
        if self.steps is None:
            bodies = batch.column("body")
            texts = unwrapped_texts(bodies) if self.sink.unwraps else bodies
            return texts.to_pylist()  # type: ignore[no-any-return]
        slices = self.span.slices
        piece = slices[batch.column("_at")[0].as_py() % len(slices)]
        rows = Rows(self.source, piece, len(slices), self.steps.reads)
        return sampled(self.steps, rows, batch, self.sink, self.routes)


def sample(spark: SparkSession, source: SourceSession, work: Sampler) -> Sample:
    """What the branch gets of the span."""
    if work.source.delivers == "columns":
        return work.typed()
    reads = work.steps.reads if work.steps else frozenset[str]()
    read = frame(spark, source, work.span, work.source, wanted(work.source, reads))
    found = [msgspec.msgpack.decode(output) for output in collect(read, work)]
    schemas = [pa.ipc.read_schema(pa.py_buffer(schema)) for _, schema in found]
    return Sample(sum(records for records, _ in found), merge(schemas))
