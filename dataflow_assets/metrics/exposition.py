"""Makes the metrics that Prometheus' client prints of samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family

from dataflow_assets.metrics.declarations import BY_NAME, STATUS, Metric
from dataflow_assets.metrics.store import STALE_SECONDS, Sample

Labels = tuple[str, ...]


def families(samples: Iterable[Sample], *, asked: bool = True) -> Iterator[Family]:
    """Each metric with all its series; of an earlier version's what is not declared is left out.

    `asked`: those among them for which sources and sinks are asked.
    """
    found: dict[str, dict[Labels, dict[str, Sample]]] = defaultdict(lambda: defaultdict(dict))
    for sample in samples:
        found[sample.series.name][sample.series.labels][sample.series.bucket] = sample
    for name, series in found.items():
        metric = BY_NAME.get(name)
        if metric is not None and (asked or not metric.asked):
            fitting = {
                labels: parts
                for labels, parts in series.items()
                if len(labels) == len(metric.all_labels)
            }
            yield _family(metric, fitting)


def _family(metric: Metric, series: Mapping[Labels, Mapping[str, Sample]]) -> Family:
    if metric.kind == "histogram":
        return _histogram(metric, series)
    values = {labels: parts[""] for labels, parts in series.items() if "" in parts}
    if metric.kind == "counter":
        counter = CounterMetricFamily(metric.name, metric.help, labels=metric.all_labels)
        for labels, sample in values.items():
            counter.add_metric(labels, sample.value)
        return counter
    gauge = GaugeMetricFamily(metric.name, metric.help, labels=metric.all_labels)
    for labels, sample in values.items():
        if metric is STATUS:
            gauge.add_metric(labels, _status(labels, values))
        elif metric.keeps or sample.age <= STALE_SECONDS:
            gauge.add_metric(labels, sample.value)
    return gauge


def _histogram(metric: Metric, series: Mapping[Labels, Mapping[str, Sample]]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.all_labels)
    bounds = [*map(str, metric.buckets), "+Inf"]
    for labels, parts in series.items():
        counts = [parts[str(n)].value if str(n) in parts else 0.0 for n in range(len(bounds))]
        total = parts["sum"].value if "sum" in parts else 0.0
        family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
    return family


def _status(labels: Labels, values: Mapping[Labels, Sample]) -> float:
    """A flow whose process is gone without a word runs no more."""
    *flow, state = labels
    running = values.get((*flow, "Running"))
    if running is None or not running.value or running.age <= STALE_SECONDS:
        return values[labels].value
    return float(state == "Stopped")
