"""Records that a transform or the converter refuses: rejected records, and the others go on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from ruamel.yaml import YAML

import devservers
from dataflow_assets.connectors.kafka_connect.parts import ConnectPart
from dataflow_assets.connectors.kafka_connect.spool import SCHEMA, ConnectOffset, Spool
from dataflow_assets.contracts import Run
from dataflow_assets.errors import Stopped
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.replay import replay
from dataflow_assets.testing import choose
from tests.connectors.files import driver as files
from tests.connectors.kafka_connect.driver import Flow, source
from tests.connectors.kafka_connect.test_tombstones import standing_in
from tests.connectors.kafka_connect.troublesome import build
from tests.drained import drain_file

OLDER = Path(__file__).parent / "older_spool"
CONNECT = "org.apache.kafka.connect.transforms"
TEXT = b"SourceRecord{sourcePartition={shop=1}, sourceOffset={at=2}} ConnectRecord{...}"
REASON = "the value cannot be converted to JSON: DataException: no; source partition {}, offset 2"


def rejected(flow: Flow) -> list[dict[str, Any]]:
    return [row for file in files.lines(flow.sink, rejected=True) for row in file]


def put_back(flow: Flow, engine: SparkSession) -> list[tuple[int, int]]:
    found = choose(load(Path(flow.manifest)), None)
    done = list(replay(found, lambda: engine, Run()))
    return [(one.rows, one.rejected_again) for one in done]


@pytest.mark.heavy
def test_what_a_transform_or_the_converter_refuses_is_a_rejected_record(
    tmp_path: Path, engine: SparkSession
) -> None:
    """The second record is a decimal without a schema; the third has no value to make a key of."""
    config = {
        "trouble": "unfit",
        "transforms": "key",
        "transforms.key.type": f"{CONNECT}.ValueToKey",
        "transforms.key.fields": "n",
    }
    reading = source(tmp_path, "TroublesomeConnector", config, tasksMax=1)
    plugins = [build(tmp_path / "plugin")]
    flow = Flow(tmp_path, reading | {"plugins": plugins}, onRejected="table")
    drain_file(flow.manifest)
    assert flow.rows == [{"topic": "t", "id": {"n": 1}, "record": {"n": 1}}]
    second, third = rejected(flow)
    assert second["error"]["message"] == (
        "the value cannot be converted to JSON: org.apache.kafka.connect.errors.DataException: "
        "Java class class java.math.BigDecimal does not have corresponding schema type."
        '; source partition {"shop":"1"}, offset {"at":2}'
    )
    assert "price=1.50" in second["original_message"]["original_data"]
    assert third["error"]["message"].startswith("a transform refuses the record: org.apache.kafka")
    assert third["error"]["message"].endswith('; source partition {"shop":"1"}, offset {"at":3}')
    assert {one["error"]["stage"] for one in (second, third)} == {"source"}
    for _ in range(2):
        assert put_back(flow, engine) == [(0, 2)]
    assert len(flow.rows) == 1


def spool_of(folder: Path, *rows: tuple[int, str | None]) -> Spool:
    """Records of the keys, each in its part; with a reason those that were refused."""
    made = Spool(folder / "spool")
    with made.lock(0):
        made.begin("C", {})
        for number, (key, refused) in enumerate(rows, 1):
            body = b'{"id": %d}' % key if refused is None else TEXT
            row = {"topic": "t", "id": f'{{"id":{key}}}', "record": body, "refused": refused}
            part = ConnectPart(number, 0, 1, 100, open=False, token="0123abcd")
            offset = {"{}": ConnectOffset(0, number)}
            made.seal(part, pa.Table.from_pylist([row], SCHEMA), offset, plain=True)
    return made


def reading(folder: Path, sink: dict[str, Any], **spec: Any) -> str:
    """A flow of the spool in the folder, of values alone; a null is the deletion of its key."""
    config = {"class": "C", "plugins": [str(folder)], "spool": str(folder / "spool")}
    values = {"envelope": False, "tombstones": "delete"}
    document = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": "refused"},
        "spec": {
            "source": {"type": "kafkaConnect", "config": config | values},
            "sink": sink,
            **spec,
        },
    }
    YAML().dump(document, folder / "flow.yaml")
    return str(folder / "flow.yaml")


@pytest.mark.parametrize("steps", [[], [{"type": "cast", "config": {"spec": {"id": "int64"}}}]])
def test_nothing_is_stored_or_deleted_of_a_refused_record(
    steps: Sequence[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgresql: devservers.PostgreSQL,
    schema: str,
) -> None:
    """Its key is that of a row which is there. A flow that stops says why and where."""
    standing_in(spool_of(tmp_path, (1, None), (1, REASON), (3, None)), monkeypatch)
    table = {"connectionString": postgresql.dsn(), "table": f"{schema}.t", "autoCreateTable": True}
    keyed = {"upsertMode": True, "conflictKey": "id", "deleteMode": "hard"}
    sink = {"type": "postgresql", "config": table | keyed}
    spec = {"transformations": steps} if steps else {}
    with pytest.raises(Stopped, match=r"part 2, row 0.*source: the value cannot be .*, offset 2;"):
        drain_file(reading(tmp_path, sink, onRejected="fail", **spec))
    drain_file(reading(tmp_path, sink, onRejected="table", **spec))
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"SET search_path = {schema}".encode())
        assert connection.execute("SELECT id FROM t ORDER BY 1").fetchall() == [(1,), (3,)]
        kept = connection.execute("SELECT stage, reason, body FROM dataflow_rejected").fetchall()
    assert kept == [("source", REASON, TEXT.decode())]


def test_a_replay_sends_no_text_of_a_refused_record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: SparkSession,
) -> None:
    """A sink of messages would send it as it is."""
    standing_in(spool_of(tmp_path, (1, None), (1, REASON)), monkeypatch)
    out = files.on_disk(tmp_path / "out")
    sink = {"type": "files", "config": out}
    manifest = reading(tmp_path, sink, onRejected="table")
    drain_file(manifest)
    found = choose(load(Path(manifest)), None)
    done = [(one.rows, one.rejected_again) for one in replay(found, lambda: engine, Run())]
    assert done == [(0, 1)]
    rejected = [row for file in files.lines(files.folder(out), rejected=True) for row in file]
    messages = [row["error"]["message"] for row in rejected]
    assert sum(one.startswith("the source has refused this record") for one in messages) == 1


def test_a_spool_of_an_earlier_version_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts have no column for what was refused."""
    shutil.copytree(OLDER, tmp_path / "spool")
    spool = Spool(tmp_path / "spool")
    standing_in(spool, monkeypatch)
    config = {"class": "TroublesomeConnector", "plugins": [str(tmp_path)]}
    flow = Flow(tmp_path, config | {"spool": str(spool.folder)})
    drain_file(flow.manifest)
    assert [(row["id"]["at"], row["record"]) for row in flow.rows] == [
        (1, {"n": 1}),
        (2, {"n": 2, "price": 1.5, "raw": "AQI=", "parts": {"p": ["AQI=", None]}, "stock": None}),
        (3, None),
    ]
    assert spool.end() == (1, {'{"shop":"1"}': ConnectOffset(0, {"at": 3})})
