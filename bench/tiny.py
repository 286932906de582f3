"""What a micro-batch costs that holds next to nothing: from its plan to its report.

One continuous run of the product's loop; whenever it has reported, the next few messages are sent.
The loop's own steps are timed from outside, by wrapping what it calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

from bench import flows, messages, tables
from bench.places import Places
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.connectors.postgresql.sink.session import PostgresqlSinkSession
from dataflow_assets.flow import Flow
from dataflow_assets.micro_batch import job
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Report, Request
from dataflow_assets.spark.session import Spark

ROWS = 100  # of each partition
TIMES = 30
MOST = 0.25  # seconds, the median
WARM = 20  # micro-batches that are not counted: a JVM just started has compiled nothing yet

STEPS: dict[str, tuple[Any, str]] = {
    "plan": (KafkaSourceSession, "plan"),
    "begin": (PostgresqlSinkSession, "begin"),
    "session": (Spark, "session"),
    "job": (job, "run"),
    "finish": (PostgresqlSinkSession, "finish"),
    "lag": (KafkaSourceSession, "lag"),
    "acknowledge": (KafkaSourceSession, "acknowledge"),
}


@dataclass
class Clock:
    """Seconds by step of the micro-batch that runs; `plan` begins it."""

    begun: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)

    def times(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with its seconds noted."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self._note(name, begun)

        return timed

    def _note(self, name: str, begun: float) -> None:
        if name == "plan":  # the last one before a report is the one that found something
            self.begun, self.steps = begun, dict.fromkeys(STEPS, 0.0)
        self.steps[name] = self.steps.get(name, 0.0) + time.perf_counter() - begun


@contextmanager
def watched(clock: Clock) -> Iterator[None]:
    """Notes in the clock what the loop's own steps take."""
    with ExitStack() as stack:
        for name, (owner, attribute) in STEPS.items():
            timed = clock.times(name, getattr(owner, attribute))
            stack.enter_context(patch.object(owner, attribute, timed))
        yield


def run(places: Places, spark: Spark) -> dict[str, Any]:
    """Median, 95th percentile and the steps' medians, in seconds."""
    topic, table = "bench-tiny", "bench_tiny"
    messages.create(places.bootstrap, topic)
    tables.fresh(places, table, "binary")
    flow = flows.flow(places, topic, "tiny", flows.append(places, table))
    found = list(islice(_micro_batches(flow, spark, places, topic), WARM + TIMES))[WARM:]
    tables.check(places, table, (WARM + TIMES) * ROWS * messages.PARTITIONS)
    tables.drop(places, table)
    return _figures(found)


def _micro_batches(
    flow: Flow, spark: Spark, places: Places, topic: str
) -> Iterator[dict[str, float]]:
    """What each has cost: `total` from the plan to the report, and its steps."""
    filler, clock = messages.Filler(places.bootstrap, topic), Clock()
    with watched(clock):
        reports = drain(flow, spark.session, Request(seconds=3600, start=flows.BEGIN))
        while True:
            filler.send(ROWS * messages.PARTITIONS)
            _reported(next(reports))
            total = time.perf_counter() - clock.begun
            yield {"total": total, **clock.steps}


def _reported(report: Report) -> None:
    sent = ROWS * messages.PARTITIONS
    assert report.delta.rows == sent, f"{report.delta.rows} rows in one micro-batch"


def _figures(found: list[dict[str, float]]) -> dict[str, Any]:
    totals = [each["total"] for each in found]
    return {
        "rows_per_partition": ROWS,
        "times": len(found),
        "median": median(totals),
        "p95": quantiles(totals, n=20)[-1],
        "least": min(totals),
        "steps": {name: median(each[name] for each in found) for name in STEPS},
        "all": totals,
        "passed": median(totals) <= MOST,
    }
