"""JustOne's properties as manifests: what loads, what is said of each mistake and where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.contracts import Rejects
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.languages.justone.messages.message_format import ParsePathsFormat
from dataflow_assets.languages.justone.postgresql.sink import JustOneSink
from dataflow_assets.languages.justone.reader.keys import CLASS
from dataflow_assets.manifests.load import Loaded, load
from dataflow_assets.manifests.watched import fingerprint
from dataflow_assets.secrets.tls import NO_FORM
from tests import ROOT

CONNECTOR = """\
#
# Name of the connector (do not change)
#
name=justone-kafka-sink-pg-json
connector.class=com.justone.kafka.sink.pg.json.PostgreSQLSinkConnector
tasks.max=1
topics=readings
db.host=localhost
db.database=shop
db.username=duncan
# db.password=none
db.schema=public
db.table=readings
db.columns=id,latitude,longitude,acceleration
db.json.parse=/@identity,/@location/@latitude,/@location/@longitude,/@acceleration
db.delivery=synchronized
db.buffer.size=8000000
#
"""
WORKER = """\
bootstrap.servers=localhost:9092

key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
key.converter.schemas.enable=false
value.converter.schemas.enable=false
internal.key.converter=org.apache.kafka.connect.json.JsonConverter
internal.value.converter=org.apache.kafka.connect.json.JsonConverter
internal.key.converter.schemas.enable=false
internal.value.converter.schemas.enable=false
offset.storage.file.filename=/tmp/connect.offsets
"""


def loaded(folder: Path, connector: str = CONNECTOR, worker: str | None = WORKER) -> Loaded:
    (folder / "sink.properties").write_text(connector)
    if worker is not None:
        (folder / "worker.properties").write_text(worker)
    return load(folder)


def flow(found: Loaded) -> Flow:
    assert [str(finding) for finding in found.findings] == []
    (one,) = found.flows
    return one


def source(one: Flow) -> KafkaSource:
    assert isinstance(one.source, KafkaSource)
    return one.source


def form(one: Flow) -> ParsePathsFormat:
    found = source(one).values
    assert isinstance(found, ParsePathsFormat)
    return found


def sink(one: Flow) -> JustOneSink:
    found = one.branches[0].sink
    assert isinstance(found, JustOneSink)
    return found


def changed(**keys: str | None) -> str:
    """The connector's file with other values; None leaves a key out."""
    lines = []
    names = {name.replace("__", "."): text for name, text in keys.items()}
    for line in CONNECTOR.splitlines():
        key = line.partition("=")[0]
        if key not in names:
            lines.append(line)
        elif (text := names.pop(key)) is not None:
            lines.append(f"{key}={text}")
    return "\n".join([*lines, *(f"{key}={text}" for key, text in names.items())]) + "\n"


