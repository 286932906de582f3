"""Triggers of scheduled flows: assets of the flow's job, each of which runs after the one before.

In a cluster each is a Job of Kubernetes, elsewhere a process of this machine; a trigger may also be
a job or an asset of the same code location.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from dataflow_assets.assets.failures import failing
from dataflow_assets.assets.graph import AssetNode
from dataflow_assets.assets.metadata import code_reference
from dataflow_assets.assets.run_log import log_to_run
from dataflow_assets.assets.runs import RESULT, Runs
from dataflow_assets.errors import PermanentError
from dataflow_assets.errors.likely_names import did_you_mean_or
from dataflow_assets.flow import Flow, mangle
from dataflow_assets.runs.run_result import RunResult
from dataflow_assets.runs.triggers import TriggerHost, run_process
from dataflow_assets.schedules.trigger import Trigger
from dataflow_assets.secrets import inside

GROUP = "triggers"
TRIGGERED_BY = "dataflow/triggered_by"  # the run whose trigger has started this one
_LABEL = "dataflow.dataflow.io"  # as the operator labels its Jobs
_NO_DAGSTER_K8S = (
    "runs as a Job of Kubernetes, for which this code location lacks dagster-k8s: install "
    "`dataflow-assets[kubernetes]` in its image"
)


def trigger_key(flow: Flow, name: str) -> dg.AssetKey:
    return dg.AssetKey([GROUP, flow.slug, mangle(name)])


def trigger_keys(flow: Flow) -> list[dg.AssetKey]:
    """The assets of the triggers that follow a success, in their order."""
    triggers = flow.schedule.triggers if flow.schedule else ()
    return [trigger_key(flow, one.label(index)) for index, one in enumerate(triggers)]


def trigger_assets(flow: Flow, nodes: Sequence[AssetNode]) -> list[dg.AssetsDefinition]:
    """An asset for each trigger; the first one depends on those of the flow."""
    before: list[dg.AssetKey] = [dg.AssetKey(list(node.key)) for node in nodes]
    assets = []
    for index, trigger in enumerate(flow.schedule.triggers if flow.schedule else ()):
        assets.append(_asset(flow, trigger, index, before))
        before = [trigger_key(flow, trigger.label(index))]
    return assets


def _asset(
    flow: Flow, trigger: Trigger, index: int, before: Sequence[dg.AssetKey]
) -> dg.AssetsDefinition:
    name = trigger.label(index)

    @dg.asset(
        key=trigger_key(flow, name),
        deps=before,
        group_name=GROUP,
        kinds={"docker" if trigger.image else "dagster"},
        description=f"Trigger `{name}` of flow `{flow.id}`: runs after its scheduled runs.",
        metadata=code_reference(flow.file, flow.line),
        op_tags={"dataflow/flow": flow.id},
        output_required=False,
    )
    def run(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        result = _result(context, flow)
        if result.status == "stopped":  # Dagster skips those that follow what yields nothing
            context.log.info("the run was cut short, so that no trigger follows: %s", result.error)
            return
        with Runs(context.instance, flow).triggering(context.run.run_id):
            run_trigger(context.op_execution_context, flow, trigger, index, result)
        yield dg.MaterializeResult(metadata={"run": result.run, "rows": result.rows or 0})

    return run


def _result(context: dg.AssetExecutionContext, flow: Flow) -> RunResult:
    """Returns the result that the drain has noted, be it in the run that this one goes on with."""
    run = context.instance.get_run_by_id(context.run.run_id)
    noted = run.tags.get(RESULT) if run else None
    if noted is None:  # somebody runs the trigger by itself
        return RunResult(flow.id, context.run.run_id)
    return RunResult.parse(noted)


def run_trigger(
    context: dg.OpExecutionContext, flow: Flow, trigger: Trigger, index: int, result: RunResult
) -> None:
    """Runs one trigger to its end, in the process of a run.

    Raises:
        dagster.Failure: it cannot be started, or has not succeeded.
    """
    name = trigger.label(index)
    with log_to_run(flow, context), failing(flow, context):
        if not trigger.image:
            run_in_dagster(context, trigger, f"trigger {name} of flow {flow.id}")
        elif inside():
            _run_in_cluster(context, flow, trigger, index, result)
        else:
            run_process(flow, trigger, name, result, TriggerHost(context.log.info))


def run_in_dagster(context: dg.OpExecutionContext, trigger: Trigger, about: str) -> None:
    """In a run of its own, in this process: its page tells which run has triggered it."""
    repository = context.repository_def
    selection = None
    if trigger.job:
        known = [name for name in repository.job_names if not name.startswith("__")]
        if trigger.job not in known:
            advice = did_you_mean_or(trigger.job, known, f"there is: {', '.join(sorted(known))}")
            raise PermanentError(f"{about}: no job {trigger.job} in this code location; {advice}")
        job = repository.get_job(trigger.job)
    else:
        key = dg.AssetKey(str(trigger.asset).split("/"))
        if key not in repository.assets_defs_by_key:
            known = [one.to_user_string() for one in repository.assets_defs_by_key]
            advice = did_you_mean_or(key.to_user_string(), known, "its page shows its key")
            raise PermanentError(f"{about}: no asset {trigger.asset} is made here; {advice}")
        job, selection = repository.get_implicit_global_asset_job_def(), [key]
    done = job.execute_in_process(
        instance=context.instance,
        asset_selection=selection,
        tags={TRIGGERED_BY: context.run.run_id},
        raise_on_error=False,
    )
    context.log.info("%s: /runs/%s", about, done.run_id)
    if done.dagster_run.status == dg.DagsterRunStatus.CANCELED:
        raise dg.DagsterExecutionInterruptedError
    if not done.success:
        raise PermanentError(f"{about} failed: /runs/{done.run_id} says why")


def _run_in_cluster(
    context: dg.OpExecutionContext, flow: Flow, trigger: Trigger, index: int, result: RunResult
) -> None:
    about = f"trigger {trigger.label(index)} of flow {flow.id}"
    try:
        from dagster_k8s import execute_k8s_job
    except ImportError:
        raise PermanentError(f"{about} {_NO_DAGSTER_K8S}") from None
    env = [one.model_dump(by_alias=True, exclude_defaults=True) for one in trigger.env]
    about_run = [{"name": name, "value": value} for name, value in result.environment().items()]
    labels = {"dataflow-cron": flow.name, "run-id": result.run[:8], "trigger-index": str(index)}
    with warnings.catch_warnings():
        # Superseded by pipes, which make pods and not Jobs, as the operator's triggers are.
        warnings.simplefilter("ignore", dg.SupersessionWarning)
        try:
            execute_k8s_job(
                context,
                image=str(trigger.image),
                command=list(trigger.command) or None,
                args=list(trigger.args) or None,
                namespace=flow.namespace,
                image_pull_policy=trigger.image_pull_policy,
                resources=trigger.resources,
                labels={f"{_LABEL}/{name}": value[:63] for name, value in labels.items()},
                container_config={"env": [*about_run, *env]},
            )
        except Exception as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise PermanentError(
                f"{about}: its Kubernetes Job in namespace {flow.namespace} has not succeeded: "
                f"{reason}; the log of this run shows its pod's events"
            ) from error
