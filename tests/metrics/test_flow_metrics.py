"""What flows count: every declared metric is set by some run, and counters never go back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import devservers
from dataflow_assets.cli.metrics import registry
from dataflow_assets.contracts import Lag
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.metrics import process
from dataflow_assets.metrics.declarations import (
    BY_NAME,
    FILES,
    FRESHNESS,
    LAG_RECORDS,
    METRICS,
    PARTITION_RECORDS,
    PARTITION_SECONDS,
    REJECTED,
    RETAINED,
    SENT,
    STATUS,
    THROUGHPUT,
)
from dataflow_assets.metrics.exposition import families
from dataflow_assets.metrics.recorder import Recorder
from dataflow_assets.metrics.store import (
    KEPT_SECONDS,
    STALE_SECONDS,
    MetricsStore,
    Sample,
    Series,
    store,
)
from dataflow_assets.runs.lag_metrics import lag_samples
from tests import ROOT
from tests.conftest import Topics
from tests.drained import drained
from tests.flows import manifest
from tests.languages.tableflow.files import Bucket, Tableflow

FLOW = ("default", "f")
Samples = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A process that keeps its metrics in a folder."""
    folder = tmp_path / "kept"
    monkeypatch.setenv("DATAFLOW_METRICS", str(folder))
    process._recorder_of.cache_clear()
    yield folder
    process.recorder().flush()
    process._recorder_of.cache_clear()


def test_each_metric_is_set_by_flows_that_run_and_fail(
    tmp_path: Path, kept: Path, kafka: devservers.Kafka, postgresql: devservers.PostgreSQL,
    topic: Topics, schema: str,
) -> None:  # fmt: skip
    name = topic(2)
    bodies = [b'{"id": 1, "at": "7"}', b'{"id": 2, "at": "x"}', b"no json", b'{"id": 3, "at": "8"}']
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for partition, body in enumerate(bodies):
        producer.produce(name, body, partition=partition % 2)
    assert producer.flush(10) == 0
    flow = _flow(tmp_path, kafka, name, postgresql.dsn(), schema)
    drained(flow)
    broken = _flow(tmp_path, kafka, name, "postgresql://127.0.0.1:1/postgres", schema)
    with pytest.raises(TransientError):
        drained(broken)

    samples = _samples(tmp_path)
    wanted = {metric.name for metric in METRICS if not metric.optional}
    changed = {name.removesuffix("_count") for name, series in samples.items() if series}
    assert wanted <= changed
    ours = (flow.namespace, flow.name)
    assert samples["dataflow_messages_received_total"][*ours, "kafka"] == 4
    assert samples[SENT.name][*ours, "postgresql", "default"] == 2
    assert samples[REJECTED.name] == {
        (*ours, "decode", "invalid_data"): 1.0,
        (*ours, "step", "invalid_data"): 1.0,
    }
    assert samples["dataflow_transformer_errors_total"] == {
        (*ours, "cast", "0", "invalid_data"): 1.0
    }
    assert samples["dataflow_processing_duration_seconds_count"][ours] == 4
    assert samples["dataflow_task_end_to_end_latency_seconds_count"][ours] == 4
    assert samples["dataflow_lag_records"][*ours, flow.branches[0].id, "target"] == 0
    assert _state(samples, flow) == "Stopped"
    assert _state(samples, broken) == "Error"
    theirs = (broken.namespace, broken.name)
    assert samples["dataflow_connector_connection_status"][*theirs, "postgresql", "sink"] == 0
    assert samples["dataflow_connector_connection_status"][*ours, "postgresql", "sink"] == 1


def test_an_iceberg_table_has_its_files(
    tmp_path: Path, kept: Path, kafka: devservers.Kafka, topic: Topics
) -> None:
    bucket = Bucket(f"file://{tmp_path}/lake")
    file = Tableflow(tmp_path / "tableflow.yaml", kafka.bootstrap, topic(1), bucket)
    flow = file.write()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    producer.produce(file.topic, b'{"id": 1}')
    assert producer.flush(10) == 0
    drained(flow)
    (files,) = [one for one in MetricsStore(kept).read() if one.series.name == FILES.name]
    labels = (flow.namespace, flow.name, flow.branches[0].id, file.name)
    assert (files.series.labels, files.value) == (labels, 1)


def test_a_lag_has_all_that_is_known_of_it_and_nothing_else() -> None:
    flow = load(ROOT / "examples" / "kafka-to-iceberg.yaml").flows[0]
    lag = Lag(5, None, {"0": 9, "wal": "0/1"}, held=7, partitions={"0": 2.5})
    samples = lag_samples(flow, flow.branches[0], lag, {"0": 4})
    found = {(metric.name, labels[2:]): value for metric, labels, value in samples}
    assert found == {
        (FRESHNESS.name, ()): 10.0,
        (LAG_RECORDS.name, ()): 5,
        (PARTITION_RECORDS.name, ("0",)): 5,
        (PARTITION_SECONDS.name, ("0",)): 2.5,
        (RETAINED.name, ()): 7,
    }


