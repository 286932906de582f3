"""Twenty sessions write while tables are loaded and followed by processes that die all the time.

Once the sessions have ended and the log is through, source and target are compared row for row.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.sharedctypes import RawArray
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.postgresql import PostgresqlCdcSource
from dataflow_assets.connectors.postgresql.cdc import peeked, transactions
from dataflow_assets.connectors.postgresql.cdc.read_ahead import ReadAhead
from dataflow_assets.contracts import Limit, Span
from dataflow_assets.errors import PermanentError
from dataflow_assets.runs.request import Start
from tests.connectors.postgresql.cdc import writers
from tests.connectors.postgresql.cdc.followed import CHECKPOINT, Followed
from tests.in_process import Session

STEPS = (
    "drain.begun",
    "postgresql-cdc.snapshot",
    "postgresql-cdc.snapshot-batch",
    "postgresql-cdc.read",
    "postgresql.before-commit",
    "postgresql.after-commit",
    "drain.passed",
    "postgresql.finish",
    "drain.finished",
)
CHECKSUM = "SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM {} t"
LACKS = "SELECT * FROM {} EXCEPT ALL SELECT * FROM {} ORDER BY 1 LIMIT 5"


SEVERAL, AHEAD = 0, 1


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Micro-batches of several stretches, and those read ahead here; also where a process dies."""
    found = RawArray("i", 2)
    in_order = PostgresqlCdcSource.reads_in_order

    def asked(self: PostgresqlCdcSource, span: Span, *, upserts: bool) -> bool:
        is_stretch = in_order(self, span, upserts=upserts)
        found[SEVERAL] += is_stretch and len(span.slices) > 1
        return is_stretch

    class Noted(ReadAhead):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            found[AHEAD] += 1

    monkeypatch.setattr(PostgresqlCdcSource, "reads_in_order", asked)
    monkeypatch.setattr(transactions, "ReadAhead", Noted)
    return found


def _no_spark() -> SparkSession:
    raise AssertionError("this flow needs no Spark")


@contextmanager
def _written(flow: Followed) -> Iterator[None]:
    """Sessions write in a process of their own, so that the test can fork."""
    command = [
        sys.executable,
        "-m",
        "tests.connectors.postgresql.cdc.writers",
        flow.dsn,
        flow.schema,
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while flow.run("SELECT count(DISTINCT who) FROM source") < [(writers.SESSIONS,)]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def _died(flow: Followed, start: Start, failpoint: str | None, nth: int) -> bool:
    """Drains in a process that dies at a step, or after a while; False: it came to its end."""
    child = os.fork()
    if child == 0:
        if failpoint is not None:
            os.environ["DATAFLOW_FAILPOINT"] = f"{failpoint}:kill:{nth}"
            os.environ["DATAFLOW_FAILPOINT_TOKEN"] = uuid.uuid4().hex
        with suppress(PermanentError):  # a load is not begun before another one is finished
            flow.drain(start)
        os._exit(0)
    deadline = time.monotonic() + random.uniform(0.1, 3)
    while failpoint is None and time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.01)
    if failpoint is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.crash
@pytest.mark.full
@pytest.mark.parametrize(("seed", "ahead"), [(1, False), (2, True)])
def test_what_twenty_sessions_write_is_in_the_target(
    followed: Followed, counts: Any, monkeypatch: pytest.MonkeyPatch, seed: int, ahead: bool
) -> None:
    """On Spark; and in the processes that die, where a WAL sender is read ahead of the sink."""
    random.seed(seed)
    flow = followed
    if ahead:
        monkeypatch.setattr(peeked, "MOST_BYTES", -1)
        flow.engine = cast("SparkSession", Session(_no_spark))
    flow.make(writers.COLUMNS)
    flow.run("ALTER TABLE source ALTER big SET STORAGE EXTERNAL")
    rows = f"SELECT i, 0, repeat('x', 3000) FROM generate_series(1, {writers.KEYS}) i"
    flow.run(f"INSERT INTO source {rows}")
    flow.limit = Limit(bytes=256 * 1024, declared=Limit())
    deaths = dict.fromkeys([*STEPS, None], 0)
    again = Start(reload=(f"{flow.schema}.source",))
    with _written(flow):
        for step in [*random.sample(STEPS, len(STEPS)), *[None] * 4]:
            # A load whose process has died goes on with another snapshot, then may die again.
            # Some steps come once in a run: the second one dies at the first of them.
            for start, nth in ((again, random.randint(1, 3)), (CHECKPOINT, 1)):
                deaths[step] += _died(flow, start, step, nth)
            if random.random() < 0.3:
                flow.drain()
    assert all(deaths.values()), deaths
    assert counts[SEVERAL] > 0
    assert (counts[AHEAD] > 0) == ahead
    # Its commit waits for the disk, as it has written something: asynchronous ones lie before it.
    flow.run("SELECT pg_logical_emit_message(true, 'test', 'the end')")
    flow.drain()
    assert flow.run(LACKS.format("source", "target")) == []
    assert flow.run(LACKS.format("target", "source")) == []
    assert flow.run(CHECKSUM.format("target")) == flow.run(CHECKSUM.format("source"))
