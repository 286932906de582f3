"""The chain of triggers after a scheduled run, as ops of the flow's job."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets import stopping
from dataflow_assets.connectors.memory import Store
from tests.dagster.schedules.scheduled import Scheduled, shell


@pytest.fixture
def cron(
    store: Store, instance: dg.DagsterInstance, engine: SparkSession, tmp_path: Path
) -> Scheduled:
    return Scheduled(store, instance, engine, tmp_path)


def test_triggers_run_in_order_after_the_drain_and_know_its_result(cron: Scheduled) -> None:
    said = 'echo "$0 $DATAFLOW_RUN_STATUS $DATAFLOW_RUN_ROWS $DATAFLOW_RUN_POSITIONS"'
    cron.triggers(
        shell(f"{said} >> {cron.folder}/said", name="first", args=["one"]),
        shell(f"{said} >> {cron.folder}/said; echo seen", name="second", args=["two"]),
    )
    cron.produce(3)
    done = cron.run()
    assert done.success
    assert cron.rows() == 3
    assert cron.written("said") == [f'{n} success 3 {{"0": 3, "1": 0}}' for n in ("one", "two")]
    assert "second: seen" in cron.log(done.run_id)


def test_triggers_follow_a_run_that_found_nothing_new(cron: Scheduled) -> None:
    cron.triggers(shell(f"echo $DATAFLOW_RUN_ROWS >> {cron.folder}/said"))
    cron.produce(2)
    assert cron.run().success
    assert cron.run().success
    assert cron.written("said") == ["2", "0"]


def test_no_trigger_follows_a_run_that_a_window_has_cut_short(
    cron: Scheduled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run stays green: the next tick reads the rest, and runs the triggers."""
    cron.triggers(*(shell(f"touch {cron.folder}/after") for _ in range(2)))
    cron.produce(3)
    monkeypatch.setattr(stopping, "manifest_changed", lambda _: lambda: "in a maintenance window")
    done = cron.run()
    assert done.success
    assert not (cron.folder / "after").exists()
    assert "no trigger follows: in a maintenance window" in cron.log(done.run_id)


def test_the_chain_stops_at_the_first_failure_and_names_it(cron: Scheduled) -> None:
    cron.triggers(
        shell("echo so; echo no such table >&2; exit 3", name="refresh"),
        shell(f"touch {cron.folder}/after", name="after"),
    )
    cron.produce(1)
    done = cron.run()
    assert not done.success
    assert cron.rows() == 1
    assert not (cron.folder / "after").exists()
    log = cron.log(done.run_id)
    assert "trigger refresh of flow default/orders ended with exit code 3" in log
    assert "no such table" in log
