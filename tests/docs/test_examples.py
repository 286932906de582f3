"""Every example of docs/connectors, run as it stands: only hosts and names are this test's own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from ruamel.yaml import YAML

from dataflow_assets import registry
from dataflow_assets.cli import running
from dataflow_assets.cli.running import FlowOutcome
from dataflow_assets.manifests.load import load
from dataflow_assets.reference.connectors import EXAMPLES, example
from dataflow_assets.runs.request import Request
from dataflow_assets.testing import choose
from tests.flows import SYSTEMS
from tests.matrix.test_matrix import run
from tests.systems import Change, Config, Row, System

NAMED = sorted(path.name for path in EXAMPLES.glob("*-to-*.yaml"))
ROWS = 20


def test_every_connector_shows_one_that_runs() -> None:
    for role, found in (("source", registry.sources()), ("sink", registry.sinks())):
        for name in found:
            assert name.startswith("memory-") or example(role, name).name in NAMED


@pytest.mark.parametrize("name", NAMED)
def test_the_example_runs(
    name: str, request: pytest.FixtureRequest, engine: SparkSession, tmp_path: Path
) -> None:
    yaml = YAML()
    documents: list[dict[str, Any]] = list(yaml.load_all(EXAMPLES / name))
    (document,) = (one for one in documents if one["kind"] == "DataFlow")
    document["metadata"]["name"] = f"example-{uuid.uuid4().hex[:8]}"
    source, sink = (placed(documents, document, role, request) for role in ("source", "sink"))
    source.change([Change("insert", _row(number, source.system)) for number in range(ROWS)])
    path = tmp_path / name
    yaml.dump_all(documents, path)
    flow = choose(load(path), None)
    assert run(flow, engine) == ROWS
    stored = sink.rows()
    assert sorted(row["id"] for row in stored) == list(range(ROWS))
    assert run(flow, engine) == 0


def test_the_scheduled_example_runs_with_its_triggers(
    request: pytest.FixtureRequest, engine: SparkSession, tmp_path: Path
) -> None:
    """As `dataflow run` does; then once more, with a trigger that fails."""
    yaml = YAML()
    documents: list[dict[str, Any]] = list(yaml.load_all(EXAMPLES / "nightly-copy.yaml"))
    (document,) = (one for one in documents if one["kind"] == "DataFlowCron")
    document["metadata"]["name"] = name = f"example-{uuid.uuid4().hex[:8]}"
    source, sink = (placed(documents, document, role, request) for role in ("source", "sink"))
    source.change([Change("insert", _row(number, source.system)) for number in range(ROWS)])
    path = tmp_path / "nightly-copy.yaml"
    yaml.dump_all(documents, path)
    lines, done = _run_once(path, engine)
    assert done.outcome == "done"
    assert len(sink.rows()) == ROWS
    assert lines == [f"default/{name}: refresh-report: orders has {ROWS} new rows"]
    document["spec"]["triggers"][0]["command"] = ["false"]
    yaml.dump_all(documents, path)
    lines, done = _run_once(path, engine)
    assert done.outcome == "failed"
    (line,) = lines
    assert line.startswith(
        f"default/{name}: page: default/{name} has failed: trigger refresh-report of flow "
        f"default/{name} ended with exit code 1"
    )


def _run_once(path: Path, engine: SparkSession) -> tuple[list[str], FlowOutcome]:
    """The output of its triggers, and its end."""
    flow = choose(load(path), None)
    events = list(running.run([flow], lambda: engine, Request(), running.Stop(running.abandon)))
    (done,) = (one for one in events if isinstance(one, FlowOutcome))
    return [one.text for one in events if isinstance(one, running.TriggerLine)], done


@dataclass(frozen=True)
class End:
    """One end of a manifest, at a place of this test's own."""

    system: System
    config: Config

    def change(self, changes: Sequence[Change]) -> None:
        self.system.change(self.config, changes)

    def rows(self) -> list[Row]:
        return self.system.rows(self.config)


def placed(
    documents: list[dict[str, Any]], flow: dict[str, Any], role: str, request: pytest.FixtureRequest
) -> End:
    """One end; from now on the manifest, or its Secret, names its place."""
    end = flow["spec"][role]
    system = SYSTEMS[end["type"]](request)
    given = dict(end["config"])
    found = system.at(role, given)
    end["config"] = dict(found)
    for name, ref in [(name, ref) for name, ref in given.items() if name.endswith("SecretRef")]:
        value = end["config"].pop(name.removesuffix("SecretRef"))
        (secret,) = (one for one in documents if one["metadata"]["name"] == ref["name"])
        secret["stringData"][ref["key"]] = value
    return End(system, found)


def _row(number: int, source: System) -> dict[str, Any]:
    row = {"id": number, "name": f"order {number}", "price": number + 0.25, "ok": True}
    changed = datetime(2026, 7, 20, 10, 0, number, tzinfo=UTC)
    if source.tells_changes:  # JSON, of any of the examples
        return row | {"status": "paid", "user": number % 3, "updated_at": changed.isoformat()}
    return row | {"updated_at": changed}
