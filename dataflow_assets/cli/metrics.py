"""`dataflow metrics`: how far flows are behind, in the text format of Prometheus.

Asked on each scrape, of the sources and sinks themselves: whichever process drives the flows, or
none, the values are true. Servers are asked again only when an answer is older than `STALE`.
"""

from __future__ import annotations

import signal
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from dataflow_assets.cli import selection
from dataflow_assets.cli.console import out
from dataflow_assets.languages.language import languages
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.statuses import Answer, statuses

STALE = 5.0  # seconds
_BRANCH = ("flow", "branch", "table")
_LAGS = (
    ("dataflow_lag_records", "Records that a branch of a flow has not stored."),
    ("dataflow_lag_seconds", "Age of the oldest record that a branch of a flow has not stored."),
)


def metrics(asked: Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C; the folders are read again for each answer."""
    selection.say_findings(load(asked.paths))
    host, port = asked.listen
    server, thread = start_http_server(port, host, registry(asked.paths))
    out(f"http://{host}:{server.server_port}/metrics")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        ended.wait()
    finally:
        server.shutdown()
        thread.join()
    return 0


def registry(paths: Sequence[Path]) -> CollectorRegistry:
    """The metrics of the flows in these files and folders."""
    metrics = CollectorRegistry()
    metrics.register(_Lags(paths))
    return metrics


class _Lags(Collector):
    """Lags of all flows that are not suspended, and of which of them they are known."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._asking = threading.Lock()
        self._answers: Sequence[Answer] = ()
        self._asked = -STALE

    @override
    def collect(self) -> Iterator[Metric]:
        answers = self._current()
        family = GaugeMetricFamily(
            "dataflow_lag_known", "1 where the lag of a flow could be found out, else 0.", None,
            ["flow"],
        )  # fmt: skip
        for answer in answers:
            family.add_metric([answer.flow.id], float(answer.error is None))
        yield family
        yield from _of_branches(answers)
        yield from _of_languages(answers)

    def _current(self) -> Sequence[Answer]:
        with self._asking:
            if time.monotonic() - self._asked >= STALE:
                flows = [flow for flow in load(self._paths).flows if not flow.suspended]
                self._answers, self._asked = statuses(flows), time.monotonic()
            return self._answers


def _of_branches(answers: Sequence[Answer]) -> Iterator[Metric]:
    families = [GaugeMetricFamily(name, text, None, _BRANCH) for name, text in _LAGS]
    for status in (status for answer in answers for status in answer.found):
        labels = [status.flow, status.branch, status.address.name]
        for family, value in zip(families, (status.lag.records, status.lag.seconds), strict=True):
            if value is not None:
                family.add_metric(labels, value)
    yield from families


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
