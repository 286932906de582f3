"""One sensor per flow: its switch. New data becomes a run; everything else a reason to wait.

A tick compares the source's ends with the mirrored checkpoint; the sink is asked only when the
mirror is missing, and every few minutes for the truth.
"""

import json
import time
from collections.abc import Sequence

import dagster as dg

from dataflow_assets.assets.build import mirrored
from dataflow_assets.assets.graph import Node
from dataflow_assets.assets.runs import ERROR, MANIFEST, PERMANENT, SUSPENDED, Runs, sensor_name
from dataflow_assets.contracts import Positions
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.redaction import mask
from jobs.flows import Job, run_config
from sensors import default_status
from sensors.checkpoints import checkpoints
from sensors.going import going
from sensors.sources import Source, sources

INTERVAL_SECONDS = 4  # served every 5 s; 5 would be served every 5 or 10
FIRST_WAIT, LONGEST_WAIT = 5.0, 300.0


def flow_sensor(flow: Flow, nodes: Sequence[Node], job: Job) -> dg.SensorDefinition:
    """The switch of one flow."""

    @dg.sensor(
        name=sensor_name(flow),
        job=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=default_status(),
        description=f"Runs flow {flow.id} while {flow.source_address} has something new.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        reason = _why_not(flow, nodes, context.instance)
        return dg.SkipReason(reason) if reason else dg.RunRequest(run_config=run_config(flow))

    return tick


def _why_not(flow: Flow, nodes: Sequence[Node], instance: dg.DagsterInstance) -> str:
    """The reason to wait; empty when a run is due."""
    if flow.suspended:
        return f"suspended in its manifest ({flow.file}:{flow.line}), whatever this switch says"
    runs = Runs(instance, flow, going)
    if busy := _busy(runs):
        return busy
    failures = runs.failures()
    waiting = _backoff(flow, failures, time.time())
    asked = _unharmed(nodes, failures[0].dagster_run) if waiting else nodes
    try:
        nothing = _nothing_new(flow, asked, instance) if asked else waiting
    except DataflowError as error:
        return mask(f"cannot look for new data: {error}", [flow])
    if nothing:
        return waiting or nothing
    return _busy(Runs(instance, flow))  # what was read for all flows is some seconds old


def _busy(runs: Runs) -> str:
    live = runs.live()
    return f"run {live.run_id[:8]} is {live.status.value.lower()}" if live else ""


def _backoff(flow: Flow, failures: Sequence[dg.RunRecord], now: float) -> str:
    """After failures a flow waits 5 s, doubling to 5 min; an edited manifest is tried at once."""
    if not failures:
        return ""
    tags = failures[0].dagster_run.tags
    if tags.get(MANIFEST, flow.hash[:16]) != flow.hash[:16]:
        return ""
    wait = min(FIRST_WAIT * 2 ** (len(failures) - 1), LONGEST_WAIT)
    wait = LONGEST_WAIT if PERMANENT in tags else wait
    left = (failures[0].end_time or 0.0) + wait - now
    if left <= 0:
        return ""
    error = tags.get(ERROR, "see its run")
    times = f"{len(failures)} times in a row" if len(failures) > 1 else "once"
    return f"failed {times}; next try in {left:.0f} s. Last error: {error}"


def _unharmed(nodes: Sequence[Node], failed: dg.DagsterRun) -> list[Node]:
    """The branches that went on in a run that failed for others: they need not wait for those."""
    suspended = json.loads(failed.tags.get(SUSPENDED, "[]"))
    return [node for node in nodes if node.branch.id not in suspended] if suspended else []


def _nothing_new(flow: Flow, nodes: Sequence[Node], instance: dg.DagsterInstance) -> str:
    """Empty when one of the branches is behind the source, or has no checkpoint at all.

    A branch whose sink cannot be asked hinders no other: it is told when there is nothing else.
    """
    known, unknown = [], None
    for node in nodes:
        try:
            known.append(checkpoints.positions(node, mirrored(instance, node.key)))
        except DataflowError as error:
            unknown = error
    with sources.asking(flow) as source:
        if any(found is None or _behind(found, source) for found in known):
            return ""
    if unknown is not None:
        raise unknown
    return f"nothing new in {flow.source_address}"


def _behind(known: Positions, source: Source) -> bool:
    """Whether a partition holds something new.

    An offset beyond the end is news as well: the topic is not the one that it was. A partition
    that no run has seen yet is news once it holds something.
    """
    for partition, end in source.ends().items():
        position = known.get(partition)
        comparable = isinstance(end, int) and position is not None
        if position != end and (comparable or source.behind(partition, position, end)):
            return True
    return False
