"""Tables that are loaded again by `reload` in the launchpad of a flow's job."""

from __future__ import annotations

from typing import Any

import dagster as dg

from dataflow_assets.assets.runs import job_name
from tests.connectors.postgresql.cdc.followed import Followed
from tests.dagster.flows import location


def _run(
    followed: Followed, instance: dg.DagsterInstance, **config: Any
) -> dg.ExecuteInProcessResult:
    job = location([followed.flow], followed.engine).resolve_job_def(job_name(followed.flow))
    return job.execute_in_process(
        run_config={"ops": {followed.flow.slug: {"config": config}}},
        instance=instance,
        raise_on_error=False,
    )


def test_a_table_is_loaded_again_from_the_launchpad(
    followed: Followed, instance: dg.DagsterInstance
) -> None:
    """A name that the flow does not read is an error; what is followed comes in the same run."""
    followed.run("INSERT INTO source SELECT generate_series(1, 50)")
    assert _run(followed, instance).success
    followed.run("DELETE FROM target WHERE id > 20; INSERT INTO source VALUES (51)")
    assert _run(followed, instance).success
    assert len(followed.rows()) == 21
    assert not _run(followed, instance, reload=["other"]).success
    assert len(followed.rows()) == 21
    followed.run("DELETE FROM source WHERE id = 1")
    assert _run(followed, instance, reload=[f"{followed.schema}.source"]).success
    assert followed.same()
    assert len(followed.rows()) == 50


def test_a_table_that_is_appended_to_needs_to_be_confirmed(
    followed: Followed, instance: dg.DagsterInstance
) -> None:
    followed.sink_options = {}
    followed.run("ALTER TABLE target DROP CONSTRAINT target_pkey")
    followed.run("INSERT INTO source VALUES (1), (2)")
    assert _run(followed, instance).success
    table = f"{followed.schema}.source"
    assert not _run(followed, instance, reload=[table]).success
    assert followed.rows() == [(1,), (2,)]
    followed.run("TRUNCATE target")
    assert _run(followed, instance, reload=[table], confirm=True).success
    assert followed.rows() == [(1,), (2,)]
