"""The job of a flow's `onFailure` triggers, which follow a scheduled run that has failed."""

import dagster as dg

from dataflow_assets.assets.leases import ERROR
from dataflow_assets.assets.runs import RESULT
from dataflow_assets.assets.triggers import run_trigger
from dataflow_assets.flow import Flow, mangle
from dataflow_assets.runs.run_result import RunResult
from dataflow_assets.schedules.trigger import Trigger

FAILED_RUN = "dataflow/failed_run"


def failure_job(flow: Flow) -> dg.JobDefinition | None:
    """The job; None of a flow that has no such triggers."""
    triggers = flow.schedule.on_failure if flow.schedule else ()
    if not triggers:
        return None

    @dg.job(
        name=f"{flow.slug}_on_failure_job",
        description=f"Runs after a scheduled run of flow {flow.id} that has failed.",
        executor_def=dg.in_process_executor,
        resource_defs={"io_manager": dg.mem_io_manager},
    )
    def job() -> None:
        before = None
        for index, trigger in enumerate(triggers):
            op = _op(flow, trigger, index)
            before = op(before) if before is not None else op()

    return job


def _op(flow: Flow, trigger: Trigger, index: int) -> dg.OpDefinition:
    @dg.op(
        name=f"{flow.slug}__on_failure__{mangle(trigger.label(index))}",
        ins={"after": dg.In(dg.Nothing)} if index else {},
        out=dg.Out(dg.Nothing),
    )
    def run(context: dg.OpExecutionContext) -> None:
        run_trigger(context, flow, trigger, index, _failure(context, flow))

    return run


def _failure(context: dg.OpExecutionContext, flow: Flow) -> RunResult:
    """Returns why the run failed, and how far it came where it has noted that."""
    failed = context.instance.get_run_by_id(context.run.tags.get(FAILED_RUN, ""))
    if failed is None:  # somebody tries the job out
        return RunResult(flow.id, context.run.run_id, "failure")
    error = failed.tags.get(ERROR) or f"/runs/{failed.run_id} says why"
    if RESULT not in failed.tags:
        return RunResult(flow.id, failed.run_id, "failure", error=error)
    return RunResult.parse(failed.tags[RESULT]).with_error(error)
