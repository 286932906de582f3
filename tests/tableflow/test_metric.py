"""Tableflow's own metric: how old what is not read is, by partition."""

from __future__ import annotations

import pytest

from dataflow_assets.assets.metadata import PARTITION_LAG, UNTAGGED, partition_lags
from dataflow_assets.contracts import Lag
from dataflow_assets.manifests.load import load
from tests import ROOT

LAG = Lag(5, 2.0, {"0": 9, "1": 4}, partitions={"0": 2.00049, "1": 0.0})
TAGS = {
    "table.id": "tableflow_cluster_1_example_json_logs_topic",
    "table.name": "tableflow_cluster_1+example_json_logs_topic",
    "topic": "example_json_logs_topic",
}


@pytest.fixture(scope="module")
def flow() -> object:
    return load(ROOT / "examples" / "tableflow" / "tableflow.yaml").flows[0]


def test_a_value_for_each_partition_with_its_tags(flow: object) -> None:
    found = partition_lags(flow, LAG)[PARTITION_LAG]  # type: ignore[arg-type]
    assert found.data == [
        {**TAGS, "partition": "0", "value": 2.0},
        {**TAGS, "partition": "1", "value": 0.0},
    ]


def test_the_switch_leaves_the_partition_out(flow: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UNTAGGED, "partition")
    found = partition_lags(flow, LAG)[PARTITION_LAG]  # type: ignore[arg-type]
    assert found.data == [{**TAGS, "value": 2.0}]


def test_other_flows_have_none() -> None:
    flow = load(ROOT / "examples" / "kafka-to-iceberg.yaml").flows[0]
    assert partition_lags(flow, LAG) == {}
