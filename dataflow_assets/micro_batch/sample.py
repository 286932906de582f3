"""A branch's share of a span, as a schema: for the tables that are still to be made."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from dataflow_assets.contracts import Kind, Note, OffsetSlice, Sink, Source, SourceSession, Span
from dataflow_assets.contracts.reading import Asked, ReadsMessages
from dataflow_assets.errors import DataflowError
from dataflow_assets.formats.json_types import infer, merge
from dataflow_assets.formats.message_format import Group, MessageFormat
from dataflow_assets.formats.rows import cells, objects, table_columns
from dataflow_assets.micro_batch.branches import BranchSteps
from dataflow_assets.micro_batch.formatted import in_json, is_wrapped
from dataflow_assets.micro_batch.large_records import with_large_values
from dataflow_assets.micro_batch.message_metadata import (
    MetadataRows,
    as_messages,
    metadata_to_read,
    with_ordinals,
)
from dataflow_assets.micro_batch.parts import (
    are_in_order,
    message_form,
    part_reader,
    read_in_order,
)
from dataflow_assets.micro_batch.task_failures import TaskFailure, raise_gravest
from dataflow_assets.micro_batch.tasks import (
    RESULT,
    collect,
    frame,
    numbers,
    span_reader,
    spare_worker,
)
from dataflow_assets.micro_batch.transform import sample_bodies
from dataflow_assets.records.decoding import decode_msgpack
from dataflow_assets.records.record import exact_json
from dataflow_assets.records.wrapped import unwrapped_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Given = TypeVar("Given")


@dataclass(frozen=True)
class FieldSample:
    """The number of records of a branch, rejected ones included, and their widest schema."""

    records: int
    schema: pa.Schema


@dataclass(frozen=True)
class _SampleAnswer:
    """A task's answer: its sample, or why it has none."""

    records: int = 0
    schema: bytes = b""
    failure: TaskFailure | None = None


@dataclass(frozen=True)
class Sampler:
    """Infers the schema of what one branch gets of each Spark partition."""

    source: Source
    span: Span
    steps: BranchSteps | None
    sink: Sink
    routes: tuple[str | None, ...]
    identity: str | None = None
    """Of the source of messages that tasks read themselves; None: from a frame."""
    format: MessageFormat | None = None
    """What the bodies of messages are written in; None: JSON."""

    @property
    def metadata_to_read(self) -> frozenset[str]:
        """The metadata to read beside the bodies, of what the source offers as columns."""
        return metadata_to_read(self.source, self.steps.reads if self.steps else frozenset())

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row: the sample, or the error that ended it, as msgpack."""
        spare_worker()
        yield pa.record_batch([[msgspec.msgpack.encode(self._tell(batches))]], RESULT)

    def _tell(self, batches: Iterable[pa.RecordBatch]) -> _SampleAnswer:
        typed = self.source.delivers == "columns"
        try:
            seen = self._of_parts(batches) if typed else self.sample(self._messages(batches))
        except DataflowError as error:
            # A failed task would lose the class, and be repeated.
            return _SampleAnswer(failure=TaskFailure.of(error))
        return _SampleAnswer(seen.records, seen.schema.serialize().to_pybytes())

    def sample(self, batches: Iterable[pa.RecordBatch]) -> FieldSample:
        if self.format is not None:
            return self._of_groups(batches, self.format)
        bodies = (list(self._bodies(batch)) for batch in batches if batch.num_rows)
        types = [(len(one), infer(one)) for one in bodies]
        return FieldSample(sum(number for number, _ in types), merge(schema for _, schema in types))

    def _of_groups(self, batches: Iterable[pa.RecordBatch], form: MessageFormat) -> FieldSample:
        """The types of the messages' own schemas, for what steps have left alone."""
        records, schemas = 0, []
        for batch in batches:
            groups = form.columns(batch.column("body")).groups
            if self.steps is None:
                records += batch.num_rows
                schemas += [self._of_group(group) for group in groups]
                continue
            bodies = list(self._bodies(in_json(batch, form)[0]))
            records += len(bodies)
            schema = infer(bodies)
            for group in groups:
                if isinstance(group.rows, pa.RecordBatch):
                    schema = _with_types(schema, bodies, group.rows)
            schemas.append(schema)
        return FieldSample(records, unite(schemas))

    def _of_group(self, group: Group) -> pa.Schema:
        if isinstance(group.rows, pa.RecordBatch):
            if not (self.sink.traits.unwraps and is_wrapped(group.rows.schema)):
                return group.rows.schema.with_metadata({Note.TYPED: b"1"})
            texts = pa.array(objects(group.rows), pa.binary())
        else:
            texts = group.rows
        return infer((unwrapped_texts(texts) if self.sink.traits.unwraps else texts).to_pylist())

    def _messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The messages of a Spark partition, or of the slices that its rows name."""
        if self.source.delivers == "messages" and self.identity is None:
            yield from with_large_values(batches, self.source, self.span.slices)
            return
        indexes = [index for batch in batches for index in batch.column("id").to_pylist()]
        if self.source.delivers == "messages":
            yield from self.read_together(indexes)
            return
        pieces = self.span.slices
        for index in indexes:
            rows = part_reader(self.source).batches(pieces[index], self.metadata_to_read)
            yield from with_ordinals(rows, index, len(pieces))

    def read_together(self, indexes: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The messages of slices that are read by `messages_together`; empty ones are left out."""
        slices, identity = self.span.slices, self.identity or ""
        readings = [
            Asked(self.source, identity, piece, self.metadata_to_read, index, len(slices))
            for index in indexes
            if isinstance(piece := slices[index], OffsetSlice) and not piece.empty
        ]
        if readings:
            assert isinstance(self.source, ReadsMessages)  # noqa: S101 - its session has chosen
            for _, batches in self.source.messages_together(readings):
                yield from batches

    def glance(self) -> FieldSample | None:
        """Returns what the first typed rows tell; None where none of them reaches the branch."""
        read = partial(part_reader(self.source).batches, self.span.slices[0])
        if self.steps is None:
            first = next(read(frozenset()), None)
            columns = [] if first is None else table_columns(first.schema)
            return FieldSample(1, pa.schema(columns, {Note.TYPED: b"1"}))
        with _closing(read(self.metadata_to_read)) as rows:
            return next((one for one in islice(self._of_rows(0, rows), 1) if one.records), None)

    def _of_parts(self, batches: Iterable[pa.RecordBatch]) -> FieldSample:
        indexes = [index for batch in batches for index in batch.column("id").to_pylist()]
        pieces = [self.span.slices[index] for index in indexes]
        with _closing(read_in_order(self.source, pieces, self.metadata_to_read)) as each:
            for index, part in zip(indexes, each, strict=True):
                with _closing(part) as rows:
                    samples = (one for one in self._of_rows(index, rows) if one.records)
                    if (first := next(samples, None)) is not None:
                        return first
        return FieldSample(0, pa.schema([]))

    def _of_rows(self, index: int, rows: Iterable[pa.RecordBatch]) -> Iterator[FieldSample]:
        assert self.steps is not None  # noqa: S101 - without steps rows have their types
        for batch in map(partial(message_form, self.source), rows):
            for messages in as_messages([batch], index, len(self.span.slices)):
                bodies = list(self._bodies(messages))
                yield FieldSample(len(bodies), _with_types(infer(bodies), bodies, batch))

    def _bodies(self, batch: pa.RecordBatch) -> Iterable[Any]:
        if self.steps is None:
            bodies = batch.column("body")
            texts = unwrapped_texts(bodies) if self.sink.traits.unwraps else bodies
            return texts.to_pylist()  # type: ignore[no-any-return]
        slices = self.span.slices
        piece = slices[batch.column("_at")[0].as_py() % len(slices)]
        rows = MetadataRows(self.source, piece, len(slices), self.steps.reads)
        return sample_bodies(self.steps, rows, batch, self.sink, self.routes)


