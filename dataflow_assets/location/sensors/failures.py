"""The sensor that starts the `onFailure` triggers of flows whose scheduled runs have failed."""

from collections.abc import Mapping, Sequence

import dagster as dg

from dataflow_assets.location.jobs.failures import FAILED_RUN
from dataflow_assets.location.jobs.flows import Job

INTERVAL_SECONDS = 4  # 30 by default; served every 5 s
_RETRIED = "dagster/will_retry"


def failure_sensors(
    jobs: Mapping[str, tuple[Job, dg.JobDefinition]],
) -> Sequence[dg.SensorDefinition]:
    """One for all flows; none where no flow has such triggers.

    Args:
        jobs: by the name of a flow's job that job, and the one that follows its failures.
    """
    if not jobs:
        return []

    @dg.run_failure_sensor(
        name="on_failure",
        monitored_jobs=[job for job, _ in jobs.values()],
        request_jobs=[following for _, following in jobs.values()],
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts the onFailure triggers of flows whose scheduled runs have failed.",
    )
    def tick(context: dg.RunFailureSensorContext) -> dg.RunRequest | dg.SkipReason:
        run = context.dagster_run
        if run.tags.get(_RETRIED) == "true":
            return dg.SkipReason(f"/runs/{run.run_id} is tried again")
        _, following = jobs[run.job_name]
        return dg.RunRequest(run.run_id, job_name=following.name, tags={FAILED_RUN: run.run_id})

    return [tick]
