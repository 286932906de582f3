"""Sink connectors' files: what loads, what is said of each mistake and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataflow_assets.contracts import Rejects
from dataflow_assets.flow import Flow
from dataflow_assets.languages.connect.ends import JdbcTable, LakeTable, LakeTopic, MysqlJdbcTable
from dataflow_assets.languages.connect.reader.transforms import TRANSLATIONS
from dataflow_assets.manifests.load import Loaded, load
from tests import ROOT
from tests.languages.connect.files import (
    CONFLUENT,
    DEBEZIUM,
    ICEBERG,
    JSON,
    SMT,
    TABULAR,
    UNWRAP,
    WORKER,
    Keys,
    posted,
    properties_text,
    transforms,
)

UPSERT: Keys = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
DEBEZIUM_UPSERT: Keys = {
    "insert.mode": "upsert",
    "primary.key.mode": "record_key",
    "primary.key.fields": "id",
}


def loaded(folder: Path, keys: Keys, worker: str | None = WORKER, name: str = "") -> Loaded:
    text = posted(keys) if name.endswith((".json", ".yaml")) else properties_text(keys)
    (folder / (name or "sink.properties")).write_text(text)
    if worker is not None:
        (folder / "worker.properties").write_text(worker)
    return load(folder)


def flow(found: Loaded) -> Flow:
    assert [str(finding) for finding in found.findings] == []
    (one,) = found.flows
    return one


def table(one: Flow) -> JdbcTable:
    sink = one.branches[0].sink
    assert isinstance(sink, JdbcTable)
    return sink


def steps(one: Flow) -> list[str]:
    return [transformation.step.type for transformation in one.transformations]


@pytest.mark.parametrize("name", ["sink.properties", "sink.json", "sink.yaml"])
def test_every_spelling_of_a_file_is_the_same_flow(tmp_path: Path, name: str) -> None:
    one = flow(loaded(tmp_path, DEBEZIUM | DEBEZIUM_UPSERT, name=name))
    assert one.id == "default/orders-sink.orders"
    assert one.source.model_dump()["consumer_group"] == "connect-orders-sink"
    assert one.source.model_dump()["brokers"] == ("localhost:9092",)
    assert table(one).place() == ("public", "orders")
    assert str(one.branches[0].address) == "postgresql/localhost_shop/public/orders"
    assert table(one).conflict_key == ("id",)
    assert one.policies.rejects == Rejects("fail")


def test_the_config_alone_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "sink.json").write_text(json.dumps({**CONFLUENT, "tasks.max": 3}))
    (tmp_path / "worker.properties").write_text(WORKER)
    found = load(tmp_path)
    assert flow(found).id == "default/orders-sink.orders"
    assert "tasks.max" in [hint.path for hint in found.hints]


def test_brokers_of_the_connector_need_no_workers_file(tmp_path: Path) -> None:
    own: Keys = {"consumer.override.bootstrap.servers": "kafka-1:9092"}
    one = flow(loaded(tmp_path, CONFLUENT | own, worker=None))
    assert one.source.model_dump()["brokers"] == ("kafka-1:9092",)


def test_without_brokers_the_finding_says_where_to_write_them(tmp_path: Path) -> None:
    (finding,) = loaded(tmp_path, {**CONFLUENT}, worker=None).findings
    assert finding.path == "bootstrap.servers"
    assert "consumer.override.bootstrap.servers" in finding.message


def test_converters_of_the_worker_count_where_the_connector_has_none(tmp_path: Path) -> None:
    keys = {key: text for key, text in CONFLUENT.items() if "converter" not in key}
    worker = f"{WORKER}value.converter={JSON}\nvalue.converter.schemas.enable=true\n"
    assert steps(flow(loaded(tmp_path, {**keys}, worker))) == ["validate", "extractField"]


def test_each_topic_is_a_flow_with_its_table(tmp_path: Path) -> None:
    found = loaded(tmp_path, CONFLUENT | {"topics": "a, b", "table.name.format": "s.t_${topic}"})
    assert found.findings == ()
    assert [table(one).place() for one in found.flows] == [("s", "t_a"), ("s", "t_b")]
    assert len({one.hash for one in found.flows}) == 2


@pytest.mark.parametrize("system", ["mysql", "mariadb"])
def test_a_table_of_mysql_is_one_of_that_sink(tmp_path: Path, system: str) -> None:
    url = f"jdbc:{system}://db.example.org:3307/shop?serverTimezone=UTC&useUnicode=true"
    one = flow(loaded(tmp_path, DEBEZIUM | DEBEZIUM_UPSERT | {"connection.url": url}))
    sink = one.branches[0].sink
    assert isinstance(sink, MysqlJdbcTable)
    assert (sink.host, sink.port, sink.place()) == ("db.example.org", 3307, ("shop", "orders"))
    assert (sink.user, sink.conflict_key, sink.column_names) == ("shop", ("id",), "ignoreCase")
    assert str(one.branches[0].address) == "mysql/db_example_org_3307/shop/orders"


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (DEBEZIUM | {"topics": "Shop.Orders"}, ("public", "shop_orders")),
        (DEBEZIUM | {"topics": "O", "quote.identifiers": "true"}, ("public", "O")),
        (DEBEZIUM | {"collection.name.format": "s.x_${topic}"}, ("s", "x_orders")),
        (DEBEZIUM | {"table.name.format": "old"}, ("public", "old")),
        (CONFLUENT | {"topics": "shop.orders"}, ("shop", "orders")),
        (CONFLUENT | {"topic2table.map": "x:y,orders:o2"}, ("public", "o2")),
        (
            CONFLUENT | {"connection.url": "jdbc:postgresql://h/d?currentSchema=own"},
            ("own", "orders"),
        ),
        (
            CONFLUENT
            | {"topics": "pre.public.orders"}
            | transforms(r={"type": "RegexRouter", "regex": r"(.*)\.(\w+)", "replacement": "$2"}),
            ("public", "orders"),
        ),
        (
            CONFLUENT | transforms(r={"type": "RegexRouter", "regex": "o|.+", "replacement": "x_"}),
            ("public", "x_rders"),  # as Java's replaceFirst does it
        ),
    ],
)
def test_tables_are_named_as_the_connectors_name_them(
    tmp_path: Path, keys: Keys, place: tuple[str, str]
) -> None:
    assert table(flow(loaded(tmp_path, keys))).place() == place


def test_the_password_may_be_a_reference_and_tls_is_that_of_the_address(tmp_path: Path) -> None:
    url = "jdbc:postgresql://db-1:5432,db-2:5433/shop?ssl=true&ApplicationName=connect"
    keys = CONFLUENT | {"connection.url": url, "connection.password": "${env:SHOP}"}
    sink = table(flow(loaded(tmp_path, keys)))
    assert sink.password_secret_ref is not None
    assert "sslmode=verify-full" in sink.dsn()
    assert sink.servers() == ("db-1:5432/shop", "db-1/shop", "db-2:5433/shop")


@pytest.mark.parametrize(
    ("keys", "mode"),
    [
        (DEBEZIUM | DEBEZIUM_UPSERT, "skip"),
        (DEBEZIUM | DEBEZIUM_UPSERT | {"delete.enabled": "true"}, "delete"),
        (CONFLUENT | UPSERT, "reject"),
        (CONFLUENT | UPSERT | {"delete.enabled": "true"}, "delete"),
        (
            CONFLUENT
            | transforms(f={"type": "Filter", "predicate": "gone"})
            | {"predicates": "gone", "predicates.gone.type": f"{SMT}predicates.RecordIsTombstone"},
            "skip",
        ),
        (ICEBERG, "skip"),
    ],
)
def test_null_messages_mean_what_they_mean_to_the_connector(
    tmp_path: Path, keys: Keys, mode: str
) -> None:
    assert flow(loaded(tmp_path, keys)).source.traits.null_messages == mode


@pytest.mark.parametrize(
    ("keys", "rejects"),
    [
        ({}, "fail"),
        ({"errors.tolerance": "all"}, "table"),
        ({"errors.tolerance": "all", "dataflow.onRejected": "skip"}, "skip"),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"},
            "errors",
        ),
        ({"errors.deadletterqueue.topic.name": "dead"}, "fail"),
    ],
)
def test_what_becomes_of_a_record_that_cannot_be_stored(
    tmp_path: Path, keys: Keys, rejects: str
) -> None:
    found = flow(loaded(tmp_path, CONFLUENT | keys)).policies.rejects
    assert found.way == rejects
    assert (str(found.address) if found.sink else "") == (
        "kafka/localhost/dead" if rejects == "errors" else ""
    )


def test_iceberg_is_a_branch_for_each_table_of_a_route(tmp_path: Path) -> None:
    keys = ICEBERG | {
        "iceberg.tables": "shop.made,shop.sent",
        "iceberg.tables.route-field": "kind",
        "iceberg.table.shop.made.route-regex": "made|paid",
        "iceberg.table.shop.sent.route-regex": "(sent)",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.default-partition-by": "days(at),bucket(id, 4)",
        "iceberg.catalog.credential": "me:${env:SECRET}",
        "iceberg.control.commit.interval-ms": "60000",
    }
    one = flow(loaded(tmp_path, {**keys}))
    assert [branch.address.name for branch in one.branches] == ["made", "sent"]
    assert steps(one) == ["filter", "router"]
    sink = one.branches[1].sink
    assert isinstance(sink, LakeTable)
    assert sink.partition_by == ("day(at)", "bucket(4, id)")
    assert (sink.traits.flush_seconds, sink.unknown_fields) == (60.0, "ignore")
    assert sink.s3_path_style_access is False
    assert isinstance(one.source, LakeTopic)
    assert one.source.control_topic == "control-iceberg"


def test_the_older_iceberg_sink_keeps_its_offsets_in_a_group_of_its_own(tmp_path: Path) -> None:
    source = flow(loaded(tmp_path, ICEBERG | TABULAR)).source
    assert isinstance(source, LakeTopic)
    assert source.consumer_group == "cg-control-lake-sink"
    assert source.members_group == "connect-lake-sink"
    own: Keys = {
        "iceberg.control.group-id": "own",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id,,day",
    }
    one = flow(loaded(tmp_path, ICEBERG | TABULAR | own))
    assert one.source.model_dump()["consumer_group"] == "own"
    assert one.branches[0].sink.model_dump()["conflict_key"] == ("id", "day")


@pytest.mark.parametrize(
    ("base", "keys", "path", "says"),
    [
        (CONFLUENT, {"topics.regex": "o.*"}, "topics.regex", "name the topics"),
        (CONFLUENT, {"topics": None}, "topics", "is required"),
        (CONFLUENT, {"insert.mode": "update"}, "insert.mode", "allowed: insert, upsert"),
        (CONFLUENT, {"insert.mode": "upsert"}, "insert.mode", "needs pk.mode"),
        (CONFLUENT, {"delete.enabled": "true"}, "delete.enabled", "needs insert.mode=upsert"),
        (
            CONFLUENT,
            UPSERT | {"pk.mode": "record_value", "pk.fields": None},
            "pk.mode",
            "needs pk.fields",
        ),
        (CONFLUENT, UPSERT | {"key.converter": None}, "pk.mode", "needs key.converter"),
        (CONFLUENT, {"pk.mode": "kafka", "pk.fields": "a"}, "pk.fields", "three columns"),
        (CONFLUENT, {"connection.url": "jdbc:oracle://h/d"}, "connection.url", "oracle is not sup"),
        (
            CONFLUENT,
            {"connection.url": "jdbc:mysql://h/d?sslMode=REQUIRED"},
            "connection.url",
            "not supported: sslmode",
        ),
        (
            CONFLUENT,
            {"connection.url": "jdbc:postgresql://h/d?password=hunter2"},
            "connection.url",
            "write it into connection.password",
        ),
        (
            CONFLUENT,
            {"connection.url": "jdbc:postgresql://h/d?kerberosServerName=x"},
            "connection.url",
            "kerberosservername",
        ),
        (
            CONFLUENT,
            {"connection.url": "jdbc:postgresql://me:hunter2@h/d"},
            "connection.url",
            "neither a postgresql:// URL",
        ),
        (CONFLUENT, {"connection.url": "${env:URL}"}, "connection.url", "only connection.passw"),
        (CONFLUENT, {"connection.user": None}, "connection.url", "needs a user"),
        (CONFLUENT, {"db.timezone": "Europe/Oslo"}, "db.timezone", "must be UTC"),
        (CONFLUENT, {"quote.sql.identifiers": "never"}, "quote.sql.identifiers", "must be always"),
        (CONFLUENT, {"topics": "a.b.c"}, "table.name.format", "RegexRouter"),
        (DEBEZIUM, {"primary.key.mode": "record_header"}, "primary.key.mode", "allowed: none, "),
        (DEBEZIUM, {"truncate.enabled": "true"}, "truncate.enabled", "no event empties a table"),
        (DEBEZIUM, {"field.include.list": "a"}, "field.include.list", "ReplaceField"),
        (DEBEZIUM, {"column.naming.strategy": "x"}, "column.naming.strategy", "are not run"),
        (
            DEBEZIUM,
            {"collection.name.format": "${source.table}"},
            "collection.name.format",
            "has a placeholder",
        ),
        (
            CONFLUENT,
            {"value.converter": "org.apache.kafka.connect.storage.StringConverter"},
            "value.converter",
            "is not supported; allowed: ",
        ),
        (CONFLUENT, {"value.converter": None}, "value.converter", "is required"),
        (
            CONFLUENT,
            {"value.converter": "io.confluent.connect.avro.AvroConverter"},
            "value.converter",
            "needs schema.registry.url",
        ),
        (ICEBERG, {"iceberg.tables": "orders"}, "iceberg.tables", "must be namespace.table"),
        (ICEBERG, {"iceberg.tables": "a.b,a.c"}, "iceberg.tables", "are several"),
        (ICEBERG, {"iceberg.tables.cdc-field": "op"}, "iceberg.tables.cdc-field", "unwrap"),
        (
            ICEBERG,
            {"iceberg.tables.dynamic-enabled": "true"},
            "iceberg.tables.dynamic-enabled",
            "must be false",
        ),
        (
            ICEBERG,
            {"iceberg.catalog.uri": "http://me:hunter2@h:8181"},
            "iceberg.catalog.uri",
            "must have no user and password",
        ),
        (ICEBERG, {"iceberg.catalog.type": "hive"}, "iceberg.catalog.type", "must be rest"),
        (ICEBERG, {"iceberg.catalog.clients": "3"}, "iceberg.catalog.clients", "is not known"),
        (ICEBERG, {"iceberg.tables.routeField": "x"}, "iceberg.tables.routeField", "is not known"),
        (
            ICEBERG,
            {
                "iceberg.tables.upsert-mode-enabled": "true",
                "iceberg.tables.default-id-columns": "id",
            },
            "iceberg.tables.upsert-mode-enabled",
            "has no effect in Apache's sink, which appends",
        ),
        (
            ICEBERG | TABULAR,
            {"iceberg.tables.upsert-mode-enabled": "true"},
            "iceberg.tables.upsert-mode-enabled",
            "needs iceberg.tables.default-id-columns",
        ),
        (
            ICEBERG,
            {
                "iceberg.tables.route-field": "kind",
                "iceberg.table.shop.orders.route-regex": "a.*b",
            },
            "iceberg.table.shop.orders.route-regex",
            "must be words",
        ),
        (
            ICEBERG,
            {"iceberg.table.shop.other.id-columns": "id"},
            "iceberg.table.shop.other.id-columns",
            "is no table of iceberg.tables",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name_and_place(
    tmp_path: Path, base: Keys, keys: Keys, path: str, says: str
) -> None:
    found = loaded(tmp_path, base | keys)
    assert found.flows == ()
    (finding,) = [one for one in found.findings if one.path == path]
    assert says in finding.message
    assert "hunter2" not in finding.message
    lines = (tmp_path / "sink.properties").read_text().splitlines()
    if path in base | keys and (base | keys)[path] is not None:
        assert lines[finding.line - 1].startswith(f"{path}=")


@pytest.mark.parametrize(
    ("each", "says"),
    [
        ({"type": "ExtractField$Key", "field": "id"}, "keys are read as they are"),
        ({"type": "ValueToKey", "fields": "id"}, "keys are read as they are"),
        ({"type": "TimestampConverter$Value"}, "docs/reference/steps.md (timezone)"),
        ({"type": "com.shop.Own"}, "has no step that does exactly the same"),
        ({"type": "MaskField$Value", "fields": "a"}, "needs transforms.x.replacement"),
        ({"type": "InsertField$Value", "static.field": "a", "static.value": "${x}"}, "has a text"),
        ({"type": "ReplaceField$Value", "exclude": "a.b"}, "names a field with a character"),
        ({"type": "ReplaceField$Value", "renames": "a:b,b:a"}, "takes from another one"),
        ({"type": "Cast$Value", "spec": "a:date"}, "types are int8"),
        ({"type": "HoistField$Value", "field": "a", "predicate": "p"}, "supported for Filter only"),
        ({"type": "Filter", "predicate": "p"}, "RecordIsTombstone only"),
        ({"type": UNWRAP, "delete.tombstone.handling.mode": "keep"}, "unknown way"),
    ],
)
def test_transforms_without_an_equal_step_are_refused(
    tmp_path: Path, each: dict[str, str], says: str
) -> None:
    found = loaded(tmp_path, {**CONFLUENT, "topics": "a,b", **transforms(x=each)})
    assert [says in one.message for one in found.findings] == [True]
    assert found.findings[0].path == "transforms.x.type"


def test_a_setting_of_a_transform_that_nothing_keeps_is_refused(tmp_path: Path) -> None:
    each = {"type": UNWRAP, "route.by.field": "table"}
    (finding,) = loaded(tmp_path, {**CONFLUENT, **transforms(x=each)}).findings
    assert finding.path == "transforms.x.route.by.field"


def test_keys_of_another_connector_are_noted_and_have_no_effect(tmp_path: Path) -> None:
    others: Keys = {
        "fields.whitelist": "a",
        "topic2table.map": "orders:b",
        "quote.sql.identifiers": "x",
    }
    found = loaded(tmp_path, DEBEZIUM | others)
    assert table(flow(found)).place() == ("public", "orders")
    assert "replaceField" not in steps(flow(found))
    assert set(others) <= {hint.path for hint in found.hints}


def test_settings_of_a_converter_that_another_file_names_are_noted(tmp_path: Path) -> None:
    """Connect takes the worker's converter with the worker's settings."""
    keys = {key: text for key, text in CONFLUENT.items() if key != "value.converter"}
    found = loaded(tmp_path, {**keys}, f"{WORKER}value.converter={JSON}\n")
    assert steps(flow(found)) == ["validate", "extractField"]
    notes = {hint.path: hint.message for hint in found.hints}
    assert "value.converter is not in this file" in notes["value.converter.schemas.enable"]


def test_debeziums_sink_names_the_columns_of_places_in_the_log_itself(tmp_path: Path) -> None:
    keys: Keys = {"primary.key.mode": "kafka", "primary.key.fields": "a", "insert.mode": "upsert"}
    key = table(flow(loaded(tmp_path, DEBEZIUM | keys))).conflict_key
    assert key == ("__connect_topic", "__connect_partition", "__connect_offset")


def test_a_topic_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    assert flow(loaded(tmp_path, CONFLUENT | {"topics": "a,a"})).id == "default/orders-sink.a"


def test_no_note_quotes_the_login_of_a_registry(tmp_path: Path) -> None:
    keys: Keys = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schemas.enable": None,
        "value.converter.schema.registry.url": "http://me:hunter2@a:8081,http://me:hunter2@b:8081",
    }
    found = loaded(tmp_path, CONFLUENT | keys)
    assert [one.path for one in found.findings] == ["value.converter.schema.registry.url"]
    assert "only the first address" in " ".join(hint.message for hint in found.hints)
    assert "hunter2" not in " ".join(map(str, (*found.findings, *found.hints)))


def test_keys_that_connect_ignores_are_noted(tmp_path: Path) -> None:
    extra = {"batch.size": "10", "pk.field": "id", "auto.evolve": "true"}
    extra |= {"value.converter.decimal.format": "NUMERIC"}
    found = loaded(tmp_path, {**CONFLUENT, **extra})
    flow(found)
    notes: dict[str, Any] = {hint.path: hint.message for hint in found.hints}
    assert "did you mean pk.fields?" in notes["pk.field"]
    idle = "2 keys have no effect here: batch.size, value.converter.decimal.format"
    assert notes["batch.size"] == idle
    assert "adds the column" in notes["auto.evolve"]


def test_the_examples_load(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOP_PASSWORD", "LAKE_CLIENT", "LAKE_SECRET"):
        monkeypatch.delenv(name, raising=False)
    found = load(ROOT / "examples/connect")
    assert found.findings == ()
    ids = ["default/events-sink.events", "default/orders-sink.shop.public.orders"]
    assert [one.id for one in found.flows] == ids


def test_the_page_has_each_transform() -> None:
    page = (ROOT / "docs/reference/connect.md").read_text()
    names = {kind.rpartition(".")[2].removesuffix("$Key") for kind in TRANSLATIONS}
    assert [name for name in sorted(names) if f"`{name.removesuffix('$Value')}" not in page] == []