@contextmanager
def _closing(batches: Iterator[Given]) -> Iterator[Iterator[Given]]:
    """Left to the garbage collection, a reader would keep what only one of them can have."""
    try:
        yield batches
    finally:
        if isinstance(batches, Generator):
            batches.close()


def unite(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The schema that fits all: a column keeps its very type where all have the same one."""
    fields: dict[str, pa.Field] = {}
    typed = True
    for schema in schemas:
        typed = typed and Note.TYPED.marks(schema)
        for field in schema:
            before = fields.setdefault(field.name, field)
            fields[field.name] = before if before.equals(field, True) else _unite(before, field)
    return pa.schema(fields.values(), {Note.TYPED: b"1"} if typed else None)


def _unite(one: pa.Field, other: pa.Field) -> pa.Field:
    plain = not any(Note.KIND.marks(field) for field in (one, other))
    try:
        if plain:
            pair = [pa.schema([field]) for field in (one, other)]
            return pa.unify_schemas(pair, promote_options="permissive").field(0)
    except pa.ArrowException:
        pass
    return Kind.JSON.field(one.name)


def _with_types(
    schema: pa.Schema, bodies: Sequence[bytes | dict[str, Any] | None], batch: pa.RecordBatch
) -> pa.Schema:
    """The schema with the source's own types where the steps have left a column's values alone."""
    objects = [_object(body) for body in bodies if isinstance(body, bytes)]
    for column in table_columns(batch.schema):
        at = schema.get_field_index(column.name)
        if at < 0 or len(objects) < len(bodies):
            continue
        before = {exact_json(cell) for cell in cells(batch.column(column.name), column)}
        after = {bytes(one[column.name]) for one in objects if column.name in one}
        schema = schema.set(at, column) if after <= before else schema
    return schema


def _object(body: bytes) -> dict[str, msgspec.Raw]:
    """The members of a body; none where steps have made something else of it."""
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return {}


def sample(spark: Callable[[], SparkSession], source: SourceSession, work: Sampler) -> FieldSample:
    """Samples the span for one branch. A small one without steps needs no Spark: it is read here.

    Steps run in tasks only: a regular expression that never ends would hold up the whole driver.
    Parts that are read in their order are read by one task: they may have but one reader.
    Raises a task's own error again, the gravest first.
    """
    typed = work.source.delivers == "columns"
    if typed and (glanced := work.glance()) is not None:
        return glanced
    reader = span_reader(source, work.span) if work.source.delivers == "messages" else "spark"
    if reader != "spark":
        work = replace(work, identity=source.identity)
        if work.steps is None and reader == "driver":
            return work.sample(work.read_together(range(len(work.span.slices))))
        read = numbers(spark(), len(work.span.slices))
    elif typed and are_in_order(work.source, work.span, upserts=work.sink.traits.upserts):
        read = numbers(spark(), len(work.span.slices), tasks=1)
    else:
        read = frame(spark(), source, work.span, work.source, work.metadata_to_read)
    answers = [decode_msgpack(output, _SampleAnswer) for output in collect(read, work)]
    raise_gravest([one.failure for one in answers if one.failure])
    samples = [
        FieldSample(one.records, pa.ipc.read_schema(pa.py_buffer(one.schema))) for one in answers
    ]
    if typed:  # one part tells as much as all of them
        return next((one for one in samples if one.records), FieldSample(0, pa.schema([])))
    joined = merge if work.format is None else unite
    schema = joined(one.schema for one in samples if one.records)
    return FieldSample(sum(one.records for one in samples), schema)
