"""Drives a lane of two flows until one has left it, and is killed then.

    DAGSTER_HOME=FOLDER python tests/stored/registry.py STORE

`make.py` runs this file in the checkout of another version, as it does `running.py`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, cast

import dagster as dg

from dataflow_assets.connectors.memory import Store
from dataflow_assets.contracts import Rejects
from dataflow_assets.flow import Flow, Policies
from dataflow_assets.location.jobs.ingest import ingest_job
from dataflow_assets.manifests.load import Loaded
from tests.dagster.flows import SharedSpark, memory_flow
from tests.in_process import Session

GOES_ON, LEAVES = "goes_on", "leaves"
LANE = "shared"


def flows(store: Store) -> tuple[Flow, Flow]:
    """The first one stores rows; the second one stops at a record."""
    stops = Policies(rejects=Rejects("fail"))
    return (
        memory_flow(store, GOES_ON, topic=GOES_ON, table=GOES_ON),
        memory_flow(store, LEAVES, topic=LEAVES, table=LEAVES, policies=stops),
    )


def drive(store: Store, instance: dg.DagsterInstance) -> None:
    """Until the process is killed, or nothing has come for a minute."""
    shared = SharedSpark(cast("Any", Session(lambda: cast("Any", None))))
    spark = dg.ResourceDefinition.hardcoded_resource(shared)
    ingest_job(lambda: Loaded(flows(store)), spark).execute_in_process(
        run_config={"ops": {"drive": {"config": {"lane": LANE}}}},
        instance=instance,
        tags={"dataflow/lane": LANE},
        raise_on_error=False,
    )


def asset(store: Store) -> dg.AssetKey:
    """The table of the flow that goes on."""
    return dg.AssetKey(["memory", store.name, GOES_ON])


def _die(store: Store, instance: dg.DagsterInstance) -> None:
    """Once one flow has left, and the rows of the other one are told."""
    keys = {f"dataflow/left/{flow.id}" for flow in flows(store)}
    while True:
        left = instance.daemon_cursor_storage.get_cursor_values(keys)
        if left and instance.get_latest_materialization_event(asset(store)):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    of = Store(sys.argv[1])
    with dg.DagsterInstance.get() as home:
        threading.Thread(target=_die, args=(of, home), daemon=True).start()
        drive(of, home)