def test_the_connectors_own_files_are_a_flow(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    one = flow(found)
    assert one.id == "default/justone-kafka-sink-pg-json.readings"
    assert source(one).brokers == ("localhost:9092",)
    assert source(one).topic == "readings"
    assert source(one).consumer_group == "connect-justone-kafka-sink-pg-json"
    assert source(one).starting_offsets == "group"
    assert form(one).names == ("id", "latitude", "longitude", "acceleration")
    assert form(one).paths[3] == "/@acceleration"
    assert sink(one).place() == ("public", "readings")
    assert str(one.branches[0].address) == "postgresql/localhost_shop/public/readings"
    assert "duncan" in sink(one).dsn()
    assert one.policies.rejects == Rejects("fail")
    note, worker = found.hints
    assert (note.line, note.path) == (17, "db.buffer.size")
    assert "keys have no effect here: internal.key.converter, " in worker.message


def test_a_file_alone_finds_the_worker_beside_it(tmp_path: Path) -> None:
    loaded(tmp_path)
    assert flow(load(tmp_path / "sink.properties")).source_address.parts[1] == "localhost"


def test_each_topic_is_a_flow(tmp_path: Path) -> None:
    found = loaded(tmp_path, changed(topics="a, b,c,a,"))
    assert [one.name.rpartition(".")[2] for one in found.flows] == ["a", "b", "c"]
    assert len({one.hash for one in found.flows}) == 3
    assert len({one.branches[0].id for one in found.flows}) == 1


def test_a_changed_worker_changes_the_flow(tmp_path: Path) -> None:
    before = flow(loaded(tmp_path))
    after = flow(loaded(tmp_path, worker="bootstrap.servers=PLAINTEXT://k-1:9093,k-2:9092\n"))
    assert source(after).brokers == ("k-1:9093", "k-2:9092")
    assert before.hash != after.hash


MISTAKES = [
    ({"name": None}, 1, "name", "is required"),
    ({"name": "a b"}, 4, "name", "letters"),
    ({"connector.class": None}, 1, "connector.class", "must be com.justone"),
    ({"topics": "???"}, 7, "topics", "is a placeholder (???): write "),
    ({"topics": "<your topic>"}, 7, "topics", "is a placeholder (<...>): write the value"),
    ({"db.host": "???"}, 8, "db.host", "is a placeholder (???): write "),
    ({"db.password": "???"}, 19, "db.password", "is a placeholder (???): write "),
    ({"db.password": "<password>"}, 19, "db.password", "is a placeholder (<...>): write the"),
    ({"topics": ""}, 7, "topics", "is required, but has no value"),
    ({"topics": "a,,b"}, 7, "topics", "empty item"),
    ({"topics": "a b"}, 7, "topics", "a topic has letters"),
    ({"topics.regex": "a.*"}, 19, "topics.regex", "name the topics"),
    ({"tasks.max": "0"}, 6, "tasks.max", "must be a number, at least 1"),
    ({"tasks.max": "two"}, 6, "tasks.max", "must be a number, at least 1"),
    ({"db.host": "localhost/shop"}, 8, "db.host", "host or host:port"),
    ({"db.host": "localhost:port"}, 8, "db.host", "host or host:port"),
    ({"db.host": "${env:HOST}"}, 8, "db.host", "only db.password"),
    ({"db.database": None}, 1, "db.database", "is required"),
    ({"db.database": "shop?ssl=true"}, 9, "db.database", "parameters of the JDBC address"),
    ({"db.username": None}, 1, "db.username", "is required"),
    ({"db.password": "${vault:x:y}"}, 19, "db.password", "provider vault is not supported"),
    ({"db.password": "a${env:X}"}, 19, "db.password", "must be the whole value"),
    ({"db.password": "${env:1X}"}, 19, "db.password", "a variable's name"),
    ({"db.password": "${secrets:a/b/c:d}"}, 19, "db.password", "${secrets:NAMESPACE/NAME:KEY}"),
    ({"db.schema": None}, 1, "db.schema", "is required"),
    ({"db.table": None}, 1, "db.table", "is required"),
    ({"db.columns": None}, 1, "db.columns", "is required"),
    ({"db.columns": "id,latitude"}, 15, "db.json.parse", "4 paths, and db.columns 2"),
    ({"db.columns": "id,id,longitude,acceleration"}, 14, "db.columns", "names a column twice"),
    ({"db.json.parse": None}, 1, "db.json.parse", "is required"),
    ({"db.json.parse": "/@a,/@b,@c,/@d"}, 15, "db.json.parse", "path 3 begins with @"),
    ({"db.json.parse": "/@a, /@b,/@c,/@d"}, 15, "db.json.parse", "path 2 begins with a space"),
    ({"db.json.parse": "/@a,/@b,/c,/@d"}, 15, "db.json.parse", "path 3 has an item"),
    ({"db.buffer.size": "-1"}, 17, "db.buffer.size", "at least 0"),
    ({"transforms": "t"}, 19, "transforms", "not supported in this file"),
    ({"transforms.t.type": "x"}, 19, "transforms.t.type", "not supported in this file"),
    ({"value.converter": "org.apache.kafka.connect.json.JsonConverter"}, 19, "value.converter",
     "must be org.apache.kafka.connect.storage.StringConverter"),
    ({"errors.tolerance": "some"}, 19, "errors.tolerance", "allowed: none, all"),
    ({"errors.deadletterqueue.topic.name": "dlq"}, 19, "errors.deadletterqueue.topic.name",
     "dataflow_rejected"),
    ({"dataflow.onRejected": "errors"}, 19, "dataflow.onRejected", "allowed: fail, table, skip"),
    ({"dataflow.freshness": "0"}, 19, "dataflow.freshness", "1 to 3600"),
    ({"consumer.override.auto.offset.reset": "latest"}, 19,
     "consumer.override.auto.offset.reset", "must be earliest"),
]  # fmt: skip


LAST = "db.password (the password, if any)"
ADDRESSES = [
    (
        {"db.url": "jdbc:postgresql://pg.shop:5433/shop?user=duncan&password=geheim"},
        "db.url",
        (
            "is not a key of this connector: write db.host=pg.shop:5433, db.database=shop, "
            f"db.username=duncan, {LAST}"
        ),
    ),
    (
        {"connection.url": "postgresql://dun%63an:geheim@pg/shop"},
        "connection.url",
        (
            "is not a key of this connector: write db.host=pg, db.database=shop, "
            f"db.username=duncan, {LAST}"
        ),
    ),
    (
        {"db.url": "jdbc:postgresql://a:1,b:2/shop"},
        "db.url",
        (
            "is not a key of this connector: write db.host=a:1,b:2, db.database=shop, "
            f"db.username (the user), {LAST}"
        ),
    ),
    (
        {"db.host": "jdbc:postgresql://pg/shop"},
        "db.host",
        "is a whole address: write db.host=pg, db.database=shop, db.username (the user), " + LAST,
    ),
    (
        {"db.url": "postgres://duncan:123/geheim@pg/shop"},
        "db.url",
        (
            "is not a key of this connector: write its parts in db.host (host or host:port), "
            "db.database, db.username, db.password"
        ),
    ),
]


@pytest.mark.parametrize(("keys", "path", "said"), ADDRESSES)
def test_an_address_is_one_mistake_whose_parts_are_named(
    tmp_path: Path, keys: dict[str, str], path: str, said: str
) -> None:
    """What is missing is in it: nothing else is said. A password is not repeated."""
    parts = {"db.host": None, "db.database": None, "db.username": None}
    found = loaded(
        tmp_path, changed(**{k.replace(".", "__"): v for k, v in {**parts, **keys}.items()})
    )
    assert [(one.path, one.message) for one in found.findings] == [(path, said)]
    assert "geheim" not in " ".join(map(str, (*found.findings, *found.hints)))


def test_an_address_beside_its_parts_is_ignored(tmp_path: Path) -> None:
    found = loaded(tmp_path, changed(db__url="jdbc:postgresql://elsewhere/shop"))
    assert "localhost" in sink(flow(found)).dsn()
    said = [one.message for one in found.hints if one.path == "db.url"]
    assert said == ["is ignored, as Connect does it: db.host, db.database and db.username count"]


def test_a_key_beside_the_one_that_was_meant(tmp_path: Path) -> None:
    found = loaded(tmp_path, changed(db__user="other"))
    assert "duncan" in sink(flow(found)).dsn()
    said = [one.message for one in found.hints if one.path == "db.user"]
    assert said == [
        (
            "is ignored, as Connect does it: no such key is known here; db.username is given too, "
            "and counts: remove this key"
        )
    ]
    found = loaded(tmp_path, changed(db__user="other", db__username=None))
    said = [one.message for one in found.hints if one.path == "db.user"]
    assert said[0].endswith("; did you mean db.username?")


def test_a_space_may_be_the_delimiter_and_is_noted_at_the_end(tmp_path: Path) -> None:
    """At the end it is part of a key: a column of nulls, and nobody would see why."""
    paths = "/@a,\\ @b @c,/@d,/@e "
    found = loaded(tmp_path, changed(db__json__parse=paths))
    assert form(flow(found)).paths == ("/@a", " @b @c", "/@d", "/@e ")
    said = [one.message for one in found.hints if one.path == "db.json.parse"]
    assert said == [
        "path 4 ends with a space, which is part of the last key: remove it, unless the key has it"
    ]


@pytest.mark.parametrize(("keys", "line", "path", "said"), MISTAKES)
def test_mistakes_are_found_where_they_are(
    tmp_path: Path, keys: dict[str, str | None], line: int, path: str, said: str
) -> None:
    found = loaded(tmp_path, changed(**{k.replace(".", "__"): v for k, v in keys.items()}))
    assert found.flows == ()
    (finding,) = found.findings
    assert (finding.line, finding.path) == (line, path)
    assert finding.file == str(tmp_path / "sink.properties")
    assert said in finding.message


JAAS = 'sasl.jaas.config=x required username="u" password="p";\n'
WORKERS = [
    ("bootstrap.servers=localhost\n", 1, "bootstrap.servers", "must be host:port"),
    ("bootstrap.servers=\n", 1, "bootstrap.servers", "has no value"),
    ("value.converter=org.apache.kafka.connect.storage.StringConverter\n", 1,
     "bootstrap.servers", "is required"),
    ("bootstrap.servers=a:1\nvalue.converter=x\n", 2, "value.converter", "must be org.apache"),
    ("bootstrap.servers=a:1\nconsumer.security.protocol=TLS\n", 2,
     "consumer.security.protocol", "allowed: PLAINTEXT"),
    ("bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n", 2,
     "security.protocol", "needs sasl.jaas.config"),
    ("bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n" + JAAS, 3,
     "sasl.mechanism", "allowed"),
    ("bootstrap.servers=a:1\nsecurity.protocol=SSL\nssl.truststore.location=/x.jks\n", 3,
     "ssl.truststore.location", "only PEM is read"),
    ("bootstrap.servers=a:1\nssl.key.password=x\n", 2, "ssl.key.password", "not supported"),
    ("bootstrap.servers=a:1\nconsumer.auto.offset.reset=latest\n", 2,
     "consumer.auto.offset.reset", "must be earliest"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "path", "said"), WORKERS)
def test_mistakes_of_the_worker_are_found_in_its_file(
    tmp_path: Path, text: str, line: int, path: str, said: str
) -> None:
    found = loaded(tmp_path, worker=text)
    assert found.flows == ()
    (finding,) = found.findings
    assert finding.file == str(tmp_path / "worker.properties")
    assert (finding.line, finding.path) == (line, path)
    assert said in finding.message


def test_of_yaml_only_what_names_the_class_is_a_connector(tmp_path: Path) -> None:
    file = tmp_path / "sink.yaml"
    file.write_text('{"topics": null, "db.host": 1, "db.columns": {}, "db.json.parse": []}')
    assert [finding.path for finding in load(file).findings] == ["apiVersion"]


def test_a_missing_worker_is_a_finding(tmp_path: Path) -> None:
    (finding,) = loaded(tmp_path, worker=None).findings
    assert (finding.line, finding.path) == (1, "bootstrap.servers")
    assert "put the Connect worker's file beside this one" in finding.message


def test_two_workers_in_a_folder_are_a_finding(tmp_path: Path) -> None:
    (tmp_path / "other.properties").write_text("bootstrap.servers=b:1\n")
    (finding,) = loaded(tmp_path).findings
    assert "other.properties, worker.properties" in finding.message


def test_all_mistakes_of_a_file_are_found_at_once(tmp_path: Path) -> None:
    found = loaded(tmp_path, changed(topics="???", db__table=None, db__delivery="sometimes"))
    assert [finding.path for finding in found.findings] == ["db.table", "topics"]
    paths = [note.path for note in found.hints]
    assert paths == ["db.delivery", "db.buffer.size", "internal.key.converter"]


@pytest.mark.parametrize("word", ["fastest", "GUARANTEED", "Synchronized", "sometimes"])
def test_every_delivery_is_exactly_once(tmp_path: Path, word: str) -> None:
    found = loaded(tmp_path, changed(db__delivery=word, db__buffer__size=None))
    flow(found)
    said = [note.message for note in found.hints if note.path == "db.delivery"]
    served = "counts as synchronized: every record is stored exactly once"
    unknown = f"is none of fastest, guaranteed, synchronized, and {served}"
    expected = {"Synchronized": [], "sometimes": [unknown]}
    assert said == expected.get(word, [served])


@pytest.mark.parametrize("whole", [True, False])
def test_a_connector_of_distributed_mode_is_read_from_its_json(tmp_path: Path, whole: bool) -> None:
    loaded(tmp_path)
    (tmp_path / "sink.properties").unlink()
    lines = [line for line in CONNECTOR.splitlines() if not line.startswith("#")]
    config = {key: value for key, _, value in (line.partition("=") for line in lines)}
    given = {"name": config.pop("name"), "config": config} if whole else config
    (tmp_path / "sink.json").write_text(json.dumps(given, indent=2))
    (tmp_path / "schema.json").write_text('{"type": "record", "fields": []}')
    (tmp_path / "other.json").write_text('{"connector.class": "io.debezium.Postgres"}')
    (tmp_path / "rows.json").write_text("[1, 2]")
    found = load(tmp_path)
    assert not found.findings
    assert [(Path(one.file).name, one.name) for one in found.flows] == [
        ("sink.json", "justone-kafka-sink-pg-json.readings")
    ]
    assert {Path(note.file).name for note in found.hints} == {"sink.json", "worker.properties"}


def test_a_watched_folder_sees_a_connector_of_json_and_no_other_json(tmp_path: Path) -> None:
    before = fingerprint([tmp_path])
    (tmp_path / "data.json").write_text("{}")
    assert fingerprint([tmp_path]) == before
    text = json.dumps({"config": {"connector.class": CLASS}})
    (tmp_path / "sink.json").write_text(text)
    assert fingerprint([tmp_path]) != before


@pytest.mark.parametrize(("path", "wrong"), [("certs/ca.pem", True), ("/nowhere/ca.pem", False)])
def test_a_file_of_certificates_is_an_absolute_path(tmp_path: Path, path: str, wrong: bool) -> None:
    more = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={path}\n"
    found = loaded(tmp_path, worker=f"{WORKER}{more}")
    key = "ssl.truststore.location"
    said = [one.message for one in found.findings if one.path == key]
    assert said == [NO_FORM] * wrong
    missing = [
        one for one in found.hints if "/nowhere/ca.pem is not on this machine" in one.message
    ]
    assert bool(missing) != wrong


def test_unknown_keys_are_noted_with_what_was_meant(tmp_path: Path) -> None:
    found = loaded(tmp_path, changed(db__tabel="x"), WORKER + "unheard.of=1\n")
    said = {note.path: note.message for note in found.hints}
    assert "db.table is given too, and counts: remove this key" in said["db.tabel"]
    assert "is ignored, as Connect does it" in said["unheard.of"]
    flow(found)


def test_additions_and_tolerance(tmp_path: Path) -> None:
    keys = {
        "errors__tolerance": "all",
        "dataflow__maxRejectedPercent": "0",
        "dataflow__onDataLoss": "continue",
        "dataflow__onTopicRecreated": "restart",
        "dataflow__freshness": "30",
        "dataflow__suspended": "true",
    }
    one = flow(loaded(tmp_path, changed(**keys)))
    assert one.policies.rejects == Rejects("table")
    assert one.policies.max_rejected_percent == 0
    assert one.policies.on_topic_recreated == "restart"
    assert one.policies.freshness_seconds == 30
    assert source(one).on_data_loss == "continue"
    assert one.suspended
    wins = flow(loaded(tmp_path, changed(errors__tolerance="all", dataflow__onRejected="skip")))
    assert wins.policies.rejects == Rejects("skip")


def test_a_password_is_in_the_file_a_variable_or_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = flow(loaded(tmp_path, changed(db__password="p w"))).resolve()
    assert "password='p w'" in sink(plain).dsn()
    assert "p w" not in repr(plain)
    named = flow(loaded(tmp_path, changed(db__password="${env:SHOP_PASSWORD}")))
    with pytest.raises(PermanentError, match="the environment has no SHOP_PASSWORD"):
        named.resolve()
    monkeypatch.setenv("SHOP_PASSWORD", "from the environment")
    assert "from the environment" in sink(named.resolve()).dsn()
    (tmp_path / "secret.yaml").write_text(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: pg}\nstringData: {password: kept}\n"
    )
    secret = flow(loaded(tmp_path, changed(db__password="${secrets:default/pg:password}")))
    assert "password=kept" in sink(secret.resolve()).dsn()
    wrong = loaded(tmp_path, changed(db__password="${secrets:default/pg:pass}"))
    assert "not found in secret default/pg" in wrong.findings[0].message


