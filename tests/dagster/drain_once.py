"""Runs one flow through Dagster on the Spark of `sys.argv[1]`; a process of its own per Spark."""

import sys
from typing import Any

import dagster as dg

from dataflow_assets.assets import graph
from dataflow_assets.assets.build import assets
from dataflow_assets.connectors.memory import Store
from dataflow_assets.location.jobs.flows import flow_job
from dataflow_assets.location.resources.io_managers import io_managers
from dataflow_assets.location.resources.spark import SparkResource
from tests.dagster.flows import memory_flow


def package_of_workers(spark: Any) -> list[str]:
    """From where each Spark worker imports our package."""
    import pyarrow as pa

    def where(batches: Any) -> Any:
        import dataflow_assets

        for _ in batches:
            yield pa.record_batch([[str(dataflow_assets.__file__)]], ["file"])

    frame = spark.range(0, 4, 1, 4).mapInArrow(where, "file string")
    return sorted({row.file for row in frame.collect()})


class Asking(SparkResource):
    """Says where the workers' code came from, before the run's Spark ends."""

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        print(*package_of_workers(self.flow_session()), sep="\n")  # noqa: T201 - the test reads it
        super().teardown_after_execution(context)


def main(where: str, store: str) -> None:
    """Drains, on the Spark of the first argument."""
    flow = memory_flow(Store(store))
    built = graph.build([flow])
    defs = dg.Definitions(
        assets=assets(built),
        jobs=[flow_job(flow, built.nodes)],
        resources={"spark": Asking(where=where), **io_managers(built)},
        executor=dg.in_process_executor,
    )
    result = defs.resolve_job_def("orders_job").execute_in_process(
        run_config={"ops": {"orders": {"config": {"seconds": None}}}}
    )
    assert result.success


if __name__ == "__main__":
    main(*sys.argv[1:])