def test_counters_go_on_where_an_earlier_process_has_come_to(tmp_path: Path) -> None:
    for _ in range(2):
        process = Recorder(MetricsStore(tmp_path))
        process.count(SENT, *FLOW, "kafka", "default", by=5)
        process.flush()
        process.flush()
    assert [sample.value for sample in MetricsStore(tmp_path).read()] == [10.0]


def test_a_gauge_that_stays_as_it_is_does_not_get_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Recorder(MetricsStore(tmp_path))
    process.set(THROUGHPUT, *FLOW, value=3)
    assert [_time_of_write(process, tmp_path, monkeypatch, at) for at in (0, 10, 21)] == [0, 0, 21]


def test_what_nobody_has_touched_for_a_month_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, month = Recorder(MetricsStore(tmp_path)), KEPT_SECONDS
    process.count(SENT, *FLOW, "kafka", "default")
    process.flush()
    now = time.time()
    for later, left in ((month - 100, 1), (month + 100, 0)):
        monkeypatch.setattr(time, "time", lambda: now + later)  # noqa: B023 - called at once
        MetricsStore(tmp_path).tidy()
        assert len(MetricsStore(tmp_path).read()) == left


def _time_of_write(
    process: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> float:
    """When the one gauge was written last, after a flush so many seconds from the beginning."""
    monkeypatch.setattr(time, "time", lambda: 1e9 + at)
    monkeypatch.setattr(time, "monotonic", lambda: 1e6 + at)
    process.flush()
    (sample,) = MetricsStore(folder).read()
    return at - sample.age


def test_what_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.write_text("a file stands where the folder is to be")
    process = Recorder(MetricsStore(folder))
    process.count(SENT, *FLOW, "kafka", "default", by=5)
    process.flush()
    folder.unlink()
    process.flush()
    assert [sample.value for sample in MetricsStore(folder).read()] == [5.0]


def test_a_fork_does_not_write_what_its_parent_has_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Recorder(MetricsStore(tmp_path))
    process.count(SENT, *FLOW, "kafka", "default")
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    process.flush()
    assert MetricsStore(tmp_path).read() == []


def test_of_a_process_that_was_killed_counters_stay_and_gauges_go() -> None:
    old = STALE_SECONDS + 1
    states = {"Running": 1.0, "Error": 0.0, "Stopped": 0.0}
    told = [
        Sample(Series(SENT.name, (*FLOW, "kafka", "default")), 7, old),
        Sample(Series(THROUGHPUT.name, FLOW), 3, old),
        *(Sample(Series(STATUS.name, (*FLOW, state)), at, old) for state, at in states.items()),
    ]
    found = {family.name: family.samples for family in families(told)}
    assert [sample.value for sample in found["dataflow_messages_sent"]] == [7]
    assert found[THROUGHPUT.name] == []
    shown = {sample.labels["phase"]: sample.value for sample in found[STATUS.name]}
    assert shown == {"Running": 0.0, "Error": 0.0, "Stopped": 1.0}


def test_nothing_is_kept_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATAFLOW_METRICS", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert store() is None


def _flow(folder: Path, kafka: devservers.Kafka, topic: str, dsn: str, schema: str) -> Flow:
    path = manifest(
        folder,
        ("kafka", {"brokers": [kafka.bootstrap], "topic": topic, "consumerGroup": topic}),
        (
            "postgresql",
            {"connectionString": dsn, "table": f"{schema}.target", "autoCreateTable": True},
        ),
        onRejected="skip",
        transformations=[{"type": "cast", "config": {"spec": {"at": "int64"}}}],
    )
    return load(path).flows[0]


def _samples(folder: Path) -> Samples:
    """Of the text that Prometheus gets: by name and the values of labels, in their order."""
    found: Samples = {}
    text = generate_latest(registry(sorted(folder.glob("*.yaml")))).decode()
    for family in text_string_to_metric_families(text):
        metric = BY_NAME.get(family.name) or BY_NAME[f"{family.name}_total"]
        for sample in family.samples:
            labels = tuple(sample.labels[label] for label in metric.all_labels)
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def _state(samples: Samples, flow: Flow) -> str:
    flows = (flow.namespace, flow.name)
    (state,) = [
        labels[2] for labels, value in samples[STATUS.name].items() if value and labels[:2] == flows
    ]
    return state
