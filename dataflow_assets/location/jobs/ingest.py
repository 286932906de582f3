"""The job of lanes: each of its runs drives many flows in one process, with one Spark session."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from dataflow_assets.assets import graph
from dataflow_assets.assets.failures import sentence
from dataflow_assets.assets.graph import AssetNode
from dataflow_assets.assets.ingest import Ingest, LaneEvent
from dataflow_assets.assets.lane_flows import Manifests
from dataflow_assets.assets.lane_runs import LANE, LOCATION, LaneRuns, wait_for_predecessor
from dataflow_assets.assets.leases import DRIVES, ERROR
from dataflow_assets.assets.switches import INGEST
from dataflow_assets.contracts import Run
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import SHARED_LANE, Flow
from dataflow_assets.lanes.lane import Lane
from dataflow_assets.runs.redaction import mask
from dataflow_assets.runs.request import Request

OP = "drive"
_DESCRIPTION = (
    "Drives all flows of a lane that are switched on, in one process: the sensor `ingest` starts "
    "it while there is something new. It ends when nothing came for a minute. Every line of its "
    "log names its flow, by which the log can be filtered."
)


class LaneConfig(dg.Config):
    """Which lane."""

    lane: str = SHARED_LANE
    """As the annotation `dataflow-assets/lane` of manifests says; `shared` for those without."""


def ingest_job(manifests: Manifests, spark: Any) -> dg.JobDefinition:
    """The job; `manifests` gives what the files of the flows say now.

    `spark` is the location's: a sensor takes no job that still waits for a resource.
    """

    @dg.op(name=OP, out={}, required_resource_keys={"spark"}, description=_DESCRIPTION)
    def drive(context: dg.OpExecutionContext, config: LaneConfig) -> Iterator[LaneEvent]:
        try:
            yield from _drive(context, config.lane, manifests)
        except Exception as error:
            reason = mask(sentence(error), manifests().flows)
            context.instance.add_run_tags(context.run.run_id, {ERROR: reason[:500]})
            if isinstance(error, DataflowError):
                raise dg.Failure(description=reason) from None
            raise

    @dg.job(
        name=INGEST,
        description=_DESCRIPTION,
        executor_def=dg.in_process_executor,
        resource_defs={"spark": spark, "io_manager": dg.mem_io_manager},
        tags={DRIVES: "true", "dagster/priority": "10"},
    )
    def job() -> None:
        drive()

    return job


def lane_request(lane: str) -> dg.RunRequest:
    config = {"ops": {OP: {"config": {"lane": lane}}}}
    return dg.RunRequest(job_name=INGEST, run_config=config, tags={LANE: lane})


def _drive(context: dg.OpExecutionContext, name: str, manifests: Manifests) -> Iterator[LaneEvent]:
    """Is ready to drive before it takes the lane over from the run that has driven it so far."""
    from dataflow_assets.metrics.serving import serving_lane  # takes Prometheus' client along

    spark, run_id = context.resources.spark.flow_session, context.run.run_id
    location = context.run.tags.get(LOCATION, "")
    spark()
    lane = Lane(spark, Request(Run(id=run_id[:12])))
    runs = LaneRuns(context.instance, name, location=location)
    with runs.driving(run_id), serving_lane(name):
        if before := wait_for_predecessor(runs, run_id):
            context.log.info("lane %s was driven by /runs/%s until now", name, before)
        yield from Ingest(context, lane, name, manifests, _Nodes(manifests)).events()


class _Nodes:
    """The assets of a flow, in the graph of all flows that there are now."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests
        self._flows: Sequence[Flow] | None = None
        self._nodes: dict[str, list[AssetNode]] = {}

    def __call__(self, flow: Flow) -> Sequence[AssetNode]:
        """The nodes of the flow as it is driven, though its manifest may be another one already."""
        flows = self._manifests().flows
        if flows is not self._flows:
            self._flows, self._nodes = flows, _by_flow(flows)
        nodes = self._nodes.get(flow.id, [])
        if not nodes or nodes[0].flow.hash != flow.hash:
            nodes = _by_flow([flow, *(one for one in flows if one.id != flow.id)])[flow.id]
        return nodes


def _by_flow(flows: Sequence[Flow]) -> dict[str, list[AssetNode]]:
    by_flow: dict[str, list[AssetNode]] = {}
    for node in graph.build(flows).nodes:
        by_flow.setdefault(node.flow.id, []).append(node)
    return by_flow
