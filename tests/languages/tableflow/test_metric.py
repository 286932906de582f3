"""Tableflow's own metric: how old what is not read is, by partition."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client import generate_latest

import devservers
from dataflow_assets.assets.metadata import language_metrics
from dataflow_assets.cli.metrics import registry
from dataflow_assets.contracts import Lag
from dataflow_assets.languages.tableflow.language import PARTITION_LAG, UNTAGGED
from dataflow_assets.manifests.load import load
from tests import ROOT
from tests.conftest import Topics
from tests.drained import drained
from tests.languages.tableflow.files import Bucket, Tableflow

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
    found = language_metrics(flow, LAG)[PARTITION_LAG]  # type: ignore[arg-type]
    assert found.data == [
        {**TAGS, "partition": "0", "value": 2.0},
        {**TAGS, "partition": "1", "value": 0.0},
    ]


def test_the_switch_leaves_the_partition_out(flow: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UNTAGGED, "partition")
    found = language_metrics(flow, LAG)[PARTITION_LAG]  # type: ignore[arg-type]
    assert found.data == [{**TAGS, "value": 2.0}]


def test_other_flows_have_none() -> None:
    flow = load(ROOT / "examples" / "kafka-to-iceberg.yaml").flows[0]
    assert language_metrics(flow, LAG) == {}


def test_prometheus_reads_it_beside_the_lags_of_all_flows(
    tmp_path: Path, kafka: devservers.Kafka, topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(f"file://{tmp_path}/lake")
    file = Tableflow(tmp_path / "tableflow.yaml", kafka.bootstrap, topic(2), bucket)
    flow = file.write()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    producer.produce(file.topic, json.dumps({"id": 1}).encode(), partition=0)
    assert producer.flush(10) == 0
    drained(flow)
    producer.produce(file.topic, b"{}", partition=1, timestamp=1_700_000_000_000)
    assert producer.flush(10) == 0
    found = _waiting(file, 'partition="1"')
    tags = f'table_id="{flow.slug}",table_name="{file.name}",topic="{file.topic}"'
    assert found[f'{PARTITION_LAG}{{partition="0",{tags}}}'] == 0.0
    assert found[f'{PARTITION_LAG}{{partition="1",{tags}}}'] > 10_000_000
    name = f'name="{flow.name}",namespace="{flow.namespace}"'
    own = f'branch="{flow.branches[0].id}",{name},table="{file.name}"'
    assert found[f"dataflow_lag_records{{{own}}}"] == 1.0
    assert found[f"dataflow_lag_known{{{name}}}"] == 1.0
    monkeypatch.setenv(UNTAGGED, "partition")
    assert _waiting(file, f"{PARTITION_LAG}{{table_id")[f"{PARTITION_LAG}{{{tags}}}"] > 10_000_000


def _waiting(file: Tableflow, name: str) -> dict[str, float]:
    """Returns the samples once a lag is there: a broker may not know of a record for a moment."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        samples = _samples(file)
        if any(name in one and value > 0 for one, value in samples.items()):
            return samples
    pytest.fail(f"no {name} in {sorted(samples)}")


def _samples(file: Tableflow) -> dict[str, float]:
    """The values of the text that Prometheus gets."""
    lines = generate_latest(registry([file.path])).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {_sorted(name): float(value) for name, _, value in pairs}


def _sorted(name: str) -> str:
    metric, _, labels = name.rstrip("}").partition("{")
    return f"{metric}{{{','.join(sorted(labels.split(',')))}}}"
