"""What a table is made from when typed rows go through steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dataflow_assets import registry
from dataflow_assets.connectors.memory import MemorySliceSink
from dataflow_assets.contracts import (
    Address,
    Kind,
    Note,
    OffsetSlice,
    PartSlice,
    Slice,
    Source,
    SourceSession,
    Span,
    local_now,
)
from dataflow_assets.contracts.reading import (
    Asked,
    ChoosesReader,
    ReadsInOrder,
    ReadsMessages,
    ReadsParts,
    SpanReader,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.micro_batch.branches import BranchSteps
from dataflow_assets.micro_batch.sample import Sampler, sample
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.step import Context
from dataflow_assets.runs.create_table import narrow
from tests.in_process import Session

NUMERIC = Kind.NUMERIC.field("total")
AT = pa.field("at", pa.timestamp("us", "UTC"))
SCHEMA = pa.schema([("id", pa.int32()), NUMERIC, AT, ("name", pa.string())])
ROWS: list[dict[str, Any]] = [
    {"id": 1, "total": "1.50", "at": 1_500_000, "name": "7"},
    {"id": 2, "total": None, "at": None, "name": "8"},
]


class Table(Source, ReadsParts):
    type: ClassVar[str] = "table"
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "columns"

    def address(self) -> Address:
        return Address("table", "here", None, "t")

    def open(self, flow: str) -> SourceSession:
        raise NotImplementedError

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - one part
        yield pa.RecordBatch.from_pylist([], SCHEMA)
        yield pa.RecordBatch.from_pylist(ROWS, SCHEMA)


def glance(*steps: tuple[str, dict[str, Any]]) -> pa.Schema | None:
    used = tuple(
        Transformation(registry.steps()[name].model_validate(config)) for name, config in steps
    )
    span = Span((PartSlice("part-0", None, "1"),))
    made = BranchSteps(used, Context(local_now()), frozenset()) if used else None
    sink = MemorySliceSink(store="s", table="t")
    found = Sampler(Table(), span, made, sink, (None,)).glance()
    return None if found is None else found.schema


def test_without_steps_the_types_are_the_source_s() -> None:
    assert glance() == SCHEMA


def test_columns_that_steps_leave_alone_keep_their_types() -> None:
    schema = glance(
        ("cast", {"spec": {"name": "int64"}}),
        ("insertField", {"fields": {"env": "prod"}}),
        ("replaceField", {"renames": ["id:key"]}),
    )
    assert schema is not None
    assert {field.name: field.type for field in schema} == {
        "total": pa.string(),
        "at": AT.type,
        "name": pa.int64(),
        "env": pa.string(),
        "key": pa.int64(),
    }
    assert schema.field("total").metadata == NUMERIC.metadata


def test_rows_of_which_none_is_left_tell_nothing() -> None:
    assert glance(("filter", {"condition": "$.id > 2"})) is None


@pytest.mark.parametrize(
    ("digits", "arrow"),
    [
        (b"10,2", pa.decimal128(10, 2)),
        (b"50,10", pa.decimal256(50, 10)),
        (b"100,2", pa.string()),
        (b"2,5", pa.string()),
    ],
)
def test_declared_digits_make_decimals(digits: bytes, arrow: pa.DataType) -> None:
    declared = NUMERIC.with_metadata({**NUMERIC.metadata, Note.DECIMAL: digits})
    (field,) = narrow(pa.schema([declared]))
    assert field.type == arrow
    assert ((field.metadata or {}).get(Note.KIND) is None) == (arrow != pa.string())


class Refused(Source, ReadsMessages):
    """A topic whose messages cannot be read by tasks, for a reason that lasts."""

    type: ClassVar[str] = "refused"

    def address(self) -> Address:
        return Address("refused", "here", None, "t")

    def open(self, flow: str) -> SourceSession:
        raise NotImplementedError

    @classmethod
    def messages_together(
        cls, asked: Sequence[Asked]
    ) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        assert asked
        raise PermanentError("the registry refuses the credentials")


class Chosen(ChoosesReader):
    """The session of a topic that says who reads a span."""

    identity = "t"

    def __init__(self, reader: SpanReader) -> None:
        self._reader = reader

    def reader(self, span: Span) -> SpanReader:  # noqa: ARG002 - the same for all
        return self._reader


def _no_spark() -> SparkSession:
    raise AssertionError("no sample needs Spark here")


def test_an_error_of_a_sample_keeps_its_class() -> None:
    """Else the run would try again for as long as its patience lasts."""
    opened = Chosen("tasks")
    span = Span((OffsetSlice("0", 0, 1),))
    work = Sampler(Refused(), span, None, MemorySliceSink(store="s", table="t"), (None,))
    engine = cast("SparkSession", Session(_no_spark))
    with pytest.raises(PermanentError, match="refuses the credentials"):
        sample(lambda: engine, cast("SourceSession", opened), work)


class InOrder(Table, ReadsInOrder):
    """Parts that are read in their order: four of them, and the last has the row of `id` 3."""

    type: ClassVar[str] = "in-order"
    readers: ClassVar[list[list[str]]] = []
    """The parts that each reader was asked for."""

    def reads_in_order(self, span: Span, *, upserts: bool) -> bool:  # noqa: ARG002 - always
        return True

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        self.readers.append([piece.partition])
        yield from self._rows(piece, metadata)

    def batches_in_order(
        self, pieces: Sequence[Slice], metadata: frozenset[str]
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        self.readers.append([piece.partition for piece in pieces])
        for piece in pieces:
            yield self._rows(piece, metadata)

    def _rows(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        yield from super().batches(piece, metadata)
        if piece.partition == "part-3":
            yield pa.RecordBatch.from_pylist([{**ROWS[0], "id": 3}], SCHEMA)


@pytest.mark.parametrize(("least", "records"), [(2, 1), (3, 0)])
def test_parts_in_order_are_sampled_by_one_reader(least: int, records: int) -> None:
    """Each part might else be a task of its own, and a replication slot has one reader."""
    step = registry.steps()["filter"].model_validate({"condition": f"$.id > {least}"})
    steps = BranchSteps((Transformation(step),), Context(local_now()), frozenset())
    span = Span.of_parts("1", ["", "", "", ""])
    work = Sampler(InOrder(), span, steps, MemorySliceSink(store="s", table="t"), (None,))
    engine = cast("SparkSession", Session(_no_spark))
    InOrder.readers.clear()
    found = sample(lambda: engine, cast("SourceSession", None), work)
    assert found.records == records
    assert InOrder.readers == [["part-0"], ["part-0", "part-1", "part-2", "part-3"]]