def test_security_of_the_consumer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "from the environment")
    worker = """\
bootstrap.servers=localhost:9092
security.protocol=PLAINTEXT
consumer.security.protocol=SASL_SSL
consumer.sasl.mechanism=SCRAM-SHA-512
consumer.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="shop" password="${env:KAFKA_PASSWORD}";
consumer.ssl.truststore.type=PEM
consumer.ssl.truststore.location=/etc/ca.pem
consumer.group.id=of-the-worker
"""
    one = source(flow(loaded(tmp_path, worker=worker)).resolve())
    assert one.protocol == "SASL_SSL"
    assert one.sasl is not None
    assert one.sasl.settings() == {
        "mechanism": "SCRAM-SHA-512",
        "username": "shop",
        "password": "from the environment",
    }
    assert one.tls is not None
    assert one.tls.ca_file == "/etc/ca.pem"
    assert one.consumer_group == "of-the-worker"
    overridden = changed(consumer__override__group__id="of-the-connector")
    assert source(flow(loaded(tmp_path, overridden, worker))).consumer_group == "of-the-connector"


@pytest.mark.parametrize("nested", [True, False])
def test_the_form_of_distributed_mode(tmp_path: Path, nested: bool) -> None:
    lines = [line for line in CONNECTOR.splitlines() if "=" in line and not line.startswith("#")]
    keys = dict(line.split("=", 1) for line in lines)
    config = keys | {"db.buffer.size": 8000000}
    name = config.pop("name")
    value = {"name": name, "config": config} if nested else {"name": name, **config}
    (tmp_path / "worker.properties").write_text(WORKER)
    (tmp_path / "sink.yaml").write_text(json.dumps(value, indent=2))
    one = flow(load(tmp_path))
    assert one.name == "justone-kafka-sink-pg-json.readings"
    del config["db.table"]
    config["topics"] = "a b"
    value = {"name": name, "config": config} if nested else {"name": name, **config}
    (tmp_path / "sink.yaml").write_text(json.dumps(value, indent=2))
    assert [one.path for one in load(tmp_path).findings] == ["db.table", "topics"]


