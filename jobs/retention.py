"""Old runs and their events are deleted, which Dagster never does by itself."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg

FINISHED = [
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
]
BATCH = 100


class RetentionConfig(dg.Config):
    """How long runs are kept."""

    days: float = 7.0
    """Finished runs older than this are deleted, except those an asset's latest event is from."""


@dg.op(description="Deletes finished runs, but never the one that an asset's latest event is from.")
def delete_old_runs(context: dg.OpExecutionContext, config: RetentionConfig) -> int:
    """Deletes and counts them."""
    kept = set(_latest(context.instance))
    before = datetime.now(UTC) - timedelta(days=config.days)
    old = dg.RunsFilter(statuses=FINISHED, created_before=before)
    runs = [r.run_id for r in context.instance.get_runs(old) if r.run_id not in kept]
    for run_id in runs:
        context.instance.delete_run(run_id)
    context.log.info("deleted %d runs created before %s", len(runs), before.isoformat())
    return len(runs)


def _latest(instance: dg.DagsterInstance) -> Iterator[str]:
    """The runs that hold the mirrored checkpoints in use."""
    for key in instance.get_asset_keys():
        event = instance.get_latest_materialization_event(key)
        if event is not None:
            yield event.run_id


@dg.job(
    name="retention",
    description="Deletes finished runs and their events after a week.",
    executor_def=dg.in_process_executor,
    resource_defs={"io_manager": dg.mem_io_manager},
)
def retention_job() -> None:
    """The job."""
    delete_old_runs()


retention_schedule = dg.ScheduleDefinition(
    name="retention_schedule", job=retention_job, cron_schedule="17 3 * * *"
)
