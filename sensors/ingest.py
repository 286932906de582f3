"""One sensor per flow: its switch. New data becomes a run; everything else a reason to wait.

A tick compares the source's ends with the mirrored checkpoint and does not touch the sink unless
the mirror is missing.
"""

import json
import time
from collections.abc import Sequence

import dagster as dg

from dataflow_assets.assets.build import mirrored
from dataflow_assets.assets.graph import Node
from dataflow_assets.assets.mirror import positions
from dataflow_assets.assets.runs import ASIDE, ERROR, MANIFEST, PERMANENT, Runs, sensor_name
from dataflow_assets.contracts import Position, Positions
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.masking import mask
from dataflow_assets.turns import Behind
from jobs.flows import Job, run_config
from sensors import default_status
from sensors.sources import sources

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
    runs = Runs(instance, flow)
    if live := runs.live():
        return f"run {live.run_id[:8]} is {live.status.value.lower()}"
    failures = runs.failures()
    waiting = _backoff(flow, failures, time.time())
    asked = _unharmed(nodes, failures[0].dagster_run) if waiting else nodes
    try:
        nothing = _nothing_new(flow, asked, instance) if asked else waiting
    except DataflowError as error:
        sources.drop(flow)
        return mask(f"cannot look for new data: {error}", [flow])
    return nothing and (waiting or nothing)


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
    aside = json.loads(failed.tags.get(ASIDE, "[]"))
    return [node for node in nodes if node.branch.id not in aside] if aside else []


def _nothing_new(flow: Flow, nodes: Sequence[Node], instance: dg.DagsterInstance) -> str:
    """Empty when one of the branches is behind the source, or has no checkpoint at all.

    A branch whose sink cannot be asked hinders no other: it is told when there is nothing else.
    """
    (ends, behind), unknown = sources.ends(flow), None
    for node in nodes:
        try:
            known = _position(node, instance)
        except DataflowError as error:
            unknown = error
            continue
        if known is None or any(_new(known.get(p), end, p, behind) for p, end in ends.items()):
            return ""
    if unknown is not None:
        raise unknown
    return f"nothing new in {flow.source_address}"


def _new(position: Position | None, end: Position, partition: str, behind: Behind) -> bool:
    """An offset beyond the end is news as well: the topic is not the one that it was."""
    return position != end and (isinstance(end, int) or behind(partition, position, end))


def _position(node: Node, instance: dg.DagsterInstance) -> Positions | None:
    """From the mirror; from the sink where that is missing (wiped, or not yet written)."""
    found = positions(mirrored(instance, node.key))
    if found is not None:
        return found
    flow = node.flow.resolved()
    branch = next(branch for branch in flow.branches if branch.id == node.branch.id)
    checkpoint = branch.sink.peek(flow.target(branch))
    return checkpoint.positions if checkpoint and checkpoint.positions else None
