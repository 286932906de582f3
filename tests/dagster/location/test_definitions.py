"""The code location: what a set of flows comes to, what a broken one does, what loading costs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import definitions
from tests import ROOT

MANIFEST = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: {name}
  labels: {{team: shop}}
  annotations:
    dataflow-assets/source-connection: {source_connection}
    dataflow-assets/sink-connection: {sink_connection}
    dataflow-assets/owners: sales, ada@example.com
spec:
  source:
    type: {source}
    config: {source_config}
  sink:
    type: {sink}
    config: {sink_config}
"""
USER = '''\
import dagster as dg


@dg.asset(
    key=["postgresql", "shop", "public", "revenue"],
    ins={"orders": dg.AssetIn(key=["iceberg", "lake", "shop", "orders"])},
    io_manager_key="postgresql",
    automation_condition=dg.AutomationCondition.eager(),
)
def revenue(orders):
    """Revenue by day."""
    return orders.groupBy("day").sum("total")
'''


def kafka(name: str, topic: str, sink: str, **sink_config: Any) -> str:
    config = {"brokers": ["nowhere:9092"], "topic": topic, "consumerGroup": name}
    connection = "lake" if sink == "iceberg" else "shop"
    return MANIFEST.format(
        name=name,
        source="kafka",
        source_config=json.dumps(config),
        source_connection="events",
        sink=sink,
        sink_config=json.dumps(sink_config),
        sink_connection=connection,
    )


def to_postgresql(name: str, topic: str, table: str) -> str:
    dsn = "postgresql://shop:hunter22@nowhere/shop"
    return kafka(name, topic, "postgresql", connectionString=dsn, table=table)


def to_iceberg(name: str, topic: str, table: str) -> str:
    config = {"catalogURI": "http://nowhere:8181", "namespace": "shop", "table": table}
    return kafka(name, topic, "iceberg", **config)


