"""Single message transforms of Kafka Connect itself, with predicates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataflow_assets.connectors.kafka_connect.spool import Spool
from dataflow_assets.errors import PermanentError
from tests.connectors.kafka_connect.driver import Flow, source
from tests.connectors.kafka_connect.troublesome import build
from tests.drained import drain_file

pytestmark = pytest.mark.heavy

CONNECT = "org.apache.kafka.connect.transforms"
BYTES = {"raw": "AQI=", "parts": {"p": ["AQI=", None]}}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("plugin"))


def flow(folder: Path, plugin: str, config: dict[str, Any]) -> Flow:
    reading = source(folder, "TroublesomeConnector", {"trouble": "", **config}, tasksMax=1)
    return Flow(folder, reading | {"plugins": [plugin]})


def read_to(reading: Flow) -> list[Any]:
    """The offsets that the connector goes on behind."""
    _, known = Spool(reading.spool).end()
    return [one.value for one in known.values()]


def test_records_are_changed_and_dropped_and_their_offsets_count(
    plugin: str, tmp_path: Path
) -> None:
    """The third record has no value: it is dropped."""
    config = {
        "transforms": "drop, route,add",
        "transforms.drop.type": f"{CONNECT}.Filter",
        "transforms.drop.predicate": "empty",
        "transforms.route.type": f"{CONNECT}.RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "shop-$1",
        "transforms.add.type": f"{CONNECT}.InsertField$Value",
        "transforms.add.static.field": "city",
        "transforms.add.static.value": "Berlin",
        "transforms.add.replace.null.with.default": False,
        "transforms.add.predicate": "empty",
        "transforms.add.negate": True,
        "predicates": "empty",
        "predicates.empty.type": f"{CONNECT}.predicates.RecordIsTombstone",
    }
    reading = flow(tmp_path, plugin, config)
    drain_file(reading.manifest)
    assert [(row["topic"], row["record"]) for row in reading.rows] == [
        ("shop-t", {"n": 1, "city": "Berlin"}),
        ("shop-t", {"n": 2, **BYTES, "price": 1.5, "stock": None, "city": "Berlin"}),
    ]
    assert read_to(reading) == [{"at": 3}]


@pytest.mark.full
def test_where_all_records_are_dropped_their_offsets_count(plugin: str, tmp_path: Path) -> None:
    config = {"transforms": "drop", "transforms.drop.type": f"{CONNECT}.Filter"}
    reading = flow(tmp_path, plugin, config)
    drain_file(reading.manifest)
    assert read_to(reading) == [{"at": 3}]
    drain_file(flow(tmp_path, plugin, {}).manifest)
    assert reading.rows == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"type": "Nothing"},
            "a.type: neither Kafka Connect nor the connector's plugin has the class Nothing",
        ),
        ({}, "transforms.a.type: is required, the Java class"),
        (
            {"type": "java.lang.Object"},
            "transforms.a.type: java.lang.Object is not a Transformation",
        ),
        (
            {"type": f"{CONNECT}.Filter", "predicate": "p"},
            "transforms.a.predicate: p is not among predicates",
        ),
        ({"type": f"{CONNECT}.RegexRouter"}, "regex"),
    ],
)
def test_what_cannot_be_applied_ends_the_run(
    config: dict[str, str], sentence: str, plugin: str, tmp_path: Path
) -> None:
    given = {f"transforms.a.{key}": value for key, value in config.items()}
    with pytest.raises(PermanentError, match=sentence):
        drain_file(flow(tmp_path, plugin, {"transforms": "a", **given}).manifest)
