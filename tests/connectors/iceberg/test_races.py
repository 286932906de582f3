"""Racing drivers on a real REST catalog: of two on one span one wins; of two flows both do."""

from __future__ import annotations

import copy
import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pyiceberg.catalog import Catalog

from dataflow_assets.connectors.iceberg import IcebergSink
from dataflow_assets.connectors.iceberg.sink.session import IcebergSinkSession
from dataflow_assets.contracts import OffsetSlice, Rejection, Run, SinkSession, Span, Target
from dataflow_assets.errors import TakenOver, TransientError
from tests.connectors.iceberg.driver import (
    SOURCE,
    TARGET,
    MakeSink,
    expected,
    ids,
    opened,
    pump,
    snapshots,
    span_of,
    stage,
    table_rows,
)

ROUNDS = 12
FENCED = (TakenOver, TransientError)


def race(*runners: Callable[[], object]) -> list[object]:
    """Runs them at once; what each returned or raised."""
    results: list[object] = [None] * len(runners)
    barrier = threading.Barrier(len(runners))

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = runners[index]()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(runners))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_two_drivers_on_one_span_one_wins(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    """Both drivers go all the way at once, from opening to finishing, many times over."""
    opened(make())

    def drive(index: int) -> str:
        session = opened(make())
        span = session.begin(span_of(10 * index, 10))
        session.finish(span, stage(make(), session, span), SOURCE)
        return "won"

    for index in range(ROUNDS):
        outcomes = race(partial(drive, index), partial(drive, index))
        assert all(o == "won" or isinstance(o, FENCED) for o in outcomes), outcomes
        if "won" not in outcomes:
            drive(index)
        assert ids(catalog, namespace) == expected(10 * (index + 1))


def test_even_with_one_epoch_only_one_commit_counts(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    """A driver and its exact copy, each with files of its own: no epoch tells them apart."""
    sink = make()
    session = opened(sink)
    for index in range(ROUNDS):
        span = session.begin(span_of(10 * index, 10))
        twins = [twin(session), twin(session)]
        receipts = [stage(sink, each, span) for each in twins]
        runs = [
            partial(each.finish, span, own, SOURCE)
            for each, own in zip(twins, receipts, strict=True)
        ]
        outcomes = race(*runs)
        lost = [o for o in outcomes if isinstance(o, Exception)]
        assert len(lost) == 1, outcomes
        assert isinstance(lost[0], TransientError)
        assert "checkpoint has moved" in str(lost[0])
        assert ids(catalog, namespace) == expected(10 * (index + 1))


def twin(session: SinkSession) -> SinkSession:
    assert isinstance(session, IcebergSinkSession)
    other, checkpoint = copy.copy(session), copy.copy(session._store.property)
    checkpoint.committer = copy.copy(checkpoint.committer)
    other._store = copy.copy(session._store)
    other._store.property, other._store.publisher = checkpoint, copy.copy(session._store.publisher)
    other._store.publisher._property = checkpoint
    return other


def test_two_flows_into_one_table_keep_all_rows(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    targets = [replace(TARGET, flow=f"default/flow-{index}") for index in range(3)]
    opened(make(), targets[0])

    def drive(flow: int) -> None:
        session = opened(make(), targets[flow])
        for index in range(ROUNDS):
            pump(make(), session, 10 * index, 10)

    outcomes = race(*[partial(drive, flow) for flow in range(3)])
    assert outcomes == [None] * 3
    assert ids(catalog, namespace) == sorted(3 * expected(10 * ROUNDS))
    for target in targets:
        stored = make().peek(target)
        assert stored is not None
        assert stored.totals.rows == 20 * ROUNDS


def test_racing_processes_on_one_span(make: MakeSink, catalog: Catalog, namespace: str) -> None:
    opened(make())
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        won = pool.map(_drive_all, [make(), make()], chunksize=1)
        pool.close()  # or leaving would send signals, which a worker may have inherited as ignored
        pool.join()
    assert ids(catalog, namespace) == expected(10 * ROUNDS)
    assert sum(won) >= ROUNDS


def _drive_all(sink: IcebergSink) -> int:
    """Drives until everything is there, whatever the other one does; the spans it finished."""
    won = 0
    while True:
        try:
            session = opened(sink)
            while True:
                first = session.checkpoint.positions["p0"]
                assert isinstance(first, int)
                if first >= 10 * ROUNDS:
                    return won
                pump(sink, session, first, 10)
                won += 1
        except FENCED:
            continue


def test_racing_makers_of_a_table(make: MakeSink, catalog: Catalog, namespace: str) -> None:
    def drive() -> str:
        pump(make(), opened(make()), 0, 10)
        return "won"

    outcomes = race(drive, drive, drive)
    assert all(o == "won" or isinstance(o, FENCED) for o in outcomes), outcomes
    if "won" not in outcomes:
        drive()
    assert ids(catalog, namespace) == expected(10)
    assert snapshots(catalog, namespace) >= 2


def test_flows_that_begin_at_once_keep_their_checkpoints(make: MakeSink) -> None:
    """Before there are tables, the checkpoints are all on one namespace."""
    targets = [replace(TARGET, flow=f"default/f{n}") for n in range(8)]
    sinks = [make(table=f"t{n}") for n in range(8)]

    def begin(sink: IcebergSink, target: Target) -> str:
        run = Run()
        sink.open(target, run).restart({"p0": 7}, "topic-1")
        return run.id

    pairs = list(zip(sinks, targets, strict=True))
    runs = race(*[partial(begin, sink, target) for sink, target in pairs])
    stored = [sink.peek(target) for sink, target in pairs]
    assert [one and one.run_id for one in stored] == runs
    assert [one and one.positions for one in stored] == [{"p0": 7}] * 8


def test_tasks_may_all_make_the_table_of_rejected_records(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    slices = tuple(OffsetSlice(f"p{index}", 0, 10) for index in range(4))
    span = session.begin(Span(slices))
    ticket = session.ticket()

    def task(piece: OffsetSlice) -> object:
        import pyarrow as pa

        from dataflow_assets.contracts import OFFSET, Chunk

        empty = pa.RecordBatch.from_pylist(
            [], pa.schema([("id", pa.int64()), (OFFSET, pa.int64())])
        )
        writer = sink.writer(ticket, piece)
        writer.write(Chunk(empty, [Rejection(3, "decode", "bad", b"{")], 10, 1))
        return writer.close(complete=False)

    receipts = race(*[partial(task, piece) for piece in slices])
    session.finish(span, receipts, SOURCE)  # type: ignore[arg-type]
    assert len(table_rows(catalog, namespace, "orders_rejected")) == 4
