"""Old runs go, except those that hold what sensors still need."""

import dagster as dg

from jobs.retention import retention_job


def test_old_runs_are_deleted_but_not_the_latest_of_an_asset(
    instance: dg.DagsterInstance,
) -> None:
    @dg.asset
    def orders() -> int:
        return 1

    resources = {"io_manager": dg.mem_io_manager}
    runs = [
        dg.materialize([orders], instance=instance, resources=resources).run_id for _ in range(3)
    ]
    config = {"ops": {"delete_old_runs": {"config": {"days": 0.0}}}}
    result = retention_job.execute_in_process(run_config=config, instance=instance)
    assert result.output_for_node("delete_old_runs") == 2
    left = {record.dagster_run.run_id for record in instance.get_run_records()}
    assert left == {runs[-1], result.run_id}
    assert instance.get_latest_materialization_event(dg.AssetKey("orders")) is not None


def test_young_runs_stay(instance: dg.DagsterInstance) -> None:
    first = retention_job.execute_in_process(instance=instance)
    retention_job.execute_in_process(instance=instance)
    assert instance.get_run_by_id(first.run_id) is not None
