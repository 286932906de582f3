"""`dataflow metrics`: one endpoint for Prometheus, for all lanes and runs of this machine.

What they count is in a file, which survives them and this process. How far flows are behind is
asked on each scrape, of the sources and sinks themselves: whichever process drives the flows, or
none, the values are true. Servers are asked again only when an answer is older than `STALE`.
"""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from dataflow_assets.cli import selection
from dataflow_assets.cli.console import out
from dataflow_assets.languages.language import languages
from dataflow_assets.manifests.load import load
from dataflow_assets.metrics import declarations
from dataflow_assets.metrics.exposition import families
from dataflow_assets.metrics.health import verdict
from dataflow_assets.metrics.serving import serving
from dataflow_assets.metrics.store import STALE_SECONDS, Sample, Series, store
from dataflow_assets.runs.lag_metrics import lag_samples
from dataflow_assets.runs.statuses import Answer, statuses

STALE = 5.0  # seconds
TIDY_SECONDS = 86_400.0


def metrics(asked: Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C; the folders are read again for each answer."""
    selection.say_findings(load(asked.paths))
    host, port = asked.listen
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with serving(host, port, registry(asked.paths), partial(health, asked.paths)) as bound:
        out(f"http://{host}:{bound}/metrics")
        while not ended.wait(TIDY_SECONDS):
            with suppress(sqlite3.Error, OSError):  # tomorrow will do
                if (kept := store()) is not None:
                    kept.tidy()
    return 0


def health(paths: Sequence[Path], path: str) -> str:
    """Answers a probe for the location: its folders are there, and no lane that lives is stuck."""
    try:
        samples = kept.read() if (kept := store()) else []
    except (sqlite3.Error, OSError) as error:
        return f"not ready: {error}"
    lanes = [
        time.time() - one.value
        for one in samples
        if one.series.name == declarations.LANE_PROGRESS.name and one.age <= STALE_SECONDS
    ]
    ready = all(folder.exists() for folder in paths)
    return verdict(path, ready=ready, since=max(lanes, default=0.0))


def registry(paths: Sequence[Path]) -> CollectorRegistry:
    """The metrics of the flows in these files and folders."""
    metrics = CollectorRegistry()
    metrics.register(_Flows(paths))
    return metrics


class _Flows(Collector):
    """Collects what was counted, and the lags of all flows that are not suspended."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._asking = threading.Lock()
        self._answers: Sequence[Answer] = ()
        self._asked = -STALE

    @override
    def collect(self) -> Iterator[Metric]:
        if (kept := store()) is not None:
            yield from families(kept.read(), asked=False)
        answers = self._current()
        yield from families(_lags(answers))
        yield from _of_languages(answers)

    def _current(self) -> Sequence[Answer]:
        with self._asking:
            if time.monotonic() - self._asked >= STALE:
                flows = [flow for flow in load(self._paths).flows if not flow.suspended]
                self._answers, self._asked = statuses(flows), time.monotonic()
            return self._answers


def _lags(answers: Sequence[Answer]) -> Iterator[Sample]:
    for answer in answers:
        flow = (answer.flow.namespace, answer.flow.name)
        known = Series(declarations.LAG_KNOWN.name, flow)
        yield Sample(known, float(answer.error is None))
        branches = {branch.id: branch for branch in answer.flow.branches}
        for status in answer.found:
            positions = status.checkpoint.positions if status.checkpoint else {}
            branch = branches[status.branch]
            for metric, labels, value in lag_samples(answer.flow, branch, status.lag, positions):
                yield Sample(Series(metric.name, (*flow, *labels)), value)


def _of_languages(answers: Sequence[Answer]) -> Iterator[Metric]:
    """Labels of Prometheus have no dots: `table.id` is `table_id`."""
    families: dict[str, GaugeMetricFamily] = {}
    for answer in answers:
        language = languages()[answer.flow.language]
        for status in answer.found:
            for one in language.lag_metrics(answer.flow, status.lag):
                labels = [name.replace(".", "_") for name in one.tags]
                family = families.setdefault(
                    one.name, GaugeMetricFamily(one.name, one.help, None, labels)
                )
                family.add_metric([*one.tags.values()], one.value)
    yield from families.values()
