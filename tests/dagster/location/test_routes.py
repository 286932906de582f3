"""A flow with routes in Dagster: several assets of one run, a checkpoint each, and the error sink.

The manifests are read as users' are; the connectors are those in memory, with their error sink.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

import definitions
from dataflow_assets.assets import graph, leases, runs
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.connectors.memory import MemorySpanSink, Store
from dataflow_assets.contracts import Run, SinkSession, Target
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.location.resources.spark import SparkResource
from dataflow_assets.location.sensors.flows import Board
from dataflow_assets.location.sensors.ingest import Location
from dataflow_assets.manifests.load import load
from tests.dagster.flows import memory_flow

MANIFEST = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: orders}}
spec:
  source: {{type: memory-offsets, config: {{store: {s}, topic: orders}}}}
  sink: {{type: memory-slice, config: {{store: {s}, table: even, allowed: {allowed}}}}}
  transformations:
    - type: router
      config:
        routes:
          - condition: $.name == 'odd'
            sink: {{type: memory-span, config: {{store: {s}, table: odd}}}}
          - condition: $.name == 'six'
            sink: {{type: memory-slice, config: {{store: {s}, table: six}}}}
  {rejects}
"""
ERRORS = "errors: {{type: memory-slice, config: {{store: {s}, table: bad}}}}"
TABLES = "even", "odd", "six"


