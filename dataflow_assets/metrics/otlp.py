"""Export to OpenTelemetry, where its standard environment variables ask for it (OTLP over HTTP).

Metrics are those that Prometheus gets, of this process; each micro-batch is one trace. Needs the
extra `opentelemetry`.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as points
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from dataflow_assets.metrics.declarations import BY_NAME, Metric
from dataflow_assets.metrics.recorder import MicroBatch, Recorder
from dataflow_assets.metrics.store import Sample

_SCOPE = InstrumentationScope("dataflow-assets")
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_SECONDS = 60.0

log = logging.getLogger(__name__)


def start(own: Recorder) -> None:
    """Exports from now on what a recorder has, and at the end of the process what is left."""
    named = map(os.environ.get, ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"))
    default = {} if any(named) else {"service.name": "dataflow-assets"}
    resource = Resource.create(default)
    if os.environ.get("OTEL_TRACES_EXPORTER") != "none":
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        own.trace_by(_tracing(provider))
    if os.environ.get("OTEL_METRICS_EXPORTER") != "none":
        exporter, began = OTLPMetricExporter(), time.time_ns()

        def export() -> None:
            exporter.export(metrics_data(own.samples(), resource, began, time.time_ns()))

        atexit.register(export)
        threading.Thread(target=_repeat, args=(export,), name="otlp", daemon=True).start()


def _repeat(export: Callable[[], None]) -> None:
    seconds = float(os.environ.get(_INTERVAL) or _SECONDS * 1000) / 1000
    ended = threading.Event()
    while not ended.wait(seconds):
        try:
            export()
        except Exception:  # the next one tells the same counters
            log.exception("metrics could not be exported")


def _tracing(provider: TracerProvider) -> Callable[[MicroBatch], None]:
    tracer = provider.get_tracer(_SCOPE.name)

    def trace(batch: MicroBatch) -> None:
        """One span for the micro-batch, with one for each phase below it."""
        first, last = batch.timings[0], batch.timings[-1]
        root = tracer.start_span(
            "micro-batch", start_time=first.began, attributes=dict(batch.attributes)
        )
        if batch.error:
            root.set_status(Status(StatusCode.ERROR, batch.error))
        inside = set_span_in_context(root)
        for timing in batch.timings:
            span = tracer.start_span(timing.phase, inside, start_time=timing.began)
            if batch.error and timing is last:
                span.set_status(Status(StatusCode.ERROR, batch.error))
            span.end(timing.ended)
        root.end(last.ended)

    return trace


def metrics_data(
    samples: Sequence[Sample], resource: Resource, began: int, now: int
) -> points.MetricsData:
    """Returns what a process has counted since it `began`, as exporters take it."""
    by_name: dict[str, dict[tuple[str, ...], dict[str, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for sample in samples:
        one = sample.series
        by_name[one.name][one.labels][one.bucket] = sample.value
    metrics = [
        points.Metric(name, BY_NAME[name].help, "", _data(BY_NAME[name], series, began, now))
        for name, series in by_name.items()
    ]
    scope = points.ScopeMetrics(_SCOPE, metrics, "")
    return points.MetricsData([points.ResourceMetrics(resource, [scope], "")])


def _data(
    metric: Metric, series: Mapping[tuple[str, ...], Mapping[str, float]], began: int, now: int
) -> points.DataT:
    cumulative = points.AggregationTemporality.CUMULATIVE
    if metric.kind == "histogram":
        return points.Histogram(list(_histograms(metric, series, began, now)), cumulative)
    numbers = [
        points.NumberDataPoint(_attributes(metric, labels), began, now, parts[""])
        for labels, parts in series.items()
    ]
    return (
        points.Gauge(numbers) if metric.kind == "gauge" else points.Sum(numbers, cumulative, True)
    )


def _histograms(
    metric: Metric, series: Mapping[tuple[str, ...], Mapping[str, float]], began: int, now: int
) -> Iterator[points.HistogramDataPoint]:
    for labels, parts in series.items():
        counts = [int(parts.get(str(n), 0)) for n in range(len(metric.buckets) + 1)]
        yield points.HistogramDataPoint(
            attributes=_attributes(metric, labels),
            start_time_unix_nano=began,
            time_unix_nano=now,
            count=sum(counts),
            sum=parts.get("sum", 0.0),
            bucket_counts=counts,
            explicit_bounds=metric.buckets,
            min=None,  # type: ignore[arg-type]  # nobody has kept them, and OTLP may lack them
            max=None,  # type: ignore[arg-type]
        )


def _attributes(metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(metric.all_labels, labels, strict=True))
