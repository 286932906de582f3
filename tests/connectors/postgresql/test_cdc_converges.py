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

import pytest

from dataflow_assets.contracts import Limit
from dataflow_assets.errors import PermanentError
from dataflow_assets.runs.request import Start
from tests.connectors.postgresql import writers
from tests.connectors.postgresql.followed import CHECKPOINT, Followed

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


@contextmanager
def _written(flow: Followed) -> Iterator[None]:
    """Sessions write in a process of their own, so that the test can fork."""
    command = [sys.executable, "-m", "tests.connectors.postgresql.writers", flow.dsn, flow.schema]
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
@pytest.mark.parametrize("seed", [1, 2])
def test_what_twenty_sessions_write_is_in_the_target(followed: Followed, seed: int) -> None:
    random.seed(seed)
    flow = followed
    flow.make(writers.COLUMNS)
    flow.run("ALTER TABLE source ALTER big SET STORAGE EXTERNAL")
    rows = f"SELECT i, 0, repeat('x', 3000) FROM generate_series(1, {writers.KEYS}) i"
    flow.run(f"INSERT INTO source {rows}")
    flow.limit = Limit(bytes=1024 * 1024)
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
    # Its commit waits for the disk, as it has written something: asynchronous ones lie before it.
    flow.run("SELECT pg_logical_emit_message(true, 'test', 'the end')")
    flow.drain()
    assert flow.run(LACKS.format("source", "target")) == []
    assert flow.run(LACKS.format("target", "source")) == []
    assert flow.run(CHECKSUM.format("target")) == flow.run(CHECKSUM.format("source"))
