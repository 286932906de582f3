"""A connector that throws, hangs, is too large or does not fit: one sentence each, and no loss."""

from __future__ import annotations

import json
import logging
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dataflow_assets.connectors.kafka_connect import client
from dataflow_assets.connectors.kafka_connect.spool import Spool
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from tests.connectors.kafka_connect.driver import Flow, source
from tests.connectors.kafka_connect.troublesome import build
from tests.drained import drain_apart, drain_file

pytestmark = pytest.mark.heavy

WORD = "planted  s3cret\nof two lines"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("plugin"))


def flow(folder: Path, plugin: str, trouble: str, tasks: int = 1, **more: str) -> Flow:
    config = {"trouble": trouble, "open.sesame": WORD, **more}
    reading = source(folder, "TroublesomeConnector", config, tasksMax=tasks)
    return Flow(folder, reading | {"plugins": [plugin]})


def places(reading: Flow) -> list[int]:
    return [row["id"]["at"] for row in reading.rows]


def test_records_without_a_key_with_other_schemas_and_without_a_value(
    plugin: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The connector is stopped at the end of its run.

    `stock` has a default in its schema, and no value in the record; `raw` and `parts` are parts of
    larger buffers.
    """
    reading = flow(tmp_path, plugin, "")
    with caplog.at_level(logging.INFO, "dataflow_assets"):
        drain_file(reading.manifest)
    assert "TroublesomeConnector: the connector was stopped" in caplog.text
    assert [row["id"] for row in reading.rows] == [{"shop": "1", "at": n} for n in (1, 2, 3)]
    second = {"price": 1.5, "raw": "AQI=", "parts": {"p": ["AQI=", None]}, "stock": None}
    values = [{"n": 1}, {"n": 2} | second, None]
    assert [row["record"] for row in reading.rows] == values


@pytest.mark.parametrize(
    ("trouble", "kind", "sentence"),
    [
        (
            "throws",
            TransientError,
            (
                r"running the connector TroublesomeConnector: task 0 of TroublesomeConnector: \S+"
                r"ConnectException: refused \*\*\*; the cause: \S+StateException: with \*\*\*\."
            ),
        ),
        pytest.param(
            "misfit",
            PermanentError,
            r"NoSuchMethodError: com\.google\.Guava\.old\(\): a jar of the plugin is missing, or "
            r"was built for another version; Java here is \d+.*, Kafka Connect 4\.3\.1$",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "told",
            TransientError,
            r"TroublesomeConnector: \S+ConnectException: not now",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "memory",
            TransientError,
            r"its JVM is out of memory \(heap: 128m\): raise heap, or lower",
            marks=pytest.mark.full,
        ),
    ],
)
def test_what_it_has_delivered_before_is_stored_once(
    trouble: str,
    kind: type[DataflowError],
    sentence: str,
    plugin: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reading = flow(tmp_path, plugin, trouble)
    with caplog.at_level(logging.INFO, "dataflow_assets"), pytest.raises(kind, match=sentence):
        drain_file(reading.manifest)
    drain_file(flow(tmp_path, plugin, "").manifest)
    assert places(reading) == [1, 2, 3]
    assert not any(part in caplog.text for part in ("planted", "s3cret", "two lines"))
    assert "open.sesame: is a password of the connector" in caplog.text


@pytest.mark.full
def test_records_of_one_offset_and_of_none_come_once(plugin: str, tmp_path: Path) -> None:
    """Two of each offset, one without source partition, one without offset; then a restart."""
    reading = flow(tmp_path, plugin, "places")
    assert drain_apart(reading.manifest, failpoint="connect.sealed:kill") == 1
    drain_file(reading.manifest)
    drain_file(reading.manifest)
    found = Counter(json.dumps(row["id"]) for row in reading.rows)
    twice = {json.dumps({"shop": "1", "at": at}): 2 for at in (1, 2, 3)}
    assert found == {**twice, "{}": 3, json.dumps({"shop": "1"}): 3}


@pytest.mark.full
def test_a_configuration_that_it_refuses_ends_the_run(plugin: str, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"ConfigException: no such shop$"):
        drain_file(flow(tmp_path, plugin, "config").manifest)


@pytest.mark.full
@pytest.mark.parametrize("trouble", ["retriable", "blocks", "large", "again"])
def test_it_is_read_to_its_end(trouble: str, plugin: str, tmp_path: Path) -> None:
    """A poll to be tried again, one that never returns, records of 10 MB.

    And a connector that asks for its tasks to be started again.
    """
    reading = flow(tmp_path, plugin, trouble)
    drain_file(reading.manifest)
    assert places(reading) == [1, 2, 3]
    if trouble == "large":
        assert {len(row["record"]) for row in reading.rows} == {10_000_000}


def test_a_connector_that_needs_more_tasks_delivers_each_record_once(
    plugin: str, tmp_path: Path
) -> None:
    """Its first task asks for them before its last record, while records are not sealed yet."""
    reading = flow(tmp_path, plugin, "grows", tasks=2)
    drain_file(reading.manifest)
    found = [(row["id"]["shop"], row["id"]["at"]) for row in reading.rows]
    assert sorted(found) == [(shop, at) for shop in ("1", "2") for at in (1, 2, 3)]


@pytest.mark.full
def test_tasks_that_are_started_again_have_as_much_time_as_the_first_ones(
    plugin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them takes longer to start than a call of a running one may take."""
    monkeypatch.setattr(client, "_SILENT", 6.0)
    reading = flow(tmp_path, plugin, "grows", tasks=2, pause="5000")
    drain_file(reading.manifest)
    found = [(row["id"]["shop"], row["id"]["at"]) for row in reading.rows]
    assert sorted(found) == [(shop, at) for shop in ("1", "2") for at in (1, 2, 3)]


@pytest.mark.full
def test_a_call_that_never_returns_is_noticed(
    plugin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = flow(tmp_path, plugin, "commit")
    message = "neither started, failed nor answered for 20 seconds"
    monkeypatch.setattr(client, "_SILENT", 20.0)
    with pytest.raises(TransientError, match=message):
        drain_file(reading.manifest)
    monkeypatch.undo()
    drain_file(flow(tmp_path, plugin, "").manifest)
    assert places(reading) == [1, 2, 3]


def test_a_spool_that_is_full_loses_nothing(plugin: str, tmp_path: Path) -> None:
    """A limit on the size of files stands for a disk without space."""
    reading = flow(tmp_path, plugin, "large")
    with (
        files_up_to(1_000_000),
        pytest.raises(
            TransientError,
            match=r"the spool \S+ cannot be written \(File too large\): check the disk",
        ),
    ):
        drain_file(reading.manifest)
    assert Spool(reading.spool).parts() == []
    drain_file(reading.manifest)
    assert places(reading) == [1, 2, 3]
    assert list(reading.spool.glob("*.parquet")) == []


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