def memory(name: str, topic: str, table: str) -> str:
    return MANIFEST.format(
        name=name,
        source="memory-offsets",
        source_config=json.dumps({"store": "s", "topic": topic}),
        source_connection="ring",
        sink="memory-slice",
        sink_config=json.dumps({"store": "s", "table": table}),
        sink_connection="ring",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Several flows into one table, a cycle, a user's asset, and a flow of each system."""
    files = {
        "orders.yaml": to_postgresql("orders", "orders", "public.orders")
        + "  onRejected: table  # so that there is something to replay\n",
        "history.yaml": to_iceberg("order-history", "orders", "orders"),
        "shared.yaml": to_postgresql("eu", "eu.orders", "all_orders")
        + "---\n"
        + to_postgresql("us", "us.orders", "all_orders"),
        "ring.yaml": memory("there", "x", "y") + "---\n" + memory("back", "y", "x"),
        "revenue.py": USER,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_set_of_flows_loaded_together(folder: Path) -> None:
    defs = definitions.build([folder])
    repository = defs.get_repository_def()
    graph = defs.resolve_asset_graph()
    edges = {
        key.to_user_string(): sorted(up.to_user_string() for up in graph.get(key).parent_keys)
        for key in graph.get_all_asset_keys()
    }
    assert edges == {
        "iceberg/lake/shop/orders": ["kafka/events/orders"],
        "kafka/events/eu_orders": [],
        "kafka/events/orders": [],
        "kafka/events/us_orders": [],
        "memory/ring/x": [],
        "memory/ring/y": [],
        "postgresql/shop/public/all_orders": [
            "postgresql/shop/public/all_orders/eu",
            "postgresql/shop/public/all_orders/us",
        ],
        "postgresql/shop/public/all_orders/eu": ["kafka/events/eu_orders"],
        "postgresql/shop/public/all_orders/us": ["kafka/events/us_orders"],
        "postgresql/shop/public/orders": ["kafka/events/orders"],
        "postgresql/shop/public/revenue": ["iceberg/lake/shop/orders"],
    } | {"memory/ring/x": ["memory/ring/y"]}
    flows = ["back", "eu", "order_history", "orders", "there", "us"]
    jobs = {name for name in repository.job_names if not name.startswith("__")}
    assert jobs == {f"{flow}_job" for flow in flows} | {
        "ingest",
        "replay",
        "retention",
        "iceberg_maintenance",
    }
    sensors = {sensor.name for sensor in repository.sensor_defs}
    assert sensors == {f"{flow}_sensor" for flow in flows} | {
        "automation",
        "files",
        "ingest",
        "lag",
    }
    schedules = {schedule.name: schedule.default_status for schedule in repository.schedule_defs}
    assert schedules == dict.fromkeys(
        ["retention_schedule", "iceberg_maintenance_schedule"], dg.DefaultScheduleStatus.STOPPED
    )


def test_without_assets_of_users_there_is_nothing_to_automate(folder: Path) -> None:
    (folder / "revenue.py").unlink()
    sensors = definitions.build([folder]).get_repository_def().sensor_defs
    assert {sensor.name for sensor in sensors} & {"automation", "files"} == {"files"}


def test_brokers_that_are_spelled_differently_are_one_topic_by_the_setting(folder: Path) -> None:
    for name, broker in (("east", "localhost:9092"), ("west", "127.0.0.1:9092")):
        text = to_postgresql(name, "clicks", name).replace("nowhere:9092", broker)
        text = text.replace("    dataflow-assets/source-connection: events\n", "")
        (folder / f"{name}.yaml").write_text(text)
    (folder / "connections.yaml").write_text("web: [localhost, 127.0.0.1]\n")
    graph = definitions.build([folder]).resolve_asset_graph()
    assert {
        child.to_user_string()
        for child in graph.get(dg.AssetKey(["kafka", "web", "clicks"])).child_keys
    } == {"postgresql/shop/public/east", "postgresql/shop/public/west"}


def test_an_asset_says_where_it_comes_from(folder: Path) -> None:
    spec = _spec(folder, ["postgresql", "shop", "public", "orders"])
    assert spec.kinds == {"postgres", "spark"}
    assert spec.owners == ["team:sales", "ada@example.com"]
    assert spec.tags["team"] == "shop"
    assert spec.metadata["dagster/table_name"] == "public.orders"
    assert spec.metadata["dagster/storage_kind"] == "postgresql"
    assert spec.metadata["dagster/uri"] == "postgresql://shop/public.orders"
    (reference,) = spec.metadata["dagster/code_references"].code_references
    assert (Path(reference.file_path).name, reference.line_number) == ("orders.yaml", 1)
    assert "`orders` (kafka) -> `public.orders` (postgresql), appended" in (spec.description or "")
    assert "hunter22" not in str(spec)


def test_a_left_out_edge_is_told(folder: Path) -> None:
    notes = [_spec(folder, ["memory", "ring", name]).description or "" for name in ("x", "y")]
    assert sum("has no cycles" in note for note in notes) == 1


def test_one_broken_manifest_does_not_hide_the_others(folder: Path) -> None:
    broken = folder / "broken.yaml"
    broken.write_text(memory("bad", "t", "u").replace("topic", "topik"))
    defs = definitions.build([folder])
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert "postgresql/shop/public/orders" in keys
    (key,) = [key for key in keys if key.startswith("broken/")]
    check = defs.get_asset_checks_def(
        dg.AssetCheckKey(dg.AssetKey.from_user_string(key), "manifest")
    )
    result: Any = dg.materialize([check], selection=dg.AssetSelection.all_asset_checks())
    (evaluation,) = result.get_asset_check_evaluations()
    assert not evaluation.passed
    assert "broken.yaml" in evaluation.metadata["findings"].value
    assert "topik" in evaluation.metadata["findings"].value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("raise KeyError('x')\n", "KeyError"),
        (USER.replace("postgresql", "elsewhere"), "elsewhere"),
        (USER, "revenue"),
    ],
    ids=["syntax", "import", "resource", "same key"],
)
def test_one_broken_python_file_does_not_hide_the_others(
    folder: Path, text: str, message: str
) -> None:
    (folder / "zebra.py").write_text(text)
    defs = definitions.build([folder])
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert "postgresql/shop/public/revenue" in keys
    (key,) = [key for key in keys if key.startswith("broken/")]
    graph = defs.resolve_asset_graph()
    assert message in (graph.get(dg.AssetKey.from_user_string(key)).description or "")


def test_an_empty_or_missing_folder_loads(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        jobs = definitions.build([folder]).get_repository_def().job_names
        assert "retention" in jobs


@pytest.mark.alone
def test_loading_is_quick_and_imports_no_client_of_spark_or_kubernetes(tmp_path: Path) -> None:
    for number in range(48):
        text = to_postgresql(f"flow{number}", f"topic{number}", f"table{number}")
        (tmp_path / f"flow{number}.yaml").write_text(text)
    code = (
        "import time; began = time.process_time(); import sys, definitions;"
        "definitions.defs.get_repository_def();"
        "print(time.process_time() - began, *[m for m in ('pyspark', 'kubernetes') "
        "if m in sys.modules])"
    )
    seconds, *imported = _python(["-c", code], tmp_path).stdout.split()
    assert not imported
    assert float(seconds) < 4.0  # of CPU, on a busy machine; measured idle: see ARCHITECTURE.md


def test_the_location_validates(folder: Path) -> None:
    done = _python(["-m", "dagster", "definitions", "validate"], folder)
    assert "Validation successful for code location dataflow-assets" in done.stderr + done.stdout


def test_a_missing_home_is_told(tmp_path: Path) -> None:
    assert "DAGSTER_HOME is not set" in _python(["-c", "import definitions"], tmp_path).stderr


def _spec(folder: Path, key: list[str]) -> dg.AssetSpec:
    defs = definitions.build([folder])
    return next(spec for spec in defs.resolve_all_asset_specs() if spec.key == dg.AssetKey(key))


def _python(arguments: list[str], flows: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "DAGSTER_HOME"}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**env, "DATAFLOW_FLOWS": str(flows)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
