"""A flow keeps its table small while it runs, and loses and doubles nothing by it."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from dataflow_assets import failpoints
from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.maintenance import compact, upkeep
from dataflow_assets.connectors.iceberg.sink.sink import BucketSink
from dataflow_assets.connectors.iceberg.table.commit import Committer
from dataflow_assets.contracts import OFFSET, Chunk, OffsetSlice, Run, Span, Target
from tests.connectors.iceberg.driver import SOURCE
from tests.forked import forking

TARGET = Target("default/one+t", "iceberg:t", "hash-1", "t")
SCHEMA = (
    '{"type": "struct", "schema-id": 0, "fields": ['
    '{"id": 5, "name": "id", "required": true, "type": "long"},'
    '{"id": 2, "name": "text", "required": false, "type": "string"}]}'
)


@pytest.fixture
def sink(tmp_path: Path) -> BucketSink:
    bucket = f"file://{tmp_path}/lake"
    return BucketSink.model_validate(
        {"bucket": bucket, "namespace": "a", "table": "one+t", "table_schema": SCHEMA}
    )


def _rows(first: int, count: int) -> Any:
    import pyarrow as pa

    ids = pa.array(range(first, first + count), pa.int64())
    texts = pa.array([f"text {n % 100}" for n in range(first, first + count)])
    return pa.RecordBatch.from_arrays([ids, texts, ids], ["id", "text", OFFSET])


def _commit(sink: BucketSink, session: Any, first: int, count: int) -> None:
    span = session.begin(Span((OffsetSlice("p0", first, first + count),)))
    (piece,) = span.slices
    writer = sink.writer(session.ticket(), piece)
    writer.write(Chunk(_rows(first, count), [], first + count, 10 * count))
    session.finish(span, [writer.close(complete=True)], SOURCE)


def _opened(sink: BucketSink) -> Any:
    session = sink.open(TARGET, Run())
    if not session.checkpoint.positions:
        session.restart({"p0": 0}, "topic-1")
    return session


def _files(sink: BucketSink) -> list[int]:
    table = connect(sink).load_table(sink.identifier)
    return sorted(task.file.file_size_in_bytes for task in table.scan().plan_files())


def _read(sink: BucketSink) -> tuple[list[int], float]:
    table = connect(sink).load_table(sink.identifier)
    began = time.monotonic()
    found = table.scan().to_arrow()
    return sorted(found.column("id").to_pylist()), time.monotonic() - began


def test_many_commits_end_in_few_files(sink: BucketSink) -> None:
    session = _opened(sink)
    for number in range(80):
        _commit(sink, session, number * 50, 50)
    ids, _ = _read(sink)
    assert ids == list(range(4_000))
    assert len(_files(sink)) < 32
    operations = [s.summary.operation.value for s in _table(sink).metadata.snapshots if s.summary]
    assert "replace" in operations
    assert session.row_count() == 4_000


def _table(sink: BucketSink) -> Any:
    return connect(sink).load_table(sink.identifier)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_scan_of_500_commits_is_nearly_that_of_one(sink: BucketSink) -> None:
    session = _opened(sink)
    for number in range(500):
        _commit(sink, session, number * 2_000, 2_000)
    once = sink.model_copy(update={"table": "once"})
    _commit(once, _opened(once), 0, 1_000_000)
    found, wanted = (min(_read(each)[1] for _ in range(5)) for each in (sink, once))
    print(f"{len(_files(sink))} files, {found:.3f} s; once: {wanted:.3f} s")  # noqa: T201
    assert found <= 1.5 * wanted
    assert _read(sink)[0] == list(range(1_000_000))


def test_two_who_merge_at_once_lose_and_double_nothing(
    sink: BucketSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has made its long file when the other one commits first."""
    monkeypatch.setattr(upkeep, "EVERY", 10_000)
    session = _opened(sink)
    for number in range(40):
        _commit(sink, session, number * 50, 50)
    first, second = (Committer(connect(sink), _table(sink)) for _ in range(2))
    place = f"{compact.__name__}.reach"

    def overtaken(name: str) -> None:
        monkeypatch.setattr(place, lambda _: None)
        assert compact.turn(second, 1 << 27) > 0

    monkeypatch.setattr(place, overtaken)
    assert compact.turn(first, 1 << 27) == 0
    assert _read(sink)[0] == list(range(2_000))
    _commit(sink, session, 2_000, 50)
    assert _read(sink)[0] == list(range(2_050))


def test_snapshots_expire(sink: BucketSink, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    monkeypatch.setattr(upkeep, "AGE", timedelta(0))
    monkeypatch.setattr(upkeep, "EXPIRE_SECONDS", 0.0)
    session = _opened(sink)
    for number in range(30):
        _commit(sink, session, number, 1)
    assert len(_table(sink).metadata.snapshots) <= 10 + upkeep.EVERY + 1
    assert _read(sink)[0] == list(range(30))
    assert upkeep.SWEPT in _table(sink).properties


def test_what_fails_is_a_warning(
    sink: BucketSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> int:
        raise OSError("the store is away")

    monkeypatch.setattr(compact, "turn", broken)
    session = _opened(sink)
    _commit(sink, session, 0, 5)
    assert _read(sink)[0] == list(range(5))
    assert "the store is away; the flow goes on, and its table is tidied later" in caplog.text


@pytest.mark.crash
@pytest.mark.parametrize("step", ["compacted:kill", "bucket-committed:kill:3"])
def test_killed_while_files_become_one(
    step: str, sink: BucketSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit that takes the small files out, and right after it."""
    monkeypatch.setattr(upkeep, "EVERY", 10_000)
    session = _opened(sink)
    for number in range(40):
        _commit(sink, session, number * 50, 50)
    files = len(_files(sink))
    armed = {"DATAFLOW_FAILPOINT": f"iceberg.{step}", "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex}
    process = forking().Process(target=_one_more, args=(armed, sink))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert (len(_files(sink)) < files) == step.startswith("bucket")
    assert _read(sink)[0] == list(range(2_050))
    _commit(sink, _opened(sink), 2_050, 50)
    assert _read(sink)[0] == list(range(2_100))


def _one_more(environment: dict[str, str], sink: BucketSink) -> None:
    os.environ.update(environment)
    failpoints.arm(failpoints.from_environment())
    _commit(sink, _opened(sink), 2_000, 50)
