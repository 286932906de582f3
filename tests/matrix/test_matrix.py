"""Every source to every sink of the catalogue: 200 changes, and exactly what they leave."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets import registry
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.testing import choose
from tests.flows import SYSTEMS, made_by, manifest
from tests.systems import Change, Config, Row, System, state

PAIRS = [(source, sink) for source in registry.sources() for sink in registry.sinks()]
_PAIRS = zip(cycle(registry.sources()), cycle(registry.sinks()), strict=True)
ON_SPARK = list(islice(_PAIRS, max(len(registry.sources()), len(registry.sinks()))))
"""Every connector once."""


def _held_elsewhere(pair: tuple[str, str]) -> bool:
    """On Spark, or, where one end is in memory, by the laws of the other one."""
    return pair in ON_SPARK or any(name.startswith("memory-") for name in pair)


HERE = [
    pytest.param(*pair, marks=pytest.mark.full if _held_elsewhere(pair) else ()) for pair in PAIRS
]
INSERTS, UPDATES, DELETES = 120, 50, 30  # 200 changes


def run(flow: Flow, spark: SparkSession, seconds: float = 20) -> int:
    """Drains the flow, trying again for so long; the rows that it says it has stored."""
    reports = list(drain(flow, lambda: spark, Request(patience=Patience(seconds, 0.05, 0.2))))
    return sum(report.delta.rows for report in reports)


def changes(columns: Sequence[str], *, deletes: bool) -> list[Change]:
    """200 of them, updates and deletes of rows that stand."""
    found = [Change("insert", _row(number, 0, columns)) for number in range(INSERTS)]
    found += [Change("update", _row(number, 1, columns)) for number in range(UPDATES)]
    gone = range(UPDATES - 10, UPDATES - 10 + DELETES)  # some of them updated before
    kind: Any = "delete" if deletes else "update"
    return found + [Change(kind, _row(number, 2, columns)) for number in gone]


def _row(number: int, version: int, columns: Sequence[str]) -> Row:
    row = {
        "id": number,
        "name": f"näme {number} «{version}»",
        "price": number + version / 4,
        "ok": (number + version) % 2 == 0,
    }
    return {name: row[name] for name in columns}


def expected(source: System, made: Sequence[Change], *, upsert: bool) -> list[Row]:
    """A plain model of what stands in the target."""
    if upsert or not source.tells_changes:
        return state(made)
    return [change.row for change in made if change.op != "delete"]


def ordered(rows: Sequence[Row]) -> list[tuple[tuple[str, Any], ...]]:
    return sorted(tuple(sorted(row.items())) for row in rows)


def upsert_of(sink: System) -> Config | None:
    """What makes it upsert, where this version can."""
    able = "upsert_mode" in registry.sinks()[sink.type].model_fields
    return sink.upsert if able else None


def test_every_connector_has_a_system() -> None:
    assert {*registry.sources(), *registry.sinks()} <= set(SYSTEMS)


def test_each_connector_is_one_of_those_on_spark() -> None:
    assert {source for source, _ in ON_SPARK} == set(registry.sources())
    assert {sink for _, sink in ON_SPARK} == set(registry.sinks())


@pytest.mark.parametrize(("source_type", "sink_type"), ON_SPARK)
def test_on_spark(
    source_type: str,
    sink_type: str,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    check(source_type, sink_type, request, spark, tmp_path)


@pytest.mark.parametrize(("source_type", "sink_type"), HERE)
def test_any_source_to_any_sink(
    source_type: str,
    sink_type: str,
    request: pytest.FixtureRequest,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    check(source_type, sink_type, request, engine, tmp_path)


def check(
    source_type: str,
    sink_type: str,
    request: pytest.FixtureRequest,
    session: SparkSession,
    tmp_path: Path,
) -> None:
    """200 changes arrive as the model says, and a second run has nothing to do."""
    source, sink = SYSTEMS[source_type](request), SYSTEMS[sink_type](request)
    upsert = upsert_of(sink)
    columns = [name for name in source.columns if name in sink.columns]
    deletes = source.sends_nulls and (upsert is not None or not source.tells_changes)
    made = changes(columns, deletes=deletes)
    nulls = source.tells_changes and source.sends_nulls
    read = source.at("source", {"tombstones": "delete"} if nulls else {})
    source.change(read, made)
    stored = sink.at("sink", {**made_by(sink), **(upsert or {})})
    flow = choose(load(manifest(tmp_path, (source_type, read), (sink_type, stored))), None)
    run(flow, session)
    wanted = ordered(expected(source, made, upsert=upsert is not None))
    assert ordered(sink.rows(stored)) == wanted
    assert run(flow, session) == 0
    assert ordered(sink.rows(stored)) == wanted
