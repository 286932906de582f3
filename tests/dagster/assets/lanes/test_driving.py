"""A lane's run through Dagster: many flows in one run, and what is said of each."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from dataflow_assets.assets import mirror, tally
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_flows import LaneFlows
from dataflow_assets.assets.runs import SENSOR, Runs
from dataflow_assets.connectors.memory import MemoryPartSource
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.location.jobs.ingest import ingest_job
from tests.dagster.assets.lanes.shop import QUIET, Shop, Slot
from tests.stand_in import until


def test_many_flows_are_driven_in_one_run_and_each_asset_shows_its_checkpoint(shop: Shop) -> None:
    shop.add("a", "b")
    shop.add("c", annotations={"dataflow-assets/lane": "slow"})
    shop.add("d", suspended=True)
    for name in "abcd":
        shop.produce(name, 1, 2, 3)
    shop.store.produce("b", 1, [b"no json"])
    result = shop.lane()
    assert result.success
    assert [shop.rows(name) for name in "abcd"] == [[1, 2, 3], [1, 2, 3], [], []]
    record = shop.events("b")[-1]
    event = record.asset_materialization
    assert record.run_id == result.run_id
    told = [one.asset_materialization.metadata for one in shop.events("b")]
    lines = f"/runs/{result.run_id}?logs=flow%20default%2Fb%3A"
    assert {t["log"].value for t in told} == {lines}
    assert (sum(t["rows"].value for t in told), sum(t["rejected"].value for t in told)) == (3, 1)
    checkpoint = event.metadata["checkpoint"].value
    assert checkpoint["positions"] == {"0": 3, "1": 1}
    assert event.tags["dagster/data_version"] == mirror.version_of(checkpoint)
    assert [c.name for c in event.metadata["dagster/column_schema"].value.columns] == ["id", "name"]
    assert event.metadata["ended"].value == f"nothing came for {QUIET:g} seconds"
    checks = {(c.asset_key.path[-1], c.check_name): c for c in result.get_asset_check_evaluations()}
    assert {key: check.passed for key, check in checks.items()} == {
        ("a", "lag"): True,
        ("a", "rejected"): True,
        ("b", "lag"): True,
        ("b", "rejected"): False,
    }
    assert "leaves the lane: nothing came" in shop.log(result, "a")
    assert shop.driven() == set()


def test_flows_from_topics_and_from_tables_share_a_lane(shop: Shop) -> None:
    shop.add("a", "b")
    store = shop.store.name
    shop.edit("b", source=MemoryPartSource(store=store, topic="b"))
    for name in "ab":
        shop.produce(name, 1, 2)
    running = shop.aside()
    until(lambda: shop.rows("b") == [0, 1])  # the ids of such rows are offsets
    shop.produce("b", 3)
    until(lambda: shop.rows("b") == [0, 1, 2])
    assert shop.ended(running).success
    assert shop.rows("a") == [1, 2]
    assert {event.run_id for event in shop.events("b")} == {running.result().run_id}


def test_a_table_is_told_before_one_that_is_filled_from_it(shop: Shop) -> None:
    """At rest and in between: Dagster shows an asset whose source has the later event unsynced."""
    shop.add("a", "b", "c")
    topics = [flow.source for flow in shop.flows]  # `a` has the address of the table `a`, too
    shop.edit("c", source=topics[1])
    shop.edit("b", source=topics[0])
    shop.patch.setattr(tally, "EVERY_SECONDS", 0.5)
    running = shop.aside()
    for number in range(3):
        shop.produce("a", number)
        shop.produce("b", number)
        until(lambda: shop.rows("c") == shop.rows("b") == shop.rows("a"))
        until(lambda: all(shop.events(name) for name in "abc"))
    assert shop.ended(running).success
    last = {name: [event.storage_id for event in shop.events(name)] for name in "abc"}
    assert all(len(told) >= 2 for told in last.values())
    assert last["a"][-1] < last["b"][-1] < last["c"][-1]


def test_a_table_that_had_nothing_to_read_is_told_behind_its_source(shop: Shop) -> None:
    """The source has its last event when the lane ends: by the clock the table would be behind."""
    shop.add("a", "b", "z")
    topics = [flow.source for flow in shop.flows]
    shop.edit("b", source=topics[0])  # what has the address of the table `a`
    shop.edit("a", source=topics[2])
    for name in "az":
        shop.produce(name, 1)
    assert shop.lane().success
    shop.produce("z", 2)
    assert shop.lane().success
    assert (shop.rows("a"), shop.rows("b")) == ([1, 2], [1])
    assert shop.events("a")[-1].storage_id < shop.events("b")[-1].storage_id
    assert shop.events("b")[-1].asset_materialization.metadata["rows"].value == 0


def test_a_lane_that_finds_nothing_tells_nothing_but_a_lost_mirror(shop: Shop) -> None:
    shop.add("a")
    shop.produce("a", 1)
    shop.lane()
    count = len(shop.events("a"))
    shop.lane()
    assert len(shop.events("a")) == count
    shop.instance.wipe_assets([shop.events("a")[0].asset_key])
    shop.lane()
    (event,) = shop.events("a")
    assert event.asset_materialization.metadata["rows"].value == 0


def test_an_edited_manifest_is_tried_at_once(shop: Shop) -> None:
    shop.add("a")
    shop.produce("a", 1)
    Evictions(shop.instance).leave(shop.flows[0], "no such column")
    shop.lane()
    assert shop.rows("a") == []
    shop.edit("a", hash="edited")
    shop.lane()
    assert shop.rows("a") == [1]


def test_edited_added_and_removed_manifests_are_noticed(shop: Shop) -> None:
    shop.kind = Slot
    shop.add("a", "b")
    shop.produce("a", 1)
    running = shop.aside()
    until(lambda: shop.rows("a") == [1])
    shop.edit("a", hash="edited")
    shop.flows = [flow for flow in shop.flows if flow.name != "b"]
    shop.add("c")
    shop.produce("c", 1)
    until(lambda: shop.rows("c") == [1])
    shop.produce("a", 2)
    until(lambda: shop.rows("a") == [1, 2])
    result = shop.ended(running)
    assert "leaves the lane: its manifest changed" in shop.log(result, "a")
    assert "leaves the lane: its manifest was removed" in shop.log(result, "b")
    assert "slot b stays" in shop.log(result, "b")
    assert "slot a stays" not in shop.log(result, "a")


def test_a_slot_is_named_only_where_nobody_reads_it_any_more(shop: Shop, tmp_path: Path) -> None:
    """Whoever follows such a line drops the slot."""
    shop.kind = Slot
    own_runs = set[str]()
    shop.patch.setattr(Slot, "own_runs", own_runs)
    shop.add("always", "off")
    shop.add("broken", file=tmp_path)
    shop.add("gone", "renamed", "moved", file=tmp_path / "gone.yaml")
    shop.add("away", file=tmp_path / "unmounted" / "away.yaml")
    other = tmp_path / "other.yaml"
    other.write_text("{ metadata: { name: moved, labels: { was: gone-by } }", encoding="utf-8")
    running = shop.aside()
    until(lambda: len(shop.driven()) == 7)
    own_runs.add("always")
    shop.edit("off", suspended=True)
    shop.findings = tuple(
        Finding(str(file), 1, 1, "spec", "is missing") for file in (tmp_path / "b.yaml", other)
    )
    shop.folders = (tmp_path, tmp_path / "unmounted")
    shop.edit("renamed", name="newer")
    missing = {"broken", "gone", "moved", "away"}
    shop.flows = [flow for flow in shop.flows if flow.name not in missing]
    until(lambda: shop.driven() == {"default/newer"})
    result = shop.ended(running)
    whys = {
        "always": "it has runs of its own now",
        "off": "its manifest says suspended",
        "broken": "its manifest has mistakes (see `dataflow check`)",
        "gone": "its manifest was removed",
        "renamed": "its manifest was removed",
        "moved": "its manifest has mistakes (see `dataflow check`)",
        "away": "the folder of its manifest does not exist",
    }
    logs = {name: shop.log(result, name) for name in whys}
    assert [name for name in whys if f"leaves the lane: {whys[name]}" not in logs[name]] == []
    assert [name for name in whys if f"slot {name} stays" in logs[name]] == ["off", "gone"]


def test_a_flow_that_was_begun_a_moment_ago_is_driven_whatever_was_heard_of_it(
    shop: Shop, looks: tuple[LaneFlows, dict[str, Flow]]
) -> None:
    """A run of its own leases it before its first event is taken, and is over before its last."""
    flows, begun = looks
    (flow,) = flows.flows_to_drive()
    begun[flow.id] = flow
    job = ingest_job(shop.manifests, dg.ResourceDefinition.none_resource())
    own = shop.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    with Runs(shop.instance, flow).driving(own.run_id):
        assert not flows.flows_to_drive()
        assert shop.driven() == {flow.id}, "the run of its own waits for the lane"
    assert flows.flows_to_drive() == [flow]
    begun.clear()
    assert flows.lets_go(flow), "what another run has taken from it is no failure"
    flows.end(flow)
    assert flows.flows_to_drive() == [flow]
    assert not flows.lets_go(flow), "it has begun again since"


def test_a_lane_of_which_its_process_has_no_flow_fails_and_says_where_it_looked(
    shop: Shop, tmp_path: Path
) -> None:
    """A run without the environment of the code server would be started again and again."""
    shop.add("a", annotations={"dataflow-assets/lane": "till"})
    shop.folders = (tmp_path, tmp_path / "nowhere")
    result = shop.lane()
    assert not result.success
    told = shop.error(result)
    assert told.startswith(
        f"lane shared: no flow of this lane is in {tmp_path}, {tmp_path}/nowhere (does not exist) "
        f"(lanes there: till). "
    )
    assert "DATAFLOW_FLOWS" in told
    assert shop.lane("till").success


def test_a_lane_that_never_learns_what_to_drive_fails_with_the_reason(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a")

    def unreadable(*_: object, **__: object) -> None:
        raise OSError("the volume is gone")

    monkeypatch.setattr("dataflow_assets.assets.switches._states", unreadable)
    result = shop.lane()
    assert not result.success
    assert shop.error(result) == (
        "lane shared: its flows could not be found out: unexpected OSError: the volume is gone"
    )


def test_a_lane_whose_switches_are_on_for_its_sensor_alone_fails_and_says_so(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a")
    monkeypatch.delenv("DATAFLOW_START")
    result = shop.lane(**{SENSOR: "ingest"})
    assert not result.success
    assert "lane shared: nobody has switched on any of its flows" in shop.error(result)
    assert "set DATAFLOW_START for the processes of runs" in shop.error(result)
    assert shop.lane().success, "started by hand"
    monkeypatch.setattr("dataflow_assets.assets.switches.is_untouched", lambda *_: False)
    assert shop.lane(**{SENSOR: "ingest"}).success, "somebody was quicker"
