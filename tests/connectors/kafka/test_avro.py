"""Flows whose source is a topic of Avro messages: into tables and topics, rejected, replayed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from ruamel.yaml import YAML

from dataflow_assets.cli import main
from dataflow_assets.connectors.kafka.source import session
from dataflow_assets.contracts import Run
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.replay import replay
from dataflow_assets.testing import choose
from tests.connectors.kafka.system import Kafka
from tests.connectors.kafka.topics import committed
from tests.connectors.postgresql.system import Postgresql
from tests.flows import manifest
from tests.formats.avro_messages import ORDER, written
from tests.matrix.test_matrix import run

NOON = datetime(2026, 3, 1, 12, 0, 0, 500_000, UTC)
SCHEMA = json.dumps(ORDER)
ROWS: list[dict[str, Any]] = [
    {"id": n, "name": f"näme {n}", "price": Decimal(n).scaleb(-2), "at": NOON, "note": None}
    for n in range(40)
]


class Avro:
    """A topic, and a table that a flow fills from it."""

    def __init__(self, request: pytest.FixtureRequest, engine: SparkSession, folder: Path) -> None:
        self.kafka, self.table = Kafka(request), Postgresql(request)
        self._engine, self._folder = engine, folder
        self.source = self.kafka.at("source", {"format": "avro", "avroSchema": SCHEMA})
        self.sink = self.table.at("sink", {"autoCreateTable": True})

    def send(self, *values: bytes | None, keys: Sequence[bytes] | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.server.bootstrap, "log_level": 0})
        for at, value in enumerate(values):
            producer.produce(self.source["topic"], value, keys[at] if keys else None, partition=0)
        assert producer.flush(30) == 0

    def path(self, **spec: Any) -> Path:
        path = manifest(self._folder, ("kafka", self.source), ("postgresql", self.sink))
        document = YAML().load(path)
        document["spec"] |= spec
        YAML().dump(document, path)
        return path

    def flow(self, **spec: Any) -> Flow:
        return choose(load(self.path(**spec)), None)

    def run(self, **spec: Any) -> Flow:
        flow = self.flow(**spec)
        run(flow, self._engine)
        return flow

    def replay(self, flow: Flow) -> int:
        return sum(done.rows for done in replay(flow, lambda: self._engine, Run()))

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.table.rows(self.sink), key=lambda row: int(row["id"]))

    def sql(self, text: str) -> None:
        with psycopg.connect(self.table.dsn) as connection:
            connection.execute(text.format(table=self.sink["table"]).encode())


Make = Callable[[], Avro]


@pytest.fixture
def avro(request: pytest.FixtureRequest, engine: SparkSession, tmp_path: Path) -> Avro:
    return Avro(request, engine, tmp_path)


def test_columns_have_the_types_of_the_schema(avro: Avro) -> None:
    avro.send(*written(ORDER, *ROWS))
    avro.run()
    assert avro.rows() == ROWS
    assert avro.table.declared(avro.sink) == {
        "id": "bigint",
        "name": "text",
        "price": "numeric(9,2)",
        "at": "timestamp with time zone",
        "note": "text",
        "created_at": "timestamp with time zone",
        "updated_at": "timestamp with time zone",
    }


@pytest.mark.parametrize("steps", [[], [{"type": "remove", "config": {"fields": ["note"]}}]])
def test_spark_reads_what_is_too_much_for_one_task(
    avro: Avro, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, steps: list[Any]
) -> None:
    monkeypatch.setattr(session, "MOST_TOGETHER", 0)
    sent = written(ORDER, *ROWS)
    producer = Producer({"bootstrap.servers": avro.kafka.server.bootstrap, "log_level": 0})
    for at, value in enumerate(sent):
        producer.produce(avro.source["topic"], value, partition=at % 2)
    assert producer.flush(30) == 0
    run(avro.flow(transformations=steps), spark)
    gone = ("note",) if steps else ()
    assert avro.rows() == [{k: v for k, v in row.items() if k not in gone} for row in ROWS]
    declared = avro.table.declared(avro.sink)
    assert [declared["price"], declared["at"]] == ["numeric(9,2)", "timestamp with time zone"]
    assert steps or declared["id"] == "bigint"


def test_steps_see_json_and_leave_types_of_other_columns_alone(avro: Avro) -> None:
    avro.send(*written(ORDER, *ROWS))
    step = {"type": "filter", "config": {"condition": "$.price >= 0.1 && $.name != 'näme 20'"}}
    avro.run(transformations=[step, {"type": "remove", "config": {"fields": ["note"]}}])
    kept = [row for row in ROWS if row["price"] >= Decimal("0.1") and row["id"] != 20]
    assert avro.rows() == [{k: v for k, v in row.items() if k != "note"} for row in kept]
    assert avro.table.declared(avro.sink)["price"] == "numeric(9,2)"
    assert avro.table.declared(avro.sink)["at"] == "timestamp with time zone"


def test_the_schema_lies_in_a_file_beside_the_manifest(avro: Avro, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "order.avsc").write_text(SCHEMA)
    del avro.source["avroSchema"]
    avro.source["avroSchemaFile"] = "schemas/order.avsc"
    avro.send(*written(ORDER, *ROWS))
    avro.run()
    assert avro.rows() == ROWS


def test_the_schema_is_in_a_secret(avro: Avro, tmp_path: Path) -> None:
    del avro.source["avroSchema"]
    avro.source["avroSchemaSecretRef"] = {"name": "schemas", "key": "order"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "schemas"}}
    YAML().dump({**secret, "stringData": {"order": SCHEMA}}, tmp_path / "secret.yaml")
    avro.send(*written(ORDER, *ROWS))
    avro.run()
    assert avro.rows() == ROWS
    YAML().dump({**secret, "stringData": {"order": "nonsense"}}, tmp_path / "secret.yaml")
    with pytest.raises(PermanentError, match="avroSchema: the schema: line 1, column 1: no JSON"):
        avro.run()


def test_a_readers_schema_adds_and_leaves_out_fields(avro: Avro) -> None:
    fields = [one for one in ORDER["fields"] if one["name"] in ("id", "price")]
    fields.append({"name": "state", "type": "string", "default": "new"})
    avro.source["avroReaderSchema"] = json.dumps({**ORDER, "fields": fields})
    avro.send(*written(ORDER, *ROWS))
    avro.run()
    assert avro.rows() == [{"id": r["id"], "price": r["price"], "state": "new"} for r in ROWS]


@pytest.mark.parametrize("steps", [[], [{"type": "remove", "config": {"fields": ["x"]}}]])
def test_what_does_not_fit_is_rejected_and_replayed_from_its_own_bytes(
    avro: Avro, steps: list[Any]
) -> None:
    good, bad = written(ORDER, *ROWS[:2]), b"\xff\xfe\x00"
    avro.sql("create table {table} (id bigint, name varchar(6), price numeric, at timestamptz, "
             "note text)")  # fmt: skip
    long = written(ORDER, {**ROWS[2], "name": "a long name"})
    avro.send(*good, bad, *long)
    flow = avro.run(onRejected="table", maxRejectedPercent=100, transformations=steps)
    assert [row["id"] for row in avro.rows()] == [0, 1]
    store = flow.resolve().branches[0].sink.rejected_entries()
    waiting = {one.body: one.stage for one in store.pending(flow.id, None, 10)}
    assert waiting.keys() == {bad, long[0]}
    assert waiting[bad] == "decode"
    avro.sql("alter table {table} alter name type text")
    assert avro.replay(flow) == 1
    assert avro.rows()[2]["name"] == "a long name"
    assert [one.body for one in store.pending(flow.id, None, 10)] == [bad]


def test_a_flow_stops_at_a_message_that_cannot_be_decoded_and_names_it(avro: Avro) -> None:
    avro.send(*written(ORDER, *ROWS[:3]), b"\x02")
    with pytest.raises(
        Exception, match=r"partition 0, offset 3.*the message ends before the value"
    ):
        avro.run()


def test_an_unknown_field_rejects_unless_it_is_ignored(avro: Avro) -> None:
    avro.sql("create table {table} (id bigint, name text)")
    avro.send(*written(ORDER, *ROWS))
    with pytest.raises(Exception, match="columns that the target lacks: at, note, price"):
        avro.run()
    avro.sink["unknownFields"] = "ignore"
    avro.run()
    assert avro.rows() == [{"id": row["id"], "name": row["name"]} for row in ROWS]


def test_null_messages_delete_by_the_key(avro: Avro) -> None:
    avro.source["tombstones"] = "delete"
    avro.sink |= {"upsertMode": True, "conflictKey": "id", "deleteMode": "hard"}
    newer = {**ROWS[1], "name": "newer"}
    values = [*written(ORDER, *ROWS[:3], newer), None]
    avro.send(*values, keys=[b"0", b"1", b"2", b"1", b"2"])
    avro.run()
    assert avro.rows() == [ROWS[0], newer]


def test_a_large_message_beside_small_ones(avro: Avro) -> None:
    large = {**ROWS[0], "name": "x" * 900_000}
    avro.send(*written(ORDER, *ROWS[1:20], large, *ROWS[20:]))
    avro.run()
    assert avro.rows() == [large, *ROWS[1:]]


def test_topics_get_json(request: pytest.FixtureRequest, avro: Avro, engine: SparkSession,
                         tmp_path: Path) -> None:  # fmt: skip
    avro.send(*written(ORDER, ROWS[7]), keys=[b"k"])
    target = Kafka(request).at("sink", {})
    path = manifest(tmp_path, ("kafka", avro.source), ("kafka", target))
    run(choose(load(path), None), engine)
    (message,) = committed(avro.kafka.server.bootstrap, target["topic"])
    assert message.key() == b"k"
    assert (
        message.value()
        == (
            '{"id":7,"name":"näme 7","price":0.07,"at":"2026-03-01T12:00:00.5Z","note":null}'
        ).encode()
    )


def test_preview_shows_what_is_decoded_and_what_cannot_be(
    avro: Avro, capsys: pytest.CaptureFixture[str]
) -> None:
    avro.send(*written(ORDER, ROWS[7]), b"\xff")
    path = avro.path(transformations=[{"type": "remove", "config": {"fields": ["note"]}}])
    assert main(["preview", str(path), "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["in"]["body"]["name"] == "näme 7"
    assert first["out"][0]["body"]["price"] == 0.07
    assert second["in"]["base64"] == "/w=="
    assert second["rejected"]["type"] == "decode"
    assert second["rejected"]["reason"].endswith("the message ends before the value does")


# Manifests


def findings(avro: Avro, change: dict[str, Any]) -> list[str]:
    avro.source = {k: v for k, v in (avro.source | change).items() if v is not None}
    found = load(avro.path()).findings
    return [f"{one.path.removeprefix('spec.source.config')}: {one.message}" for one in found]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"avroSchema": '{"type":\n oops'}, ".avroSchema: line 2, column 2: no JSON: Expecting v"),
        ({"avroSchema": '"strnig"'}, ".avroSchema: unknown type strnig"),
        (
            {"avroSchema": None},
            ".format: avro needs a schema: set schemaRegistry, avroSchema, avroSc",
        ),
        ({"avroSchema": None, "avroSchemaFile": "no.avsc"}, ".avroSchemaFile: "),
        ({"schemaRegistry": {"url": "ftp://x"}}, ".schemaRegistry.url: must be the address of a"),
        ({"schemaRegistry": {"url": "http://u:p@x"}}, ".schemaRegistry.url: must not hold a user"),
        ({"schemaRegistry": {}}, ".schemaRegistry.url: url is required: set url or urlSecretRef"),
        (
            {"schemaRegistry": {"url": "http://x", "bearerToken": "token", "basicAuth": {}}},
            ".schemaRegistry.bearerToken: bearerToken and basicAuth exclude each other: keep one",
        ),
    ],
)
def test_check_names_what_is_wrong(avro: Avro, change: dict[str, Any], expected: str) -> None:
    (found,) = findings(avro, change)
    assert found.startswith(expected)


def test_check_looks_into_the_file_each_time(avro: Avro, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text('{\n  "type": "record",\n  oops}')
    change = {"avroSchema": None, "avroSchemaFile": "order.avsc"}
    (found,) = findings(avro, change)
    assert found.endswith(f"{file}: line 3, column 3: no JSON: Expecting property name enclosed in "
                          "double quotes")  # fmt: skip
    path = avro.path()
    assert len(load(path).findings) == 1
    file.write_text(SCHEMA)
    assert load(path).findings == ()
