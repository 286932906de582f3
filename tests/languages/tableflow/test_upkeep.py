"""A flow keeps its table small while it runs, and loses and doubles nothing by it."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow_assets import failpoints
from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.maintenance import compact, upkeep
from dataflow_assets.connectors.iceberg.table.commit import Committer
from dataflow_assets.connectors.iceberg.table.data_files import ParquetFile
from dataflow_assets.connectors.iceberg.table.file_writer import ROW_GROUP_BYTES
from dataflow_assets.contracts import (
    OFFSET,
    Chunk,
    OffsetSlice,
    Rejection,
    Run,
    Span,
    Target,
    utc_now,
)
from dataflow_assets.languages.tableflow.declared_sinks import BucketSink
from tests.connectors.iceberg.driver import SOURCE
from tests.forked import forking

TARGET = Target("default/one+t", "iceberg:t", "hash-1", "t")
TEXTS = pa.array([f"text {n}" for n in range(100)])
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
    ids = pa.array(np.arange(first, first + count))
    texts = TEXTS.take(pa.array(np.arange(first, first + count) % 100))
    return pa.RecordBatch.from_arrays([ids, texts, ids], ["id", "text", OFFSET])


def _commit(
    sink: BucketSink, session: Any, first: int, count: int, at: datetime | None = None
) -> None:
    span = session.begin(Span((OffsetSlice("p0", first, first + count),)))
    (piece,) = span.slices
    writer = sink.writer(session.ticket(), piece)
    rows = _rows(first, count)
    if at is not None:
        rows = rows.append_column("at", pa.array([at] * count, pa.timestamp("us", "UTC")))
    writer.write(Chunk(rows, [], first + count, 10 * count))
    session.finish(span, [writer.close(complete=True)], SOURCE)


def _commit_wide(sink: BucketSink, session: Any, number: int) -> None:
    """A file from each of 32 partitions."""
    wanted = [OffsetSlice(f"p{at}", number, number + 1) for at in range(32)]
    span = session.begin(Span(tuple(wanted)))
    receipts = []
    for piece in span.slices:
        writer = sink.writer(session.ticket(), piece)
        writer.write(Chunk(_rows(number, 1), [], number + 1, 10))
        receipts.append(writer.close(complete=True))
    session.finish(span, receipts, SOURCE)


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
    for number in range(48):
        _commit(sink, session, number * 50, 50)
    ids, _ = _read(sink)
    assert ids == list(range(2_400))
    assert len(_files(sink)) < 32
    operations = [s.summary.operation.value for s in _table(sink).metadata.snapshots if s.summary]
    assert "replace" in operations
    assert session.table.row_count() == 2_400


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


def test_many_files_in_each_commit_are_kept_up_with(sink: BucketSink) -> None:
    session = _opened(sink)
    session.restart({f"p{at}": 0 for at in range(32)}, "topic-1")
    for number in range(9):
        _commit_wide(sink, session, number)
    assert len(_files(sink)) < 64
    assert _read(sink)[0] == sorted([*range(9)] * 32)


def test_a_merge_holds_pieces_of_files_only(
    sink: BucketSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen files of 3 MB in memory each, for groups of 8 MB: they are never all there."""
    group_bytes = ROW_GROUP_BYTES // 4
    monkeypatch.setattr(compact, "ROW_GROUP_BYTES", group_bytes)
    monkeypatch.setattr(upkeep, "EVERY", 10_000)
    session = _opened(sink)
    for number in range(16):
        _commit(sink, session, number * 150_000, 150_000)
    seen: list[int] = []
    written = ParquetFile.write

    def write(self: Any, rows: pa.Table) -> None:
        seen.append(pa.total_allocated_bytes() - before)
        written(self, rows)

    monkeypatch.setattr(ParquetFile, "write", write)
    before = pa.total_allocated_bytes()
    assert compact.turn(Committer(connect(sink), _table(sink)), 1 << 27) == 16
    assert len(seen) > 3
    assert max(seen) < 2 * group_bytes
    monkeypatch.undo()
    ids = _table(sink).scan(selected_fields=("id",)).to_arrow().column("id").to_numpy()
    assert np.array_equal(np.sort(ids), np.arange(16 * 150_000))


def test_the_table_of_rejected_records_is_kept_small_too(sink: BucketSink) -> None:
    session = _opened(sink)
    for number in range(40):
        span = session.begin(Span((OffsetSlice("p0", number, number + 1),)))
        (piece,) = span.slices
        writer = sink.writer(session.ticket(), piece)
        bad = Rejection(number, "decode", "no JSON", b"bad")
        writer.write(Chunk(_rows(number, 0), [bad], number + 1, 10))
        session.finish(span, [writer.close(complete=True)], SOURCE)
    rejected = sink.model_copy(update={"table": "one+t_rejected"})
    assert len(_files(rejected)) < 32
    found = connect(sink).load_table(rejected.identifier).scan().to_arrow()
    assert sorted(found.column("offset").to_pylist()) == list(range(40))


def test_another_writer_is_named(sink: BucketSink, caplog: pytest.LogCaptureFixture) -> None:
    session = _opened(sink)
    _commit(sink, session, 0, 5)
    assert "another program" not in caplog.text
    told = {"engine-name": "spark", "engine-version": "3.5.1", "app-id": "local-17"}
    rows = _rows(100, 2).select(["id", "text"])
    _table(sink).append(pa.Table.from_batches([rows]).cast(_columns(sink)), told)
    for number in (5, 10):
        _commit(sink, session, number, 5)
    (named,) = (one for one in caplog.messages if "another program" in one)
    assert "append; engine-name spark, engine-version 3.5.1, app-id local-17" in named
    assert named.startswith("table a.one+t: snapshot ")
    assert _read(sink)[0] == [*range(15), 100, 101]


