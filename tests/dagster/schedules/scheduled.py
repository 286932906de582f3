"""A flow with a schedule over connectors in memory, and its runs in Dagster."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import Store
from dataflow_assets.flow import Flow
from dataflow_assets.schedules.cron import CronTimes
from dataflow_assets.schedules.schedule import Schedule
from dataflow_assets.schedules.trigger import Trigger
from tests.dagster.flows import location, memory_flow


def shell(script: str, **more: Any) -> Trigger:
    """A trigger that runs a script of the shell."""
    return Trigger.model_validate(
        {"image": "busybox", "command": ["sh", "-c", script], **more}, by_alias=True
    )


@dataclass
class Scheduled:
    """One such flow; the files of its triggers are in `folder`."""

    store: Store
    instance: dg.DagsterInstance
    spark: SparkSession
    folder: Path
    schedule: Schedule = Schedule(CronTimes.parse("0 3 * * *"))

    @property
    def flow(self) -> Flow:
        return memory_flow(self.store, schedule=self.schedule)

    def triggers(self, *triggers: Trigger, **more: Any) -> None:
        self.schedule = replace(self.schedule, triggers=triggers, **more)

    def produce(self, count: int) -> None:
        bodies = [json.dumps({"id": one, "name": "n"}).encode() for one in range(count)]
        self.store.produce("orders", 0, bodies)

    def rows(self) -> int:
        return len(self.store.query("select row from rows where name = ?", "orders"))

    def definitions(self) -> dg.Definitions:
        return location([self.flow], self.spark)

    def run(self, **tags: str) -> dg.ExecuteInProcessResult:
        job = self.definitions().resolve_job_def("orders_job")
        return job.execute_in_process(instance=self.instance, raise_on_error=False, tags=tags)

    def ask_to_stop(self) -> None:
        """What Dagster notes before it sends a signal to the process of the run."""
        (run,) = self.instance.get_runs()
        if run.status == dg.DagsterRunStatus.STARTED:
            self.instance.report_run_canceling(run)

    def written(self, name: str) -> list[str]:
        """The lines of a file that a trigger has written."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def log(self, run_id: str) -> str:
        records = self.instance.get_records_for_run(run_id).records
        return "\n".join(_text(one.event_log_entry) for one in records)


def _text(entry: dg.EventLogEntry) -> str:
    event = entry.dagster_event
    failure = event.step_failure_data.user_failure_data if event and event.is_step_failure else None
    return f"{entry.user_message} {failure.description if failure else ''}"
