"""Flows whose messages name their schemas in a registry: Apicurio, by Confluent's API."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.errors import PermanentError, RejectedRecord, TransientError
from dataflow_assets.formats.registry_client import RegistryClient
from dataflow_assets.formats.schema_registry import SchemaRegistry
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from devservers.certificates import Authority
from tests.connectors.kafka.system import Kafka
from tests.connectors.kafka.test_avro import ROWS, Avro
from tests.connectors.kafka.topics import committed
from tests.flows import manifest
from tests.formats.avro_messages import ORDER, headed, record, written
from tests.formats.registry_front import basic, front
from tests.matrix.test_matrix import run

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

SCHEMA = json.dumps(ORDER)
Register = Callable[..., int]


@pytest.fixture
def client(apicurio: devservers.Apicurio) -> RegistryClient:
    return RegistryClient(apicurio.url)


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:8]}-value"


@pytest.fixture
def avro(
    request: pytest.FixtureRequest,
    engine: SparkSession,
    tmp_path: Path,
    apicurio: devservers.Apicurio,
) -> Avro:
    made = Avro(request, engine, tmp_path)
    del made.source["avroSchema"]
    made.source["schemaRegistry"] = {"url": apicurio.url}
    return made


def evolved() -> dict[str, Any]:
    """A field more, and none of another."""
    fields = [one for one in ORDER["fields"] if one["name"] != "note"]
    return {**ORDER, "fields": [*fields, {"name": "state", "type": "string", "default": "new"}]}


# The registry itself


def test_a_schema_is_found_by_its_id_and_by_its_subject(
    client: RegistryClient, subject: str
) -> None:
    first = client.register(subject, "AVRO", SCHEMA)
    assert client.register(subject, "AVRO", SCHEMA) == first
    found = client.by_id(first)
    assert (found.kind, json.loads(found.text)["name"]) == ("AVRO", "Order")
    second = client.register(subject, "AVRO", json.dumps(evolved()))
    number, newest = client.latest(subject)
    assert (number, "state" in newest.text) == (second, True)


def test_an_id_is_asked_for_once(apicurio: devservers.Apicurio, subject: str) -> None:
    with front(apicurio.url) as between:
        client = RegistryClient(between.url())
        number = client.register(subject, "AVRO", SCHEMA)
        between.asked.clear()
        for _ in range(3):
            client.by_id(number)
        assert between.asked == [f"/schemas/ids/{number}"]


def test_references_are_followed(
    apicurio: devservers.Apicurio, client: RegistryClient, subject: str
) -> None:
    import urllib3

    state = '{"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}'
    inner = f"{subject}-state"
    client.register(inner, "AVRO", state)
    body = {
        "schema": record(("state", "State")),
        "references": [{"name": "State", "subject": inner, "version": 1}],
    }
    answer = urllib3.request("POST", f"{apicurio.url}/subjects/{subject}/versions", json=body)
    found = client.by_id(answer.json()["id"])
    assert [name for name, _ in found.references] == ["State"]
    assert "PAID" in found.references[0][1]


def test_an_id_that_nobody_has(client: RegistryClient) -> None:
    with pytest.raises(RejectedRecord, match="has no schema of the id 999999"):
        client.by_id(999_999)


def test_a_subject_that_nobody_has(client: RegistryClient) -> None:
    with pytest.raises(PermanentError, match="there is no subject nobody-value: register"):
        client.latest("nobody-value")


def test_a_registry_that_is_down() -> None:
    with pytest.raises(TransientError, match=r"registry http://127.0.0.1:9 cannot be reached"):
        RegistryClient("http://127.0.0.1:9").by_id(1)


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (401, PermanentError, "refuses the credentials \\(HTTP 401\\): check schemaRegistry.basic"),
        (403, PermanentError, "allows no access \\(HTTP 403\\)"),
        (404, PermanentError, "HTTP 404 for /schemas/ids/1: <html> busy</html>; url must be where"),
        (301, PermanentError, "HTTP 301"),
        (200, PermanentError, "url must be where a registry answers"),
        (429, TransientError, "HTTP 429"),
        (503, TransientError, "HTTP 503 for /schemas/ids/1: <html> busy</html>"),
    ],
)
def test_answers_of_a_registry_that_has_none(status: int, kind: type[Exception], says: str) -> None:
    with front("", status=status) as between, pytest.raises(kind, match=says):
        RegistryClient(between.url()).by_id(1)


# Who may ask, and whom we ask


def declared(**options: Any) -> RegistryClient:
    return SchemaRegistry.model_validate(options).client()


def test_user_and_password(
    apicurio: devservers.Apicurio, client: RegistryClient, subject: str
) -> None:
    number = client.register(subject, "AVRO", SCHEMA)
    with front(apicurio.url, basic("ada", "pässword")) as between:
        auth = {"username": "ada", "password": "pässword"}
        assert declared(url=between.url(), basicAuth=auth).by_id(number).kind == "AVRO"
        with pytest.raises(PermanentError, match="refuses the credentials") as caught:
            declared(url=between.url(), basicAuth={**auth, "password": "hush-hush"}).by_id(number)
        assert "hush-hush" not in str(caught.value)
        with pytest.raises(PermanentError, match="refuses the credentials"):
            declared(url=between.url(), basicAuth={"username": "ada"}).by_id(number)


def test_a_token(apicurio: devservers.Apicurio, client: RegistryClient, subject: str) -> None:
    number = client.register(subject, "AVRO", SCHEMA)
    with front(apicurio.url, "Bearer abc") as between:
        assert declared(url=between.url(), bearerToken="abc").by_id(number).kind == "AVRO"


def test_certificates(
    apicurio: devservers.Apicurio,
    client: RegistryClient,
    subject: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    number = client.register(subject, "AVRO", SCHEMA)
    ours, foreign = Authority(tmp_path, "ours"), Authority(tmp_path, "foreign")
    server, me = ours.issue("server"), ours.issue("me")
    with front(apicurio.url, None, server, str(ours.ca)) as between:
        url, mine = between.url("https"), {"certFile": str(me.cert), "keyFile": str(me.key)}
        trusting = {"caFile": str(ours.ca), **mine}
        assert declared(url=url, tls=trusting).by_id(number).kind == "AVRO"
        assert "certificate is not checked" not in caplog.text
        assert declared(url=url, tls={"insecureSkipVerify": True, **mine}).by_id(number)
        assert f"schema registry {url}: the server's certificate is not checked" in caplog.text
        for tls in ({}, {"tls": {"caFile": str(foreign.ca), **mine}}):
            with pytest.raises(PermanentError, match="no encrypted connection") as caught:
                declared(url=url, **tls).by_id(number)
            assert "\n" not in str(caught.value)
        # A server that has no words for it just hangs up.
        unknown = declared(url=url, tls={"caFile": str(ours.ca)})
        with pytest.raises((PermanentError, TransientError), match="schema registry https"):
            unknown.by_id(number)


# Flows


def test_messages_of_two_schemas_and_of_none(
    avro: Avro, client: RegistryClient, subject: str
) -> None:
    old = client.register(subject, "AVRO", SCHEMA)
    new = client.register(subject, "AVRO", json.dumps(evolved()))
    added = {**{k: v for k, v in ROWS[1].items() if k != "note"}, "state": "sent"}
    avro.send(
        *headed(old, written(ORDER, ROWS[0])),
        *headed(new, written(evolved(), added)),
        *headed(999_998, [b"x"]),
        b"{}",
        *headed(old, written(ORDER, ROWS[2])),
    )
    flow = avro.run(onRejected="table", maxRejectedPercent=100)
    assert avro.rows() == [
        {**ROWS[0], "state": None},
        {**added, "note": None},
        {**ROWS[2], "state": None},
    ]
    store = flow.resolve().branches[0].sink.rejected_entries()
    assert [one.body for one in store.pending(flow.id, None, 10)] == [
        *headed(999_998, [b"x"]),
        b"{}",
    ]


@pytest.mark.parametrize("steps", [[], [{"type": "remove", "config": {"fields": ["note"]}}]])
@pytest.mark.parametrize("kind", ["record", "long"])
def test_keys_of_a_registrys_schema_name_the_row_to_delete(
    avro: Avro, client: RegistryClient, subject: str, kind: str, steps: list[Any]
) -> None:
    value = client.register(subject, "AVRO", SCHEMA)
    of_key = record(("id", "long"), name="Key") if kind == "record" else '"long"'
    key = client.register(f"{subject}-key", "AVRO", of_key)
    keys = headed(key, written(of_key, *({"id": n} if kind == "record" else n for n in range(3))))
    avro.source |= {"tombstones": "delete", "keyFormat": "avro"}
    avro.sink |= {"upsertMode": True, "conflictKey": "id", "deleteMode": "hard"}
    values = [*headed(value, written(ORDER, *ROWS[:3])), None, None]
    avro.send(*values, keys=[*keys, keys[1], b"\0\0\0\0\x01?"])
    flow = avro.run(onRejected="table", maxRejectedPercent=100, transformations=steps)
    assert [row["id"] for row in avro.rows()] == [0, 2]
    store = flow.resolve().branches[0].sink.rejected_entries()
    (entry,) = store.pending(flow.id, None, 10)
    assert entry.body is None
    assert steps or entry.key == b"\0\0\0\0\x01?"


@pytest.mark.parametrize("steps", [[], [{"type": "remove", "config": {"fields": ["note"]}}]])
@pytest.mark.parametrize("kind", ["record", "long"])
def test_a_null_message_is_the_tombstone_of_the_key_that_the_sink_makes(
    avro: Avro,
    client: RegistryClient,
    subject: str,
    kind: str,
    steps: list[Any],
    request: pytest.FixtureRequest,
) -> None:
    """Also where its own key is Avro; other keys need not even be readable."""
    value = client.register(subject, "AVRO", SCHEMA)
    of_key = record(("id", "long"), name="Key") if kind == "record" else '"long"'
    key = client.register(f"{subject}-key", "AVRO", of_key)
    (one,) = headed(key, written(of_key, {"id": 1} if kind == "record" else 1))
    bad = b"\0\0\0\0\x01?"
    avro.source |= {"keyFormat": "avro"}
    values = [*headed(value, written(ORDER, *ROWS[:2])), None, None]
    avro.send(*values, keys=[bad, bad, one, bad])
    sink = Kafka(request).at("sink", {"upsertMode": True, "conflictKey": "id"})
    flow = avro.run(
        sink={"type": "kafka", "config": sink},
        onRejected="table",
        maxRejectedPercent=100,
        transformations=steps,
    )
    found = committed(avro.kafka.server.bootstrap, sink["topic"])
    assert [(m.key(), m.value() is None) for m in found] == [
        (b"0", False),
        (b"1", False),
        (b"1", True),
    ]
    (entry,) = flow.resolve().branches[0].sink.rejected_entries().pending(flow.id, None, 10)
    assert entry.body is None


def test_a_registry_that_is_down_is_waited_for(
    avro: Avro, client: RegistryClient, subject: str, engine: SparkSession
) -> None:
    number = client.register(subject, "AVRO", SCHEMA)
    avro.source["schemaRegistry"] = {"url": "http://127.0.0.1:9"}
    avro.send(*headed(number, written(ORDER, *ROWS)))
    with pytest.raises(TransientError, match=r"registry http://127.0.0.1:9 cannot be reached"):
        run(avro.flow(), engine, seconds=1)


def test_credentials_that_are_refused_end_the_run_with_one_sentence(
    avro: Avro, apicurio: devservers.Apicurio
) -> None:
    avro.send(*headed(1, written(ORDER, *ROWS)))
    with front(apicurio.url, "Bearer abc") as between:
        avro.source["schemaRegistry"] = {"url": between.url()}
        with pytest.raises(PermanentError, match=r"refuses the credentials \(HTTP 401\)"):
            avro.run()


# Out


@pytest.fixture
def out(request: pytest.FixtureRequest, apicurio: devservers.Apicurio) -> dict[str, Any]:
    return Kafka(request).at("sink", {"schemaRegistry": {"url": apicurio.url}})


def sent(
    avro: Avro, sink: dict[str, Any], engine: SparkSession, folder: Path, *bodies: bytes
) -> Any:
    """JSON messages into the sink; what stands there then."""
    source = {k: v for k, v in avro.source.items() if k not in ("format", "schemaRegistry")}
    avro.send(*bodies)
    path = manifest(folder, ("kafka", source), ("kafka", sink))
    flow = choose(load(path), None)
    run(flow, engine)
    return [message.value() for message in committed(avro.kafka.server.bootstrap, sink["topic"])]


def test_avro_out_is_registered_and_read_back(
    avro: Avro, out: dict[str, Any], engine: SparkSession, tmp_path: Path, client: RegistryClient
) -> None:
    out |= {"format": "avro", "avroSchema": SCHEMA}
    body = '{"id":7,"name":"näme","price":0.07,"at":"2026-03-01T12:00:00.5Z","note":null}'.encode()
    (value,) = sent(avro, out, engine, tmp_path, body)
    number, _ = client.latest(f"{out['topic']}-value")
    assert value == headed(number, written(ORDER, {**ROWS[7], "name": "näme"}))[0]
    source = KafkaSource.model_validate(
        {
            "brokers": [avro.kafka.server.bootstrap],
            "topic": out["topic"],
            "format": "avro",
            "schemaRegistry": out["schemaRegistry"],
        }
    )
    import pyarrow as pa

    form = source.message_format()
    assert form is not None
    assert form.texts(pa.array([value], pa.binary())).texts.to_pylist() == [body]


def test_the_newest_schema_of_a_subject_is_used(
    avro: Avro, out: dict[str, Any], engine: SparkSession, tmp_path: Path, client: RegistryClient,
    subject: str,
) -> None:  # fmt: skip
    schema = record(("id", "long"))
    number = client.register(subject, "AVRO", schema)
    out |= {"format": "avro", "subject": subject, "unknownFields": "ignore"}
    found = sent(avro, out, engine, tmp_path, b'{"id":7,"more":1}')
    assert found == headed(number, written(schema, {"id": 7}))


def test_json_schema_out(
    avro: Avro, out: dict[str, Any], engine: SparkSession, tmp_path: Path, client: RegistryClient
) -> None:
    schema = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
    out |= {"format": "json-schema", "jsonSchema": schema}
    assert sent(avro, out, engine, tmp_path, b'{"id": 7}') == headed(
        client.latest(f"{out['topic']}-value")[0], [b'{"id": 7}']
    )
    with pytest.raises(PermanentError, match=r"id: breaks properties.id.type of the schema"):
        sent(avro, out, engine, tmp_path, b'{"id": "x"}')


def test_a_subject_without_a_schema_says_so(
    avro: Avro, out: dict[str, Any], engine: SparkSession, tmp_path: Path
) -> None:
    out |= {"format": "avro"}
    with pytest.raises(PermanentError, match="there is no subject"):
        sent(avro, out, engine, tmp_path, b'{"id": 7}')


# Protobuf

PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/type/money.proto";
message Order {
  int64 id = 1;
  string name = 2;
  enum State { NEW = 0; PAID = 1; }
  State state = 3;
  optional double price = 4;
  google.protobuf.Timestamp at = 5;
  repeated Line lines = 6;
  map<string, int64> counts = 7;
  google.type.Money fee = 8;
  message Line { bytes raw = 1; }
}
"""


def test_protobuf_in(avro: Avro, client: RegistryClient, subject: str) -> None:
    number = client.register(subject, "PROTOBUF", PROTO)
    avro.source["format"] = "protobuf"
    value = bytes.fromhex("080712017818012a02080532030a01ff3a050a01611002")
    (head,) = headed(number, [b""])
    avro.send(head + b"\0" + value, head + b"\x02\x04" + value, head + b"\0\xff", b"{}")
    flow = avro.run(onRejected="table", maxRejectedPercent=100)
    (row,) = avro.rows()
    assert {k: row[k] for k in ("id", "name", "state", "price", "at")} == {
        "id": 7, "name": "x", "state": "PAID", "price": None, "at": "1970-01-01T00:00:05Z",
    }  # fmt: skip
    assert row["counts"] == {"a": 2}
    assert row["lines"] == [{"raw": "/w=="}]
    store = flow.resolve().branches[0].sink.rejected_entries()
    assert len(store.pending(flow.id, None, 10)) == 3