def _columns(sink: BucketSink) -> pa.Schema:
    return _table(sink).schema().as_arrow()


def test_two_who_merge_at_once_lose_and_double_nothing(
    sink: BucketSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has made its long file when the other one commits first."""
    monkeypatch.setattr(upkeep, "EVERY", 10_000)
    session = _opened(sink)
    for number in range(20):
        _commit(sink, session, number * 50, 50)
    first, second = (Committer(connect(sink), _table(sink)) for _ in range(2))
    place = f"{compact.__name__}.reach"

    def overtaken(name: str) -> None:
        monkeypatch.setattr(place, lambda _: None)
        assert compact.turn(second, 1 << 27) > 0

    monkeypatch.setattr(place, overtaken)
    assert compact.turn(first, 1 << 27) == 0
    assert _read(sink)[0] == list(range(1_000))
    _commit(sink, session, 1_000, 50)
    assert _read(sink)[0] == list(range(1_050))


def test_snapshots_expire(sink: BucketSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BucketSink, "snapshots_stay", timedelta(0))
    monkeypatch.setattr(upkeep, "EXPIRE_SECONDS", 0.0)
    session = _opened(sink)
    for number in range(30):
        _commit(sink, session, number, 1)
    assert len(_table(sink).metadata.snapshots) <= 10 + upkeep.EVERY + 1
    assert _read(sink)[0] == list(range(30))
    assert upkeep.SWEPT in _table(sink).properties


def test_files_of_a_snapshot_that_expired_can_be_read_for_three_days(
    sink: BucketSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old they are: a reader may have planned its scan right before."""
    monkeypatch.setattr(upkeep, "EVERY", 10_000)
    session = _opened(sink)
    for number in range(20):
        _commit(sink, session, number, 1)
    files = [*tmp_path.rglob("*.parquet")]
    for file in files:
        os.utime(file, (1_000_000_000, 1_000_000_000))
    for name, value in (
        ("EVERY", 1), ("SNAPSHOTS", 1), ("EXPIRE_SECONDS", 0.0),
        ("SWEEP", timedelta(0)),
    ):  # fmt: skip
        monkeypatch.setattr(upkeep, name, value)
    monkeypatch.setattr(BucketSink, "snapshots_stay", timedelta(0))
    session = _opened(sink)
    _commit(sink, session, 20, 1)
    assert len(_files(sink)) < 10
    assert all(file.exists() for file in files)
    for number, days in ((21, 0.0), (22, 2.9), (23, 3.1)):
        assert all(file.exists() for file in files)
        later = timedelta(days=days)
        monkeypatch.setattr(upkeep, "utc_now", lambda later=later: utc_now() + later)
        _commit(sink, session, number, 1)
    assert not any(file.exists() for file in files)
    assert _read(sink)[0] == list(range(24))


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
@pytest.mark.parametrize("step", ["forgetting:kill", "bucket-committed:kill:3"])
def test_killed_while_old_rows_leave(
    step: str, sink: BucketSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit that takes their files out, and right after it; new rows are there once."""
    monkeypatch.setattr(upkeep, "EVERY", 10_000)
    timed = json.loads(SCHEMA)
    when = {"id": 2_000_000_000, "name": "at", "required": False, "type": "timestamptz"}
    timed["fields"].append(when)
    aged = sink.model_copy(
        update={
            "table": "aged",
            "table_schema": json.dumps(timed),
            "time_column": "at",
            "partitions": ("day(at)",),
            "retention": timedelta(days=30),
        }
    )
    kept = aged.model_copy(update={"retention": None})
    session = _opened(kept)
    _commit(kept, session, 0, 5, at=utc_now() - timedelta(days=40))
    _commit(kept, session, 5, 5, at=utc_now())
    armed = {"DATAFLOW_FAILPOINT": f"iceberg.{step}", "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex}
    process = forking().Process(target=_one_of_now, args=(armed, aged, 10))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    gone = step.startswith("bucket")
    assert _read(aged)[0] == list(range(5 if gone else 0, 15))
    _one_of_now({}, aged, 15)
    assert _read(aged)[0] == list(range(5, 20))


def _one_of_now(environment: dict[str, str], sink: BucketSink, first: int) -> None:
    os.environ.update(environment)
    failpoints.arm(failpoints.from_environment())
    upkeep.EVERY = 1
    _commit(sink, _opened(sink), first, 5, at=utc_now())


@pytest.mark.crash
@pytest.mark.parametrize("step", ["compacted:kill", "bucket-committed:kill:3"])
def test_killed_while_files_become_one(
    step: str, sink: BucketSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit that takes the small files out, and right after it."""
    monkeypatch.setattr(upkeep, "EVERY", 10_000)
    session = _opened(sink)
    for number in range(20):
        _commit(sink, session, number * 50, 50)
    files = len(_files(sink))
    armed = {"DATAFLOW_FAILPOINT": f"iceberg.{step}", "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex}
    process = forking().Process(target=_one_more, args=(armed, sink))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert (len(_files(sink)) < files) == step.startswith("bucket")
    assert _read(sink)[0] == list(range(1_050))
    _commit(sink, _opened(sink), 1_050, 50)
    assert _read(sink)[0] == list(range(1_100))


def _one_more(environment: dict[str, str], sink: BucketSink) -> None:
    os.environ.update(environment)
    failpoints.arm(failpoints.from_environment())
    _commit(sink, _opened(sink), 1_000, 50)
