"""How far each flow is behind, observed for all of them together.

Not of a flow whose run has just told it: the mirrored checkpoint of a live run is some seconds old,
and a lag counted from there would be a peak that never was.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import dagster as dg

from dataflow_assets.assets.build import mirrored
from dataflow_assets.assets.graph import Graph, Node
from dataflow_assets.assets.metadata import LAG_CHECK, lag_check, lag_metadata
from dataflow_assets.assets.mirror import EVERY_SECONDS
from dataflow_assets.assets.runs import Runs
from dataflow_assets.contracts import Lag
from dataflow_assets.errors import DataflowError
from dataflow_assets.redaction import mask
from sensors import default_status
from sensors.checkpoints import checkpoints
from sensors.going import going
from sensors.sources import sources

INTERVAL_SECONDS = 29
AT_ONCE = 8
TOLD_SECONDS = 2 * EVERY_SECONDS  # a live run that is silent for longer is idle, or hangs
FORGOTTEN = (
    "The sink has no checkpoint although runs have reported one: the flow was reset, or the sink "
    "was restored or rebuilt. The next run begins where a new flow does."
)

Event = dg.AssetObservation | dg.AssetCheckEvaluation


def lag_sensor(graph: Graph) -> dg.SensorDefinition:
    """The sensor for all flows of a location."""

    @dg.sensor(
        name="lag",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=default_status(),
        description="Observes how far each flow is behind its source.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        before = dict(line.split("=") for line in (context.cursor or "").split() if "=" in line)
        events, after, notes = _look(graph.nodes, context.instance, before)
        cursor = " ".join(f"{name}={value}" for name, value in sorted(after.items()))
        reason = "; ".join(notes) or "no change"
        skip = None if events else dg.SkipReason(reason)
        return dg.SensorResult(asset_events=events, cursor=cursor, skip_reason=skip)

    return tick


@dataclass(frozen=True)
class _Seen:
    """How far a branch is behind. `forgotten`: its sink has lost the checkpoint that was there."""

    lag: Lag
    forgotten: bool

    def __str__(self) -> str:
        """What is remembered until the next look."""
        return f"{self.lag.records}:{self.lag.seconds > 0}" + ":forgotten" * self.forgotten


def _look(
    nodes: Sequence[Node], instance: dg.DagsterInstance, before: dict[str, str]
) -> tuple[list[Event], dict[str, str], list[str]]:
    """Events for the lags that changed, what to remember, and what was not asked."""
    events: list[Event] = []
    after: dict[str, str] = {}
    notes: list[str] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda node: _seen(node, instance), nodes))
    for node, seen in zip(nodes, found, strict=True):
        name = "/".join(node.key)
        if isinstance(seen, str):
            notes.append(f"{node.flow.id}: {seen}")
        elif seen is not None:
            after[name] = str(seen)
            moving = seen.lag.records > 0 or before.get(name) != after[name]
            events += _events(node, seen) if moving else ()
    return events, after, notes


def _seen(node: Node, instance: dg.DagsterInstance) -> _Seen | str | None:
    """None while there is no mirrored checkpoint; a text when it was not asked, and why."""
    mirror = mirrored(instance, node.key)
    if mirror is None:
        return None
    if _told(node, instance):
        return "skipped: the active run reports its lag"
    try:
        known = checkpoints.positions(node, mirror)
        with sources.asking(node.flow) as source:
            return _Seen(source.lag(source.start() if known is None else known), known is None)
    except DataflowError as error:
        return mask(str(error), [node.flow])


def _told(node: Node, instance: dg.DagsterInstance) -> bool:
    newest = instance.fetch_materializations(dg.AssetKey(list(node.key)), limit=1).records
    fresh = bool(newest) and time.time() - newest[0].timestamp < TOLD_SECONDS
    return fresh and Runs(instance, node.flow, going).on()


def _events(node: Node, seen: _Seen) -> Iterator[Event]:
    key = dg.AssetKey(list(node.key))
    yield dg.AssetObservation(key, metadata=lag_metadata(seen.lag))
    passed, metadata = lag_check(seen.lag.seconds)
    yield dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=LAG_CHECK,
        passed=passed and not seen.forgotten,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata | ({"checkpoint": FORGOTTEN} if seen.forgotten else {}),
    )
