"""What an earlier version has noted of a lane in Dagster's storage is understood."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from dataflow_assets.assets import ingest
from dataflow_assets.assets.heartbeat import Heartbeat
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_registry import LaneRegistry
from dataflow_assets.assets.leases import Leases
from dataflow_assets.assets.mirrored_checkpoints import outdated_keys
from dataflow_assets.connectors.memory import Store
from tests.stored import lanes
from tests.stored.registry import GOES_ON, LANE, asset, drive, flows
from tests.stored.versions import copies


@pytest.mark.parametrize(("copy", "_name"), copies(["lane"]))
def test_a_lane_goes_on_after_one_of_an_earlier_version_was_killed(
    copy: Path, _name: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "IDLE_SECONDS", 2.0)
    monkeypatch.setenv("DATAFLOW_START", "1")
    goes_on, leaves = flows(store)
    with dg.DagsterInstance.ephemeral() as instance:
        run_id = lanes.load(copy.read_text(), instance, store)
        page = LaneRegistry(instance, LANE).read()
        assert (page.run, [*page.flows]) == (run_id, [goes_on.id])
        assert list(Evictions(instance).of([goes_on, leaves])) == [leaves.id]
        leases = Leases(instance, f"lane:{LANE}")
        (record,) = instance.get_run_records()
        assert leases.is_held(record.dagster_run)
        assert Heartbeat(instance, f"lane:{LANE}").last(run_id) > 0
        assert leases.end_if_dead(record)
        (branch,) = goes_on.branches
        checkpoint = branch.sink.peek(goes_on.target(branch))
        assert checkpoint
        assert not outdated_keys(instance, {tuple(asset(store).path): checkpoint})
        lanes.seed(store)
        store.produce(GOES_ON, 0, [lanes.MORE])
        drive(store, instance)
        found = store.query("select name, row from rows")
        assert sorted((name, json.loads(row)["id"]) for name, row in found) == [
            (GOES_ON, number) for number in (1, 2, 3)
        ]
