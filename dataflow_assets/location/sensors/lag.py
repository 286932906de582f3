"""Lags and states of all flows, observed together.

Not of a flow whose run has just told it: the mirrored checkpoint of a live run is seconds old, or a
minute where a lane drives two hundred flows, and a lag counted from there would be a peak that
never was.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from dataflow_assets.assets import switches
from dataflow_assets.assets.drive_states import ERROR, RUNNING, STOPPED, states_in
from dataflow_assets.assets.graph import AssetNode, Graph, Key
from dataflow_assets.assets.lane_runs import LaneRuns
from dataflow_assets.assets.leases import going
from dataflow_assets.assets.metadata import (
    LAG_CHECK,
    PAUSE,
    SLOT_CHECK,
    STATE,
    lag_check,
    lag_metadata,
    language_metrics,
    slot_check,
)
from dataflow_assets.assets.runs import Runs
from dataflow_assets.contracts import Lag, Positions
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.location.sensors import default_status
from dataflow_assets.location.sensors.checkpoints import Known, checkpoints
from dataflow_assets.location.sensors.instances import instance_of
from dataflow_assets.location.sensors.sources import sources
from dataflow_assets.runs.redaction import mask

INTERVAL_SECONDS = 29
SILENT_SECONDS = 120.0  # a flow whose live run is silent for longer is idle, or hangs
FORGOTTEN = (
    "The sink has no checkpoint although runs have reported one: the flow was reset, or the sink "
    "was restored or rebuilt. The next run begins where a new flow does."
)

_STATE_OF = "@"  # begins what is remembered of a flow's state

Event = dg.AssetObservation | dg.AssetCheckEvaluation


def lag_sensor(graph: Graph) -> dg.SensorDefinition:
    @dg.sensor(
        name="lag",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=default_status(),
        description="Observes how far each flow is behind its source, and its state.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        before = dict(line.split("=") for line in (context.cursor or "").split() if "=" in line)
        events, after, notes = _look(graph.nodes, instance_of(context), before)
        cursor = " ".join(f"{name}={value}" for name, value in sorted(after.items()))
        reason = "; ".join(notes) or "no change"
        skip = None if events else dg.SkipReason(reason)
        return dg.SensorResult(asset_events=events, cursor=cursor, skip_reason=skip)

    return tick


@dataclass(frozen=True)
class _Seen:
    """The lag of a branch. `forgotten`: its sink has lost the checkpoint that was there."""

    lag: Lag
    forgotten: bool

    def __str__(self) -> str:
        held = "" if self.lag.held is None else f":{slot_check(self.lag.held)[0]}"
        return f"{self.lag.records}:{self.lag.seconds != 0}{held}" + ":forgotten" * self.forgotten


def _look(
    nodes: Sequence[AssetNode], instance: dg.DagsterInstance, before: dict[str, str]
) -> tuple[list[Event], dict[str, str], list[str]]:
    """Events for lags and states that changed, what to remember, and what was not asked."""
    earlier = {node.key: before[name] for node in nodes if (name := _of_state(node.key)) in before}
    states = {key: _state_at_end(state) for key, state in earlier.items()} | _states(
        nodes, instance
    )
    after = {_of_state(key): state for key, state in states.items()}
    turned = {key for key in states if earlier.get(key) != states[key]}
    events: list[Event] = []
    notes: list[str] = []
    for node, seen in _look_at(nodes, instance):
        name = "/".join(node.key)
        if isinstance(seen, str):
            notes.append(f"{node.flow.id}: {seen}")
            continue
        after[name] = str(seen)
        if seen.lag.records > 0 or before.get(name) != after[name] or node.key in turned:
            events += _events(node, seen, states.get(node.key))
            turned.discard(node.key)
    flows = {node.key: node.flow for node in nodes}
    events += (
        dg.AssetObservation(
            dg.AssetKey(list(key)), metadata=_state_metadata(flows[key], states[key])
        )
        for key in sorted(turned)
        if states[key] == ERROR or key in earlier  # new ones are told by their runs
    )
    return events, after, notes


def _of_state(key: Key) -> str:
    """The name under which the state of an asset's flow is remembered."""
    return _STATE_OF + "/".join(key)


def _state_metadata(flow: Flow, state: str | None) -> dict[str, str]:
    pause = flow.pause_reason()
    return ({STATE: state} if state else {}) | ({PAUSE: pause} if pause else {})


def _state_at_end(state: str) -> str:
    return STOPPED if state == RUNNING else state


def _states(nodes: Sequence[AssetNode], instance: dg.DagsterInstance) -> dict[Key, str]:
    flows = [node.flow for node in nodes]
    off = {flow.id for flow in flows} - switches.on(instance, flows)
    states = states_in(instance, flows, off)
    by_key: dict[Key, str] = {
        node.key: states[node.flow.id].name for node in nodes if node.flow.id in states
    }
    return by_key | {node.key: STOPPED for node in nodes if node.flow.pause_reason()}


def _look_at(
    nodes: Sequence[AssetNode], instance: dg.DagsterInstance
) -> Iterator[tuple[AssetNode, _Seen | str]]:
    """All branches that were reported once; a text where one was not asked, and why."""
    mirrors = checkpoints.mirrors(instance, nodes)
    flows = [node.flow for node in nodes]
    runs = going(instance)
    own = {flow.id for flow in flows if Runs(instance, flow, runs).on()}
    lanes = [LaneRuns(instance, lane, runs) for lane in {flow.lane for flow in flows}]
    driven = own.union(*(page.flows for lane in lanes for page in lane.pages().values()))
    readable = []
    for node in nodes:
        if node.flow.id in driven and time.time() - mirrors[node.key].at < SILENT_SECONDS:
            yield node, "skipped: the active run reports its lag"
        elif mirrors[node.key].checkpoint is not None:
            readable.append(node)
    positions = checkpoints.positions(instance, readable)
    lags = sources.lags([(node.flow, _positions(positions[node.key])) for node in readable])
    for node, lag in zip(readable, lags, strict=True):
        if isinstance(lag, DataflowError):
            yield node, mask(str(lag), [node.flow])
        else:
            yield node, _Seen(lag, positions[node.key] is None)


def _positions(found: Known) -> Positions | None:
    return None if isinstance(found, DataflowError) else found


def _events(node: AssetNode, seen: _Seen, state: str | None) -> Iterator[Event]:
    key = dg.AssetKey(list(node.key))
    metadata = lag_metadata(seen.lag) | language_metrics(node.flow, seen.lag)
    metadata |= _state_metadata(node.flow, state)
    yield dg.AssetObservation(key, metadata=metadata)
    passed, metadata = lag_check(seen.lag.seconds)
    yield dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=LAG_CHECK,
        passed=passed and not seen.forgotten,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata | ({"checkpoint": FORGOTTEN} if seen.forgotten else {}),
    )
    if seen.lag.held is not None:
        passed, metadata = slot_check(seen.lag.held)
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=SLOT_CHECK,
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN,
            metadata=metadata,
        )