def test_rules_between_flows_name_the_connectors_keys(tmp_path: Path) -> None:
    (tmp_path / "again.properties").write_text(CONNECTOR)
    found = loaded(tmp_path)
    assert [one.path for one in found.findings] == ["name", "name"]
    assert "duplicate flow name" in found.findings[0].message


def test_other_properties_are_skipped_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "log4j.properties").write_text("log4j.rootLogger=INFO\n")
    (tmp_path / "other.properties").write_text("connector.class=com.example.Sink\nname=x\n")
    found = loaded(tmp_path)
    flow(found)
    skipped = [note for note in found.hints if "skipped" in note.message]
    assert [Path(note.file).name for note in skipped] == ["log4j.properties", "other.properties"]


def test_the_example_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    found = load(ROOT / "examples/justone")
    assert flow(found).name == "readings.readings"
    assert any("the environment has no SHOP_PASSWORD" in note.message for note in found.hints)


def test_the_hash_of_a_flow_changes_with_no_name_in_the_code(tmp_path: Path) -> None:
    security = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=x required "
        'username="u" password="${secrets:default/kafka:password}";\n'
    )
    found = flow(loaded(tmp_path, worker=f"{WORKER}{security}"))
    assert found.hash[:16] == "322884d8292f59f8"
    other = flow(loaded(tmp_path, worker=f"{WORKER}{security}".replace("kafka:", "other:")))
    assert other.hash != found.hash
