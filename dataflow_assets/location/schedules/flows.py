"""One schedule per `DataFlowCron`: each of its ticks starts a run of the flow, or says why not."""

from datetime import UTC, datetime

import dagster as dg

from dataflow_assets.assets.runs import Runs
from dataflow_assets.assets.switches import starts_switched_on, switch_name
from dataflow_assets.flow import Flow
from dataflow_assets.location.jobs.flows import Job
from dataflow_assets.schedules.schedule import Schedule

TICK = "dataflow/tick"  # the time that the run's tick was due


def flow_schedule(flow: Flow, schedule: Schedule, job: Job) -> dg.ScheduleDefinition:
    """The schedule; switched off until somebody switches it on, as the sensors of flows are."""
    started = starts_switched_on()
    status = dg.DefaultScheduleStatus.RUNNING if started else dg.DefaultScheduleStatus.STOPPED
    return dg.ScheduleDefinition(
        name=switch_name(flow),
        job=job,
        cron_schedule=schedule.times.text,
        execution_timezone=schedule.zone,
        execution_fn=lambda context: _tick(context, flow, schedule),
        default_status=status,
        description=(
            f"The switch of flow {flow.id}: each tick reads up to the newest record at its start, "
            f"and then runs {len(schedule.triggers) or 'no'} triggers. Policy {schedule.policy}."
        ),
    )


def _tick(
    context: dg.ScheduleEvaluationContext, flow: Flow, schedule: Schedule
) -> dg.RunRequest | dg.SkipReason:
    due = context.scheduled_execution_time
    if why := _pause(flow, schedule) or schedule.lateness(due, datetime.now(UTC)):
        return dg.SkipReason(why)
    for run in Runs(context.instance, flow).all_live():
        if schedule.policy == "Forbid":
            return dg.SkipReason(
                f"concurrencyPolicy Forbid: /runs/{run.run_id} is {run.status.value.lower()}, "
                "which began before this tick"
            )
        if schedule.policy == "Replace":
            context.log.info("concurrencyPolicy Replace: ends /runs/%s", run.run_id)
            context.instance.run_coordinator.cancel_run(run.run_id)
    return dg.RunRequest(tags={TICK: due.isoformat()})


def _pause(flow: Flow, schedule: Schedule) -> str:
    if pause := flow.pause_reason():
        return f"{pause}: nothing is read or written"
    return f"suspend is true ({flow.file}:{flow.line})" if schedule.suspended else ""
