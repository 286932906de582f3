"""A mistake of our code in a task: it is final, and its sentence names flow, slice and record."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import (
    MemoryOffsetSource,
    MemoryPartSource,
    MemorySliceSink,
    Store,
)
from dataflow_assets.connectors.memory.sink.writer import MemorySliceStore
from dataflow_assets.contracts import (
    Chunk,
    Limit,
    Receipt,
    Run,
    Slice,
    Source,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.errors import Defect, PermanentError, TransientError
from dataflow_assets.errors.defects import is_defect, is_defect_of
from dataflow_assets.micro_batch import fused, transform, typed_rows
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.fused import Pass
from dataflow_assets.micro_batch.job import Planned, run
from dataflow_assets.micro_batch.tasks import JobDied, collect, numbers
from dataflow_assets.sdk.sink.slice_commit import SliceWriter
from dataflow_assets.spark.errors import sentence
from tests.in_process import Frame, Session

DEFECTS = [
    pa.ArrowInvalid("offset overflow"),
    pa.ArrowNotImplementedError("no cast from a to b"),
    KeyError("name"),
    ValueError("Renamed field names must not contain"),
    AttributeError("no attribute"),
    RecursionError("too deep"),
    ZeroDivisionError("division by zero"),
]
OUTSIDE = [
    ConnectionResetError("reset by peer"),
    TimeoutError("timed out"),
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 9 failed"),
    OSError("AWS Error NETWORK_CONNECTION"),
    ssl.SSLCertVerificationError("certificate verify failed"),  # a ValueError, too
]


class Failing(MemorySliceSink):
    """Its writer raises what it is told to, in the method that it is told."""

    raises: ClassVar[Exception]
    method: ClassVar[str]

    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        return FailingWriter(ticket, piece, MemorySliceStore(self, ticket, piece))


class FailingWriter(SliceWriter):
    def write(self, chunk: Chunk) -> None:
        if Failing.method == "write":
            raise Failing.raises
        super().write(chunk)

    def close(self, complete: bool) -> Receipt:
        if Failing.method == "close":
            raise Failing.raises
        return super().close(complete)


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store("defects")
    made.create()
    yield made
    made.remove()


@pytest.fixture
def engine() -> SparkSession:
    def none() -> SparkSession:
        raise AssertionError("no job needs Spark here")

    return cast("SparkSession", Session(none))


def read(engine: SparkSession, store: Store, source: Source, sink: MemorySliceSink) -> None:
    """One pass over what is in the source."""
    with closing(source.open("f")) as session:
        target = Target("default/f", "memory", "h1", "t", source_id=session.identity)
        with closing(sink.open(target, Run())) as opened:
            opened.restart(session.start(), session.identity)
            span = opened.begin(session.plan(session.start(), Limit()))
            work = Pass(source, span, (PassBranch(sink, opened.ticket()),), 10.0)
            run(engine, Planned(work, session))


def offsets(store: Store, rows: int = 9) -> MemoryOffsetSource:
    store.produce("t", 0, [b'{"id": %d, "name": "n"}' % n for n in range(rows)])
    return MemoryOffsetSource(store=store.name, topic="t")


@pytest.mark.parametrize("error", DEFECTS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("method", ["write", "close"])
def test_a_writers_mistake_is_final_and_names_flow_and_slice(
    engine: SparkSession,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    method: str,
) -> None:
    monkeypatch.setattr(Failing, "raises", error, raising=False)
    monkeypatch.setattr(Failing, "method", method, raising=False)
    with pytest.raises(Defect) as caught:
        read(engine, store, offsets(store), Failing(store=store.name, table="target"))
    assert not isinstance(caught.value, TransientError)
    assert caught.value.branch == "memory"
    said = f"flow default/f: t, partition 0, offsets 0 to 8: {type(error).__name__}: "
    assert str(caught.value).startswith(said)
    assert "report it" in str(caught.value)


@pytest.mark.parametrize("error", OUTSIDE, ids=lambda error: type(error).__name__)
def test_what_a_network_or_memory_may_cause_stays_transient(
    engine: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(Failing, "raises", error, raising=False)
    monkeypatch.setattr(Failing, "method", "write", raising=False)
    with pytest.raises(JobDied):
        read(engine, store, offsets(store), Failing(store=store.name, table="target"))


def test_a_mistake_at_one_message_names_its_offset(
    engine: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = transform.reader

    def reader(*given: Any) -> Any:
        made = true(*given)

        def decode(batch: pa.RecordBatch) -> Any:
            if any(b'"id": 5,' in body for body in batch.column("body").to_pylist()):
                raise pa.ArrowInvalid("this value is beyond me")
            return made(batch)

        return decode

    monkeypatch.setattr(fused, "reader", reader)
    with pytest.raises(Defect, match=r"partition 0, offsets 0 to 8, record 5: ArrowInvalid: this"):
        read(engine, store, offsets(store), MemorySliceSink(store=store.name, table="target"))


def test_a_mistake_at_one_row_names_part_and_row(
    engine: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = typed_rows.type_chunks

    def typed(batch: pa.RecordBatch, *given: Any) -> Any:
        if 4 in batch.column("id").to_pylist():
            raise NotImplementedError
        return true(batch, *given)

    monkeypatch.setattr(fused, "type_chunks", typed)
    store.produce("t", 0, [b"name"] * 9)
    source = MemoryPartSource(store=store.name, topic="t")
    with pytest.raises(Defect, match=r"default/f: t, part-\d .*, record \d: NotImplementedError"):
        read(engine, store, source, MemorySliceSink(store=store.name, table="target"))


def test_a_mistake_outside_of_any_slice_is_final_as_well(engine: SparkSession) -> None:
    """Tasks of merges and samples, which have no slice."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ()
        raise KeyError("lost")

    with pytest.raises(Defect, match="KeyError: 'lost'; a defect"):
        collect(numbers(engine, 1), work)


def test_rows_of_spark_that_break_off_are_no_mistake_of_ours() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from ()
        raise pa.ArrowInvalid("Expected to read 9 metadata bytes, but only read 3")

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    frame = Frame(lambda: [broken()], lambda: cast("Any", None))
    with pytest.raises(TransientError, match="broke off"):
        collect(cast("Any", frame), work)


@pytest.mark.parametrize("error", [*DEFECTS, *OUTSIDE], ids=lambda error: type(error).__name__)
def test_a_class_is_judged_by_its_name_as_by_itself(error: Exception) -> None:
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    assert is_defect_of(name) is is_defect(error) is (error in DEFECTS)


@pytest.mark.parametrize(
    "text",
    [
        "Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)",
        "java.lang.OutOfMemoryError: Java heap space",
        "Traceback (most recent call last):\n  File x\nMemoryError: no room\n",
    ],
)
def test_what_fails_in_spark_stays_transient(text: str) -> None:
    class Gone:
        def mapInArrow(self, *_: Any) -> Gone:  # noqa: N802 - Spark's name
            return self

        def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
            raise PySparkException(text)

    with pytest.raises(JobDied) as caught:
        collect(cast("Any", Gone()), iter)
    assert not isinstance(caught.value, PermanentError)
    assert sentence(PySparkException(text)) in str(caught.value)
