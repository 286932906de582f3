"""A run that is killed between its steps, or at a trigger, goes on where it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets import triggers
from dataflow_assets.assets.runs import RESULT
from dataflow_assets.connectors.memory import Store
from dataflow_assets.runs.triggers import run_process
from tests.dagster.assets.lanes.shop import UNCAPTURED
from tests.dagster.schedules.scheduled import Scheduled, shell

_now: list[Scheduled] = []


@pytest.fixture
def cron(store: Store, home: str, engine: SparkSession, tmp_path: Path) -> Iterator[Scheduled]:
    with dg.DagsterInstance.local_temp(home, overrides=UNCAPTURED) as instance:
        _now[:] = [Scheduled(store, instance, engine, tmp_path)]
        yield _now[0]


def orders_job() -> Any:
    return _now[0].definitions().resolve_job_def("orders_job")


class Stuck:
    """A run in a thread of its own that stands still in front of a trigger, or at its end.

    Nothing that is told of it comes from the run itself: as of one that was killed.
    """

    def __init__(self, at: str, *, run: bool) -> None:
        self._at, self._run = at, run
        self._real = run_process
        self._reached, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._execute)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._reached.wait(60)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _execute(self) -> None:
        job = dg.reconstructable(orders_job)
        dg.execute_job(job, instance=_now[0].instance, raise_on_error=False)

    def run_process(self, flow: Any, trigger: Any, name: str, *more: Any) -> Any:
        """In the place of that of the engine."""
        stuck = threading.current_thread() is self._thread and name == self._at
        done = self._real(flow, trigger, name, *more) if self._run or not stuck else None
        if stuck:
            self._reached.set()
            self._over.wait()
            raise dg.Failure("killed")
        return done


def test_the_chain_goes_on_where_it_was(cron: Scheduled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the drain and the first trigger; then when the second one has begun."""
    cron.triggers(*(shell(f"echo $DATAFLOW_RUN_ROWS >> {cron.folder}/{n}") for n in range(2)))
    cron.produce(3)
    stuck = Stuck("trigger-0", run=False)
    monkeypatch.setattr(triggers, "run_process", stuck.run_process)
    with stuck:
        cron.produce(2)  # which the run has not seen
        assert _go_on(cron)
    assert cron.rows() == 3
    assert (cron.written("0"), cron.written("1")) == (["3"], ["3"])
    stuck = Stuck("trigger-1", run=True)
    monkeypatch.setattr(triggers, "run_process", stuck.run_process)
    with stuck:
        assert _go_on(cron)
    assert (cron.written("0"), cron.written("1")) == (["3", "2"], ["3", "2", "2"])


def _go_on(cron: Scheduled) -> bool:
    """What Dagster's daemon does for a run that has died; the tags of the run are copied."""
    died = cron.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))[0]
    cron.instance.report_run_failed(died)
    again = dg.ReexecutionOptions.from_failure(died.run_id, cron.instance)
    job, tags = dg.reconstructable(orders_job), {RESULT: died.tags[RESULT]}
    return dg.execute_job(job, instance=cron.instance, reexecution_options=again, tags=tags).success


def test_dagster_retries_killed_runs_of_schedules_only(cron: Scheduled) -> None:
    tags = orders_job().tags
    assert tags["dagster/retry_strategy"] == "FROM_FAILURE"
    assert tags["dagster/retry_on_asset_or_op_failure"] == "false"
    assert int(tags["dagster/max_retries"]) > 0
