"""Raw mode and wrapped bodies, in every sink that has columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets import registry
from dataflow_assets.manifests.load import load
from dataflow_assets.sdk.raw_mode import RawSink
from dataflow_assets.testing import choose
from tests.connectors.kafka.system import Kafka
from tests.flows import SYSTEMS, made_by, manifest
from tests.matrix.test_matrix import run
from tests.systems import Change, Config, Row, System

SINKS = [name for name, sink in registry.sinks().items() if issubclass(sink, RawSink)]
SOURCES = [name for name in registry.sources() if not name.startswith("memory-")]
ROWS: list[Row] = [
    {"id": number, "name": f"näme {number}", "price": number + 0.25, "ok": number % 2 == 0}
    for number in range(20)
]
Flowing = Callable[[System, Config, str, Config], list[Row]]


@pytest.fixture
def flowing(request: pytest.FixtureRequest, engine: SparkSession, tmp_path: Path) -> Flowing:
    """Runs a flow into a table that it makes; what stands there then."""

    def into(source: System, read: Config, sink_type: str, options: Config) -> list[Row]:
        sink = SYSTEMS[sink_type](request)
        stored = sink.at("sink", {**made_by(sink), **options})
        flow = choose(load(manifest(tmp_path, (source.type, read), (sink_type, stored))), None)
        run(flow, engine)
        return sink.rows(stored)

    return into


def value(found: Any) -> Any:
    """JSON as the column holds it: a document, or its text."""
    return json.loads(found) if isinstance(found, str) else found


def test_every_sink_with_columns_has_a_raw_mode() -> None:
    columns = {name for name, sink in registry.sinks().items() if sink.takes == "columns"}
    assert set(SINKS) == {name for name in columns if not name.startswith("memory-")}


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("source_type", SOURCES)
def test_raw_mode_keeps_whole_rows_with_their_metadata(
    source_type: str, sink: str, request: pytest.FixtureRequest, flowing: Flowing
) -> None:
    source = SYSTEMS[source_type](request)
    read = source.at("source", {})
    source.change(read, [Change("insert", row) for row in ROWS])
    rows = flowing(source, read, sink, {"rawMode": True})
    bodies = sorted((value(row["data"]) for row in rows), key=lambda body: int(body["id"]))
    assert bodies == ROWS
    known = set(registry.sources()[source_type].metadata_keys)
    for row in rows:
        keys = set(value(row["_metadata"]))
        assert keys
        assert keys <= known


@pytest.mark.parametrize("sink", SINKS)
def test_metadata_as_columns(sink: str, request: pytest.FixtureRequest, flowing: Flowing) -> None:
    source = Kafka(request)
    read = source.at("source", {})
    source.send(read, b'{"id": 1}', b'{"value": 2, "_metadata": {"offset": 7}}')
    options = {
        "rawMode": True,
        "flattenMetadataColumns": True,
        "flattenMetadataColumnsPrefix": "kafka_",
    }
    rows = flowing(source, read, sink, options)
    first, second = sorted(rows, key=lambda row: int(row["kafka_offset"]))
    assert (value(first["data"]), value(second["data"])) == ({"id": 1}, 2)
    assert (first["kafka_topic"], first["kafka_partition"]) == (read["topic"], 0)
    assert (first["kafka_key"], first["kafka_offset"]) == ("k", 0)
    assert (second["kafka_topic"], second["kafka_offset"]) == (None, 7)
    assert "_metadata" not in first


@pytest.mark.parametrize("sink", SINKS)
def test_wrapped_bodies_in_raw_mode(
    sink: str, request: pytest.FixtureRequest, flowing: Flowing
) -> None:
    source = Kafka(request)
    read = source.at("source", {})
    source.send(read, b'{"value": {"id": 1}, "_metadata": {"offset": 10}}')
    (row,) = flowing(source, read, sink, {"rawMode": True})
    assert (value(row["data"]), value(row["_metadata"])) == ({"id": 1}, {"offset": 10})


@pytest.mark.parametrize("sink", SINKS)
def test_wrapped_bodies_fill_columns(
    sink: str, request: pytest.FixtureRequest, flowing: Flowing
) -> None:
    source = Kafka(request)
    read = source.at("source", {})
    source.send(
        read,
        b'{"id": 1, "name": "plain"}',
        b'{"value": {"id": 2, "name": "wrapped"}, "_metadata": {"x": 1}}',
        b' {"_metadata": null, "value": {"id": 3, "name": "the other way"}}',
    )
    rows = sorted(flowing(source, read, sink, {}), key=lambda row: int(row["id"]))
    assert [(int(row["id"]), row["name"]) for row in rows] == [
        (1, "plain"),
        (2, "wrapped"),
        (3, "the other way"),
    ]
