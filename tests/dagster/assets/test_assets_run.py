"""One run of a flow through Dagster: events, checks, the launchpad, failures, stops."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets import leases, mirror
from dataflow_assets.assets.drivers import FlowDriver
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.memory.source.session import MemoryOffsetSession
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from tests.dagster.flows import location, memory_flow


class Shop:
    """A code location over one store; its passes run in this process, with --full on Spark."""

    def __init__(self, store: Store, instance: dg.DagsterInstance, spark: SparkSession) -> None:
        self.store, self.instance, self.spark = store, instance, spark
        self.flows: list[Flow] = [memory_flow(store)]

    def produce(self, ids: Sequence[int], raw: Sequence[bytes] = ()) -> None:
        for partition in (0, 1):
            bodies = [
                json.dumps({"id": i, "name": f"n{i}"}).encode() for i in ids if i % 2 == partition
            ]
            self.store.produce("orders", partition, bodies + (list(raw) if partition == 0 else []))

    def rows(self, table: str = "orders") -> list[int]:
        found = self.store.query("select row from rows where name = ?", table)
        return sorted(json.loads(row)["id"] for (row,) in found)

    def run(self, job: str = "orders_job", **config: Any) -> dg.ExecuteInProcessResult:
        defs = location(self.flows, self.spark)
        run_config = {"ops": {job.removesuffix("_job"): {"config": config}}}
        return defs.resolve_job_def(job).execute_in_process(
            run_config=run_config, instance=self.instance, raise_on_error=False
        )

    def events(self, table: str = "orders") -> list[Any]:
        key = dg.AssetKey(["memory", self.name, table])
        records = self.instance.fetch_materializations(key, limit=50, ascending=True).records
        return [record.asset_materialization for record in records if record.asset_materialization]

    @property
    def name(self) -> str:
        source: Any = self.flows[0].source
        return str(source.store).replace("-", "_")


@pytest.fixture
def shop(store: Store, instance: dg.DagsterInstance, engine: SparkSession) -> Shop:
    return Shop(store, instance, engine)


def test_an_asset_drains_its_flow_and_shows_its_checkpoint(shop: Shop) -> None:
    shop.produce(range(10), raw=[b"no json"])
    result = shop.run()
    assert result.success
    assert shop.rows() == list(range(10))
    (event,) = shop.events()
    assert list(event.metadata)[:6] == [
        "checkpoint",
        "lag_seconds",
        "lag_records",
        "rows",
        "rejected",
        "rows_per_second",
    ]
    assert event.metadata["rows"].value == 10
    assert event.metadata["rejected"].value == 1
    assert event.metadata["lag_records"].value == 0
    checkpoint = event.metadata["checkpoint"].value
    assert checkpoint["positions"] == {"0": 6, "1": 5}
    assert event.tags["dagster/data_version"] == mirror.version_of(checkpoint)
    columns = event.metadata["dagster/column_schema"].value.columns
    assert [(c.name, c.constraints.nullable) for c in columns] == [("id", False), ("name", True)]


def test_nothing_new_means_no_event(shop: Shop) -> None:
    shop.produce(range(4))
    shop.run()
    result = shop.run()
    assert result.success
    assert len(shop.events()) == 1
    assert not result.asset_materializations_for_node("orders")


def test_a_lost_mirror_is_renewed_although_nothing_is_new(shop: Shop) -> None:
    shop.produce(range(4))
    shop.run()
    shop.instance.wipe_assets([dg.AssetKey(["memory", shop.name, "orders"])])
    shop.run()
    (event,) = shop.events()
    assert event.metadata["rows"].value == 0
    assert shop.rows() == [0, 1, 2, 3]


def test_the_checks_tell_lag_and_rejected(shop: Shop) -> None:
    shop.produce([1], raw=[b"no json"])
    found = {c.check_name: c for c in shop.run().get_asset_check_evaluations()}
    assert found["lag"].passed
    assert not found["rejected"].passed
    assert found["rejected"].metadata["rejected_in_total"].value == 1


def test_the_launchpad_rewinds_and_truncates(shop: Shop) -> None:
    shop.produce(range(4))
    shop.run()
    refused = shop.run(start="earliest")
    assert not refused.success
    assert "confirm" in _error(refused)
    assert shop.run(start="earliest", table="truncate").success
    assert shop.rows() == [0, 1, 2, 3]
    assert shop.run(start="offsets", offsets={"0": 1}, confirm=True).success
    assert shop.rows() == [0, 1, 1, 2, 2, 3, 3]


def test_a_permanent_failure_says_why_and_switches_off_every_retry(shop: Shop) -> None:
    shop.produce([1])
    result = shop.run(start="timestamp", table="truncate")
    assert "needs a timestamp" in _error(result)
    run = shop.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags["dagster/max_retries"] == "0"
    assert "needs a timestamp" in run.tags["dataflow/error"]


def test_an_unforeseen_error_is_told_without_secrets(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("postgresql://user:hunter22@host/db said no")

    monkeypatch.setattr(type(shop.flows[0].source), "open", broken)
    result = shop.run()
    text = "\n".join(str(event) for event in shop.instance.all_logs(result.run_id))
    assert "unexpected RuntimeError" in text
    assert "hunter22" not in text


def test_a_second_run_ends_green_with_a_link_to_the_first(shop: Shop) -> None:
    shop.produce([1])
    first = _live_run(shop, FlowDriver.here())
    result = shop.run()
    assert result.success
    assert shop.rows() == []
    assert f"/runs/{first}" in _logged(shop, result)


def test_a_dead_run_does_not_block_its_flow(shop: Shop) -> None:
    shop.produce([1])
    here = FlowDriver.here()
    dead = _live_run(shop, replace(here, started=here.started - 1))
    assert shop.run().success
    assert shop.rows() == [1]
    run = shop.instance.get_run_by_id(dead)
    assert run is not None
    assert run.status == dg.DagsterRunStatus.FAILURE


def test_a_signal_ends_the_run_green_after_its_micro_batch(shop: Shop) -> None:
    shop.produce(range(6))

    def interrupt() -> None:
        _wait_for(shop, 6)
        shop.produce([6])  # committed only once Dagster consumes the output of the step
        _wait_for(shop, 7)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    result = shop.run(seconds=120.0)
    assert result.success
    assert shop.rows() == list(range(7))
    assert shop.events()[-1].metadata["ended"].value == "it was asked to stop"


def _wait_for(shop: Shop, rows: int) -> None:
    while len(shop.rows()) < rows:
        time.sleep(0.1)


def test_an_edited_manifest_ends_the_run(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("# gone")
    shop.flows = [memory_flow(shop.store, file=file)]
    shop.produce(range(6))
    assert shop.run(seconds=120.0).success
    assert "is no longer in its file" in shop.events()[-1].metadata["ended"].value


def test_a_failing_run_still_shows_what_it_committed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.produce(range(4))

    def acknowledge(*_: object) -> None:
        raise PermanentError("the broker threw us out")

    monkeypatch.setattr(MemoryOffsetSession, "acknowledge", acknowledge)
    result = shop.run()
    assert not result.success
    (event,) = shop.events()
    assert event.metadata["rows"].value == 4
    assert "threw us out" in _error(result)


def _live_run(shop: Shop, driver: FlowDriver) -> str:
    """A run that looks as if it were driving the flow."""
    run = location(shop.flows, shop.spark).resolve_job_def("orders_job")
    made = shop.instance.create_run_for_job(
        run,
        status=dg.DagsterRunStatus.STARTED,
        tags={leases.DRIVES: "true"},
    )
    own = {f"{leases.DRIVER}/{shop.flows[0].id}": leases.value(made.run_id, driver)}
    shop.instance.add_run_tags(made.run_id, own)
    return made.run_id


def _error(result: dg.ExecuteInProcessResult) -> str:
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    data = failure.step_failure_data
    return f"{data.user_failure_data} {data.error}"


def _logged(shop: Shop, result: dg.ExecuteInProcessResult) -> str:
    return "\n".join(entry.user_message for entry in shop.instance.all_logs(result.run_id))
