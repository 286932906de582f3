"""Export to OpenTelemetry: a process that ends has sent its metrics and a trace per micro-batch."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

_PROCESS = """
from dataflow_assets.metrics.declarations import LAG_RECORDS, PROCESSING, SENT
from dataflow_assets.metrics.process import recorder
from dataflow_assets.metrics.recorder import MicroBatch, Timing

own, flow = recorder(), ("shop", "orders")
own.count(SENT, *flow, "kafka", "default", by=3)
own.set(LAG_RECORDS, *flow, "b", "t", value=7)
own.observe(PROCESSING, *flow, value=0.003, times=3)
names = {"namespace": "shop", "name": "orders"}
phases = ("plan", "begin", "pass", "finish")
own.trace(MicroBatch(names, [Timing(one, n, n + 1) for n, one in enumerate(phases, 1)]))
own.trace(MicroBatch(names, [Timing("plan", 10, 11), Timing("begin", 11, 12)], "TransientError"))
"""


class _Collector(BaseHTTPRequestHandler):
    received: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Nothing on the terminal."""


@pytest.fixture(scope="module")
def received() -> dict[str, bytes]:
    """What a collector gets of a process that counts, and ends: by path."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        environment = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_SERVICE_NAME": "lane",
        }
        command = [sys.executable, "-c", _PROCESS]
        subprocess.run(command, env=environment, check=True, timeout=120)
        server.shutdown()
        thread.join()
    return dict(_Collector.received)


def test_metrics_are_those_of_prometheus(received: dict[str, bytes]) -> None:
    (resource,) = ExportMetricsServiceRequest.FromString(received["/v1/metrics"]).resource_metrics
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert names["service.name"] == "lane"
    metrics = {one.name: one for one in resource.scope_metrics[0].metrics}
    sent = metrics["dataflow_messages_sent_total"].sum
    assert sent.is_monotonic
    (point,) = sent.data_points
    labels = {one.key: one.value.string_value for one in point.attributes}
    assert labels == {
        "namespace": "shop", "name": "orders", "sink_type": "kafka", "route": "default",
    }  # fmt: skip
    assert point.as_double == 3
    assert metrics["dataflow_lag_records"].gauge.data_points[0].as_int == 7
    seconds = metrics["dataflow_processing_duration_seconds"].histogram.data_points[0]
    assert (seconds.count, list(seconds.bucket_counts[:4])) == (3, [0, 0, 3, 0])


def test_each_micro_batch_is_a_trace(received: dict[str, bytes]) -> None:
    (resource,) = ExportTraceServiceRequest.FromString(received["/v1/traces"]).resource_spans
    spans = resource.scope_spans[0].spans
    well, failed = (one for one in spans if not one.parent_span_id)
    assert [one.name for one in _below(well, spans)] == ["plan", "begin", "pass", "finish"]
    assert (well.start_time_unix_nano, well.end_time_unix_nano) == (1, 5)
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert failed.status.message == "TransientError"
    plan, begin = _below(failed, spans)
    assert (plan.status.code, begin.status.code) == (
        Status.STATUS_CODE_UNSET,
        Status.STATUS_CODE_ERROR,
    )


def _below(root: Span, spans: Iterable[Span]) -> list[Span]:
    return [one for one in spans if one.parent_span_id == root.span_id]
