"""docs/reference/metrics.md: every metric of a flow."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.metrics.declarations import METRICS, Metric

_HEAD = """# Metrics

Generated from `dataflow_assets/metrics/declarations.py`. \
[Operating](../operating.md#metrics-and-alerts) says where they are served.

Every metric has the labels `namespace` and `name` of the flow, and those of its line.

Counters and histograms are of all runs on the machine, since the file that keeps them was made; \
they never go back. Messages count once their micro-batch is committed.

A gauge goes a minute after the run that has set it, but for those marked *kept*. Those marked \
*asked* are asked of sources and sinks on each scrape, whether a run drives the flow or not.
"""


def render() -> str:
    """The page."""
    return "\n".join([_HEAD, *_sections(), ""])


def _sections() -> Iterator[str]:
    yield from _section("Those of the DataFlow Operator", [m for m in METRICS if m.operator])
    yield ""
    yield from _section("Our own", [m for m in METRICS if not m.operator])
    yield ""
    yield "## Buckets\n"
    yield "Those of the operator come first; wider ones follow, so that its alerts can fire.\n"
    yield "| Metric | Upper bounds |\n|---|---|"
    for metric in METRICS:
        if metric.buckets:
            yield f"| `{metric.name}` | {', '.join(f'{bound:g}' for bound in metric.buckets)} |"


def _section(title: str, metrics: list[Metric]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| Metric | Kind | Labels | Meaning |\n|---|---|---|---|"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        mark = " *Kept.*" if metric.keeps else " *Asked.*" if metric.asked else ""
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help}{mark} |"