class Shop:
    """A code location with one flow of three branches."""

    def __init__(self, store: Store, instance: dg.DagsterInstance, folder: Path) -> None:
        self.store, self.instance, self.folder = store, instance, folder
        flow: Any = memory_flow(store)
        self.name = flow.source.store
        self.write()

    def write(self, rejects: str = ERRORS, allowed: str = "[]") -> None:
        text = MANIFEST.format(s=self.name, allowed=allowed, rejects=rejects.format(s=self.name))
        (self.folder / "orders.yaml").write_text(text)
        self.defs = definitions.build([self.folder])

    @property
    def flow(self) -> Flow:
        (flow,) = load(self.folder).flows
        return flow

    def produce(self, *ids: int) -> None:
        for partition in (0, 1):
            mine = [one for one in ids if one % 2 == partition]
            bodies = [json.dumps({"id": i, "name": _kind(i)}).encode() for i in mine]
            self.store.produce("orders", partition, bodies)

    def rows(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for name, row in self.store.query("select name, row from rows"):
            found.setdefault(name, []).append(json.loads(row)["id"])
        return {name: sorted(ids) for name, ids in found.items()}

    def key(self, name: str) -> dg.AssetKey:
        return dg.AssetKey(["memory", self.name.replace("-", "_"), name])

    def spec(self, name: str) -> dg.AssetSpec:
        specs = self.defs.resolve_all_asset_specs()
        return next(spec for spec in specs if spec.key == self.key(name))

    def run(self, job: str = "orders_job", **config: Any) -> Any:
        op = "put_back" if job == "replay" else "orders"
        return self.defs.resolve_job_def(job).execute_in_process(
            run_config={"ops": {op: {"config": config}}},
            instance=self.instance,
            raise_on_error=False,
        )

    def events(self, name: str) -> list[Any]:
        records = self.instance.fetch_materializations(self.key(name), 50, ascending=True).records
        return [record.asset_materialization for record in records]

    def tick(self) -> Any:
        """What the sensor of the location does about the flow."""
        board = Board()
        requests = Location(graph.build([self.flow]), board).look(self.instance)
        return requests[0] if requests else dg.SkipReason(board.read(self.flow))


@pytest.fixture
def shop(
    store: Store,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    engine: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    monkeypatch.setattr(SparkResource, "flow_session", lambda _: engine)
    monkeypatch.setenv("DATAFLOW_PATIENCE", "2")
    return Shop(store, instance, tmp_path)


def test_three_assets_of_one_run_with_a_checkpoint_each(shop: Shop) -> None:
    shop.produce(1, 2, 3, 4, 6, -2)
    result = shop.run()
    assert result.success
    assert shop.rows() == {"even": [2, 4], "odd": [1, 3], "six": [6]}
    for table, rows, rejected in (("even", 2, 1), ("odd", 2, 0), ("six", 1, 0)):
        (event,) = shop.events(table)
        assert event.metadata["checkpoint"].value["positions"] == {"0": 4, "1": 2}
        assert event.metadata["checkpoint"].value["totals"]["rows"] == rows
        assert (event.metadata["rows"].value, event.metadata["rejected"].value) == (rows, rejected)
    checks = {
        c.asset_key.path[-1]: c
        for c in result.get_asset_check_evaluations()
        if c.check_name == "rejected"
    }
    assert {name: check.passed for name, check in checks.items()} == {
        "even": False,
        "odd": True,
        "six": True,
    }
    told = checks["even"].metadata["rejected_records"].value
    assert told == f"They are in the error sink memory/{shop.name}/bad."


def test_the_graph_leads_from_the_topic_to_each_table_and_to_the_error_sink(shop: Shop) -> None:
    graph = shop.defs.resolve_asset_graph()
    assert graph.get(shop.key("orders")).child_keys == {shop.key(t) for t in (*TABLES, "bad")}
    errors = shop.spec("bad")
    assert errors.kinds == {"memory"}
    assert "records that could not be stored, of `default/orders`" in (errors.description or "")
    for table in TABLES:
        assert shop.spec(table).metadata["error_sink"] == f"memory://{shop.name}/bad"


@pytest.mark.parametrize(
    ("rejects", "told"),
    [
        ("onRejected: table", "They are kept in the table of rejected records."),
        ("onRejected: skip", "They are skipped: the log names them."),
        ("onRejected: fail", "They stop the flow."),
    ],
)
def test_an_asset_says_what_becomes_of_rejected_records(
    shop: Shop, rejects: str, told: str
) -> None:
    shop.write(rejects)
    spec = shop.spec("odd")
    assert spec.metadata["rejected_records"] == told
    assert "error_sink" not in spec.metadata
    graph = shop.defs.resolve_asset_graph()
    assert shop.key("bad") not in graph.get_all_asset_keys()
    asked = graph.get_check_spec(dg.AssetCheckKey(shop.key("odd"), "rejected")).description or ""
    assert told.removeprefix("They ") in asked
    assert ("A replay stores them" in asked) == (rejects == "onRejected: table")
    jobs = shop.defs.get_repository_def().job_names
    assert ("replay" in jobs) == (rejects == "onRejected: table")


@pytest.mark.parametrize("kind", [TransientError, PermanentError])
def test_a_branch_whose_sink_is_down_fails_the_run_and_the_others_are_materialized(
    shop: Shop, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.produce(1, 2, 6)
    Evictions(shop.instance).leave(shop.flow, "the sink is down")
    with monkeypatch.context() as patch:
        _down(patch, kind)
        result = shop.run()
        assert not result.success
        assert shop.rows() == {"even": [2], "six": [6]}
        assert [len(shop.events(table)) for table in TABLES] == [1, 0, 1]
        run = shop.instance.get_run_by_id(result.run_id)
        assert run is not None
        error = run.tags[leases.ERROR]
        assert "flow default/orders: memory:odd was suspended: the sink is down" in error
        assert "The other branches went on" in error
        assert (runs.PERMANENT in run.tags) == (kind is PermanentError)
    assert "Last error: flow default/orders: memory:odd" in shop.tick().skip_message
    _later(monkeypatch, 301)
    assert isinstance(shop.tick(), dg.RunRequest)
    assert shop.run().success
    assert shop.rows() == {"even": [2], "odd": [1], "six": [6]}
    assert [sum(e.metadata["rows"].value for e in shop.events(t)) for t in TABLES] == [1, 1, 1]
    assert "nothing new" in shop.tick().skip_message


def test_a_new_branch_that_cannot_be_asked_keeps_no_other_from_running(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.produce(1, 2, 6)
    Evictions(shop.instance).leave(shop.flow, "the sink is down")
    _down(monkeypatch, TransientError)
    shop.run()
    assert "failed 2 times in a row; next try in" in shop.tick().skip_message
    shop.produce(4)
    assert isinstance(shop.tick(), dg.RunRequest)
    shop.run()
    assert shop.rows() == {"even": [2, 4], "six": [6]}
    assert "failed 3 times in a row; next try in" in shop.tick().skip_message
    _later(monkeypatch, 301)
    assert isinstance(shop.tick(), dg.RunRequest)


def test_the_replay_job_puts_back_what_was_rejected(shop: Shop) -> None:
    shop.produce(1, 2, 6, -2, -4)
    shop.run()
    shop.write(allowed="[-2]")
    result = shop.run("replay", flow="default/orders")
    assert result.success
    assert shop.rows()["even"] == [-2, 2]
    run = shop.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[runs.FLOW] == "default/orders"
    (output,) = [e for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    figures = {k: v.value for k, v in output.step_output_data.metadata.items()}
    summary = "2 rejected records replayed: 1 stored, 1 rejected again"
    assert figures == {"put_back": 2, "rows": 1, "rejected_again": 1, "summary": summary}
    _, event = shop.events("even")
    assert event.metadata["replay"].value == summary
    assert len(shop.events("odd")) == 1
    logged = [entry.user_message for entry in shop.instance.all_logs(result.run_id)]
    assert f"flow default/orders: {summary}" in logged
    assert "nothing new" in shop.tick().skip_message


def test_the_replay_job_offers_the_flows_of_its_own_location(
    shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Dagster keeps what configurations offer by the names of their types, in each process."""
    other = tmp_path_factory.mktemp("other")
    text = (shop.folder / "orders.yaml").read_text()
    (other / "parcels.yaml").write_text(text.replace("name: orders", "name: parcels"))
    for folder, own, foreign in ((shop.folder, "orders", "parcels"), (other, "parcels", "orders")):
        job = definitions.build([folder]).resolve_job_def("replay")
        assert dg.validate_run_config(job, _replaying(own))
        with pytest.raises(dg.DagsterInvalidConfigError, match="not in enum type"):
            dg.validate_run_config(job, _replaying(foreign))


def _replaying(flow: str) -> dict[str, Any]:
    return {"ops": {"put_back": {"config": {"flow": f"default/{flow}"}}}}


def test_the_replay_job_says_that_there_is_nothing(shop: Shop) -> None:
    shop.produce(1)
    shop.run()
    result = shop.run("replay", flow="default/orders", since="2026-01-31T00:00:00Z")
    assert result.success
    logged = [entry.user_message for entry in shop.instance.all_logs(result.run_id)]
    assert "flow default/orders: nothing to replay: no rejected record waits" in logged


def test_the_replay_job_fails_with_a_sentence(shop: Shop) -> None:
    result = shop.run("replay", flow="default/orders", since="yesterday")
    assert not result.success
    run = shop.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[leases.ERROR].startswith("since: 'yesterday' is not a time with its zone")
    shop.write(ERRORS + "\n  maintenance: {{suspended: true}}")
    result = shop.run("replay", flow="default/orders")
    run = shop.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert "is suspended in its manifest" in run.tags[leases.ERROR]


def test_the_launchpad_knows_the_flows(shop: Shop) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="default/other"):
        shop.run("replay", flow="default/other")


def _kind(number: int) -> str:
    return "six" if number % 10 == 6 else "odd" if number % 2 else "even"


def _down(patch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    """The sink of the branch `odd` cannot be reached."""

    def refuse(self: MemorySpanSink, *_: Target | Run) -> SinkSession:
        raise kind("the sink is down")

    patch.setattr(MemorySpanSink, "open", refuse)
    patch.setattr(MemorySpanSink, "peek", refuse)


def _later(patch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.time() + seconds
    patch.setattr("dataflow_assets.location.sensors.backoff.time.time", lambda: now)
