"""Alert rules: each fires on what it is for, by Prometheus' own tool, and not where all is well."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dataflow_assets.metrics import alerts
from dataflow_assets.metrics import declarations as metric
from dataflow_assets.metrics.alerts import ALERTS, Alert
from dataflow_assets.metrics.declarations import METRICS, Metric
from devservers.go_programs import PROMTOOL
from tests import ROOT

RULES = ROOT / "docs" / "monitoring" / "alerts.yaml"
FLOW = {"namespace": "shop", "name": "orders"}
AFTER = "70m"


Series = dict[tuple[Metric, tuple[str, ...]], str]


@dataclass(frozen=True)
class Case:
    """What breaks, minute by minute in Prometheus' notation: `0+6x75` grows by 6, 75 times."""

    alert: str
    broken: Series
    well: Series


def _one(alert: str, of: Metric, labels: tuple[str, ...], broken: str, well: str) -> Case:
    return Case(alert, {(of, labels): broken}, {(of, labels): well})


def _share(alert: str, of: Metric, labels: tuple[str, ...]) -> Case:
    read: Series = {(metric.RECEIVED, ("kafka",)): "0+600x75"}
    return Case(alert, {**read, (of, labels): "0+12x75"}, {**read, (of, labels): "0+3x75"})


def _slow(alert: str, of: Metric, well: float, broken: float) -> Case:
    def seen(bound: float) -> Series:
        """Every message takes as long as this bucket says."""
        buckets = [*of.buckets, float("inf")]
        return {
            (of, ("+Inf" if at == float("inf") else str(at),)): "0+60x75" if at >= bound else "0x75"
            for at in buckets
        }

    return Case(alert, seen(broken), seen(well))


TABLE = ("postgresql:orders", "orders")
CASES = (
    _one("DataFlowInError", metric.STATUS, ("Error",), "1x75", "0x75"),
    _one("DataFlowConnectorDisconnected", metric.CONNECTION, ("kafka", "source"), "0x75", "1x75"),
    _share("DataFlowHighErrorRate", metric.ERRORS, ("kafka", "source", "read", "TransientError")),
    _slow("DataFlowSlowProcessing", metric.PROCESSING, 0.512, 2.048),
    _one("DataFlowLowTaskSuccessRate", metric.SUCCESS, (), "0.9x75", "1x75"),
    _slow("DataFlowHighE2ELatency", metric.END_TO_END, 4.096, 16.384),
    Case(
        "DataFlowLate",
        {(metric.LAG_SECONDS, TABLE): "301x75", (metric.FRESHNESS, ()): "10x75"},
        {(metric.LAG_SECONDS, TABLE): "301x75", (metric.FRESHNESS, ()): "3600x75"},
    ),
    _one("DataFlowLagUnknown", metric.LAG_KNOWN, (), "0x75", "1x75"),
    _share("DataFlowRejectsRecords", metric.REJECTED, ("decode", "invalid_data")),
    _one("DataFlowSlotRetainsLog", metric.RETAINED, (), "2e9x75", "1e9x75"),
    _one("DataFlowManyFiles", metric.FILES, TABLE, "10001x75", "9999x75"),
    _one("DataFlowLaneStuck", metric.LANE_PROGRESS, ("shared",), "0x75", "0+60x75"),
)


def test_every_alert_has_a_case_and_is_about_declared_metrics() -> None:
    assert [case.alert for case in CASES] == [alert.name for alert in ALERTS]
    names = {metric.name for metric in METRICS}
    for alert in ALERTS:
        used = set(re.findall(r"dataflow_\w+", alert.condition))
        assert used
        assert {name.removesuffix("_bucket") for name in used} <= names, alert.name


def test_a_quantile_can_exceed_what_its_alert_asks_for() -> None:
    """Of the DataFlow Operator's own buckets it cannot: it is never above the last of them."""
    bounds = {
        "DataFlowSlowProcessing": metric.PROCESSING,
        "DataFlowHighE2ELatency": metric.END_TO_END,
    }
    for alert in ALERTS:
        if of := bounds.get(alert.name):
            assert float(alert.condition.rpartition(">")[2]) < of.buckets[-2]


@pytest.mark.full
def test_prometheus_evaluates_the_rules(tmp_path: Path) -> None:
    """Skipped where its tool is not built: no package has it, and building takes ten minutes."""
    if reason := PROMTOOL.missing():
        pytest.skip(reason)
    tests = [_rule_test(case, alert, fires) for case, alert in zip(CASES, ALERTS, strict=True)
             for fires in (True, False)]  # fmt: skip
    file = tmp_path / "tests.yaml"
    YAML().dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}, file)
    done = subprocess.run(
        [PROMTOOL.binary, "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_file_holds_the_rules() -> None:
    rules = YAML(typ="safe").load(alerts.render())["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules] == [alert.name for alert in ALERTS]
    assert RULES.read_text(encoding="utf-8") == alerts.render()


def _rule_test(case: Case, alert: Alert, fires: bool) -> dict[str, object]:
    series = case.broken if fires else case.well
    assert all(len(values) <= 20 for values in series.values())
    return {
        "name": f"{alert.name} {fires}",
        "interval": "1m",
        "input_series": [
            {"series": _name(*key), "values": values} for key, values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert.name}", alertstate="firing"}}) '
                "or vector(0)",
                "eval_time": AFTER,
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }


def _name(of: Metric, labels: tuple[str, ...]) -> str:
    own = (*FLOW.values(), *labels) if of.of_flow else labels
    names = (*of.all_labels, "le") if of.buckets else of.all_labels
    pairs = ", ".join(f'{one}="{value}"' for one, value in zip(names, own, strict=True))
    return f"{of.name}{'_bucket' if of.buckets else ''}{{{pairs}}}"
