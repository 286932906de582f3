"""Assets with partitions through the IO managers, without Spark."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark.sql import SparkSession

from dataflow_assets.assets import graph
from dataflow_assets.flow import Branch
from dataflow_assets.location.resources.io_managers import io_managers
from tests.dagster.flows import SharedSpark, memory_flow
from tests.frames import local_frame

Rows = Sequence[Mapping[str, Any]]


class Runs:
    """Runs of assets beside a flow that makes the connection `here` known."""

    def __init__(
        self, store: Any, sink: Any, engine: SparkSession, instance: dg.DagsterInstance
    ) -> None:
        self.system, self._instance = sink.type, instance
        built = graph.build([memory_flow(store, "known", branches=(Branch(sink, "here"),))])
        self._resources: dict[str, Any] = {
            "spark": dg.ResourceDefinition.hardcoded_resource(SharedSpark(engine)),
            **io_managers(built),
        }

    def run(self, *assets: Any, **more: Any) -> dg.ExecuteInProcessResult:
        """One run."""
        return dg.materialize(
            list(assets),
            resources=self._resources,
            instance=self._instance,
            raise_on_error=False,
            **more,
        )

    def write(self, asset: Any, *keys: str, **more: Any) -> str:
        """A run of these partitions, the last one of a range; what it says where it fails."""
        first, last = (keys[0], keys[-1]) if keys else ("", "")
        tags = {
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        }
        given: dict[str, Any] = {"tags": tags} if first != last else {}
        if keys and first == last:
            given = {"partition_key": first}
        return failure(self.run(asset, **given, **more))

    def read(self, upstream: Any, given: Mapping[str, Any] | None = None, **more: Any) -> pa.Table:
        """What an asset downstream gets of it, as `given` says in its input."""
        taken: list[pa.Table] = []

        @dg.asset(
            ins={"up": dg.AssetIn(key=upstream.key, **(given or {}))},
            partitions_def=more.pop("partitions", None),
        )
        def down(up: Any) -> None:
            taken.append(up.toArrow())

        result = self.run(upstream, down, selection=[down], **more)
        assert result.success, failure(result)
        return taken[0]


def frame_asset(
    key: Sequence[str],
    schema: pa.Schema,
    rows: Callable[[dg.AssetExecutionContext], Rows],
    partitions: dg.PartitionsDefinition[Any] | None = None,
    **metadata: Any,
) -> dg.AssetsDefinition:
    """An asset that returns these rows."""

    @dg.asset(
        key=list(key),
        io_manager_key=key[0],
        partitions_def=partitions,
        metadata=metadata,
        required_resource_keys={"spark"},
    )
    def made(context: dg.AssetExecutionContext) -> Any:
        return local_frame(rows(context), schema, context.resources.spark.session())

    return made


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Why a run has failed; empty where it has not."""
    failures = result.filter_events(lambda event: event.is_step_failure)
    return " ".join(
        f"{each.step_failure_data.user_failure_data} {each.step_failure_data.error}"
        for each in failures
    )
