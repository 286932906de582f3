"""Alert rules for Prometheus, written with the declared names; `docs/monitoring/alerts.yaml`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from dataflow_assets.metrics import declarations as metric
from dataflow_assets.metrics.declarations import FLOW, Metric

LATE_SECONDS = 300  # the check `lag` of an asset fails from here on
RETAINED_BYTES = 1 << 30  # so does the check `slot`
_BY = ", ".join(FLOW)


@dataclass(frozen=True)
class Alert:
    """One rule: it fires where `condition` has held for `minutes`."""

    name: str
    condition: str
    minutes: int
    severity: str
    summary: str


def _rate(*metrics: Metric) -> str:
    names = "|".join(one.name for one in metrics)
    series = f'{{__name__=~"{names}"}}' if len(metrics) > 1 else names
    return f"sum by ({_BY}) (rate({series}[5m]))"


def _quantile(of: Metric, quantile: float) -> str:
    return f"histogram_quantile({quantile}, sum by ({_BY}, le) (rate({of.name}_bucket[5m])))"


ALERTS = (
    Alert("DataFlowInError", f'{metric.STATUS.name}{{phase="Error"}} == 1', 2, "critical",
          "the flow has failed, and tries again"),
    Alert("DataFlowConnectorDisconnected", f"{metric.CONNECTION.name} == 0", 5, "warning",
          "{{ $labels.connector_type }} ({{ $labels.connector_name }}) does not answer"),
    Alert("DataFlowHighErrorRate",
          f"{_rate(metric.ERRORS, metric.STEP_ERRORS)} / {_rate(metric.RECEIVED)} > 0.01",
          5, "warning", "more than 1 % of the messages meet an error"),
    Alert("DataFlowSlowProcessing", f"{_quantile(metric.PROCESSING, 0.95)} > 1", 5, "warning",
          "a message in twenty takes longer than a second"),
    Alert("DataFlowLowTaskSuccessRate", f"{metric.SUCCESS.name} < 0.95", 5, "warning",
          "passes or commits fail"),
    Alert("DataFlowHighE2ELatency", f"{_quantile(metric.END_TO_END, 0.99)} > 5", 5, "warning",
          "a message in a hundred is stored later than 5 s after it was seen"),
    Alert("DataFlowLate",
          f"{metric.LAG_SECONDS.name} > on ({_BY}) group_left () "
          f"clamp_min({metric.FRESHNESS.name}, {LATE_SECONDS})",
          5, "critical", "{{ $labels.table }} is {{ $value | humanizeDuration }} behind"),
    Alert("DataFlowLagUnknown", f"{metric.LAG_KNOWN.name} == 0", 5, "warning",
          "source or sink cannot be asked how far the flow is behind"),
    Alert("DataFlowRejectsRecords",
          f"{_rate(metric.REJECTED)} / {_rate(metric.RECEIVED)} > 0.01", 5, "warning",
          "more than 1 % of the messages are rejected"),
    Alert("DataFlowSlotRetainsLog", f"{metric.RETAINED.name} > {RETAINED_BYTES}", 5, "critical",
          "the source's server keeps {{ $value | humanize1024 }}B of log for the flow"),
    Alert("DataFlowManyFiles", f"{metric.FILES.name} > 10000", 60, "warning",
          "{{ $labels.table }} has {{ $value }} data files: is its maintenance switched on?"),
    Alert("DataFlowLaneStuck", f"time() - {metric.LANE_PROGRESS.name} > 600", 1, "critical",
          "the lane {{ $labels.lane }} has read and stored nothing for ten minutes"),
)  # fmt: skip


def render() -> str:
    """The rules as a file for `rule_files` of Prometheus."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Generated from dataflow_assets/metrics/alerts.py by `make docs`."
    yield "groups:\n  - name: dataflow\n    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: '{alert.condition}'"
        yield f"        for: {alert.minutes}m"
        yield f"        labels:\n          severity: {alert.severity}"
        where = "" if "lane" in alert.condition else "{{ $labels.namespace }}/{{ $labels.name }}: "
        yield f"        annotations:\n          summary: {json.dumps(where + alert.summary)}"
