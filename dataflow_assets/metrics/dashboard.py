"""The Grafana dashboard: a panel for each declared metric; `docs/monitoring/dashboard.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from dataflow_assets.metrics import declarations
from dataflow_assets.metrics.declarations import METRICS, Metric

_FIRST = (
    declarations.STATUS,
    declarations.LAG_SECONDS,
    declarations.RECEIVED,
    declarations.SENT,
    declarations.REJECTED,
    declarations.ERRORS,
)
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3
_UNITS = {"seconds": "s", "bytes": "bytes", "second": "ops"}


def render() -> str:
    """The dashboard as Grafana imports it."""
    rest = [metric for metric in METRICS if metric not in _FIRST]
    rows = (
        ("Overview", _FIRST),
        ("Those of the DataFlow Operator", [metric for metric in rest if metric.operator]),
        ("Our own", [metric for metric in rest if not metric.operator]),
    )
    dashboard = {
        "title": "dataflow-assets",
        "uid": "dataflow-assets",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_data_source(), *map(_variable, declarations.FLOW)]},
        "panels": [{"id": n, **one} for n, one in enumerate(_panels(rows), 1)],
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _panels(rows: Sequence[tuple[str, Sequence[Metric]]]) -> Iterator[dict[str, Any]]:
    top = 0
    for title, metrics in rows:
        yield {"type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}}
        for n, metric in enumerate(metrics):
            line, column = divmod(n, _COLUMNS)
            place = {"x": column * _WIDTH, "y": top + 1 + line * _HEIGHT}
            yield _panel(metric) | {"gridPos": {**place, "w": _WIDTH, "h": _HEIGHT}}
        top += 1 + -(-len(metrics) // _COLUMNS) * _HEIGHT


def _panel(metric: Metric) -> dict[str, Any]:
    title = metric.name.removeprefix("dataflow_").removesuffix("_total").replace("_", " ")
    per_second = metric.kind == "counter"
    unit = "short" if per_second else _UNITS.get(metric.name.rpartition("_")[2], "short")
    return {
        "type": "timeseries",
        "title": f"{title} per second" if per_second else title,
        "description": metric.help,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {"refId": ref, "expr": query, "legendFormat": legend}
            for ref, (query, legend) in zip("ABC", _queries(metric), strict=False)
        ],
    }


def _queries(metric: Metric) -> Iterator[tuple[str, str]]:
    labels = ", ".join(metric.all_labels)
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.all_labels)
    chosen = ", ".join(f'{one}=~"${one}"' for one in declarations.FLOW if one in metric.all_labels)
    if metric.kind == "gauge":
        clock = "time() - " if metric.name.endswith("_timestamp_seconds") else ""
        yield f"{clock}{metric.name}{{{chosen}}}", legend
    elif metric.kind == "counter":
        yield f"sum by ({labels}) (rate({metric.name}{{{chosen}}}[$__rate_interval]))", legend
    else:
        rate = f"rate({metric.name}_bucket{{{chosen}}}[$__rate_interval])"
        for share in (0.5, 0.95, 0.99):
            query = f"histogram_quantile({share}, sum by ({labels}, le) ({rate}))"
            yield query, f"p{share * 100:g} {legend}"


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _variable(label: str) -> dict[str, Any]:
    query = f"label_values({declarations.STATUS.name}, {label})"
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
