"""Tables of debezium-json, canal-json and maxwell-json: what comes of a message of each."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.flow import Flow
from dataflow_assets.formats.message_format import StoredSchema
from dataflow_assets.languages.sql.engine.bytes.messages import SqlFormat
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.window_rows import WindowArrivals
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.records.record import Record, parse
from dataflow_assets.records.step import Context
from dataflow_assets.testing import choose
from tests.languages.sql.reader.test_registry import written
from tests.languages.sql.test_rows import NOW, table

KEYED = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
PLAIN = "id BIGINT, name STRING"
ALL = "SELECT id, name FROM s"
A, B = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
MOVED = {"id": 2, "name": "a"}
IN_FULL = "set REPLICA IDENTITY FULL"


def source(columns: str = KEYED, format: str = "debezium-json", **options: str) -> str:  # noqa: A002
    return table("s", columns, connector="kafka", format=format, **options).replace(
        "'key.format' = 'json', 'value.format' = 'json', ", ""
    )


def flow(tmp_path: Path, given: str, query: str = ALL, target: str = KEYED) -> Flow:
    file = tmp_path / "one.sql"
    file.write_text("\n".join([given, table("o", target), f"INSERT INTO o {query};"]))
    return choose(load(file), None)


def messages(tmp_path: Path, *statements: str) -> list[str]:
    """Of what is wrong with a file."""
    file = tmp_path / "one.sql"
    file.write_text("\n".join(statements))
    return [one.message for one in load(file).findings]


def changes(given: Flow, value: Any, **metadata: Any) -> list[tuple[str, Any]]:
    """What a message does to the target. Raises RejectedRecord."""
    assert isinstance(given.source, KafkaSource)
    body = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    form = given.source.message_format()
    assert form is not None
    texts = form.texts(pa.array([body], pa.binary()))
    assert texts.refused == {}
    apply = given.transformations[0].step.compile(Context(NOW))
    found = apply(Record(parse(texts.texts.to_pylist()[0]), metadata))
    records = found if isinstance(found, list) else [] if found is None else [found]
    return [(one.metadata.get("operation", "upsert"), one.body) for one in records]


def debezium(op: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": 1_589_362_330_904, **more}


def canal(kind: str, data: Any, old: Any = None, **more: Any) -> dict[str, Any]:
    beside = {"database": "shop", "table": "orders", "isDdl": False, "pkNames": ["id"]}
    return {"data": data, "old": old, "type": kind, "es": 1_589_373_560_000, **beside, **more}


def maxwell(kind: str, data: Any = None, old: Any = None) -> dict[str, Any]:
    beside = {"database": "shop", "table": "orders", "ts": 1_596_684_904, "xid": 7_201}
    return {"type": kind, "data": data, **({} if old is None else {"old": old}), **beside}


UPSERT, DELETE = ("upsert", A), ("delete", {"id": 1})
TEXTS = {"id": "1", "name": "a"}
CASES = {
    "debezium: insert": ("debezium-json", debezium("c", None, A), [UPSERT]),
    "debezium: snapshot": ("debezium-json", debezium("r", None, A), [UPSERT]),
    "debezium: update": ("debezium-json", debezium("u", A, B), [("upsert", B)]),
    "debezium: delete": ("debezium-json", debezium("d", A), [DELETE]),
    "debezium: with a schema": (
        "debezium-json",
        {"schema": {"type": "struct"}, "payload": debezium("u", B, A)},
        [UPSERT],
    ),
    "debezium: another key": (
        "debezium-json",
        debezium("u", A, MOVED),
        [DELETE, ("upsert", MOVED)],
    ),
    "debezium: a tombstone": ("debezium-json", None, []),
    "canal: inserts": ("canal-json", canal("INSERT", [TEXTS, MOVED]), [UPSERT, ("upsert", MOVED)]),
    "canal: update": ("canal-json", canal("UPDATE", [TEXTS], [{"name": "b"}]), [UPSERT]),
    "canal: updates of two rows": (
        "canal-json",
        canal("UPDATE", [B, {"id": 3, "name": None}], [{"name": "a"}, {"id": 2}]),
        [("upsert", B), ("delete", {"id": 2}), ("upsert", {"id": 3, "name": None})],
    ),
    "canal: deletes": ("canal-json", canal("DELETE", [A, MOVED]), [DELETE, ("delete", {"id": 2})]),
    "canal: DDL": ("canal-json", canal("ALTER", None, isDdl=True, sql="ALTER TABLE x"), []),
    "maxwell: insert": ("maxwell-json", maxwell("insert", A), [UPSERT]),
    "maxwell: bootstrap": ("maxwell-json", maxwell("bootstrap-insert", A), [UPSERT]),
    "maxwell: begins": ("maxwell-json", maxwell("bootstrap-start"), []),
    "maxwell: update": ("maxwell-json", maxwell("update", A, {"name": "b"}), [UPSERT]),
    "maxwell: another key": (
        "maxwell-json",
        maxwell("update", MOVED, {"id": 1}),
        [DELETE, ("upsert", MOVED)],
    ),
    "maxwell: delete": ("maxwell-json", maxwell("delete", A), [DELETE]),
}


@pytest.mark.parametrize("key", [KEYED, PLAIN], ids=["keyed", "without a key"])
@pytest.mark.parametrize("case", CASES)
def test_a_message_is_changes_of_rows(tmp_path: Path, case: str, key: str) -> None:
    kind, message, wanted = CASES[case]
    assert changes(flow(tmp_path, source(key, kind)), message) == wanted


LONG = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("message", "keyed", "plain"),
    [
        (
            debezium("u", None, A),
            [UPSERT],
            f"declare the PRIMARY KEY .*, or {IN_FULL}",
        ),
        (
            debezium("d", None),
            f"has no id, the PRIMARY KEY, .*: {IN_FULL}",
            IN_FULL,
        ),
        (debezium("d", {"name": "a"}), IN_FULL, [("delete", {"id": None})]),
        (debezium("u", A, {"id": 1, "name": LONG}), [UPSERT], [UPSERT]),
        (debezium("u", None, {"id": 1, "name": LONG}), "left name alone", "left name alone"),
        (debezium("t"), "op is none of c, r, u, d", "op is none of c, r, u, d"),
        (debezium("c"), "no row after it", "no row after it"),
        ({"id": 1, "name": "a"}, "no change event of Debezium", "no change event of Debezium"),
    ],
)
def test_a_change_that_lacks_what_it_needs_is_rejected(
    tmp_path: Path, message: Any, keyed: Any, plain: Any
) -> None:
    for columns, wanted in ((KEYED, keyed), (PLAIN, plain)):
        given = flow(tmp_path, source(columns))
        if isinstance(wanted, str):
            with pytest.raises(RejectedRecord, match=wanted):
                changes(given, message)
        elif wanted == [("delete", {"id": None})]:
            with pytest.raises(RejectedRecord, match="'id' is NOT NULL"):
                changes(given, message)
        else:
            assert changes(given, message) == wanted
        lenient = flow(tmp_path, source(columns, **{"debezium-json_ignore-parse-errors": "true"}))
        if isinstance(wanted, str) and wanted.startswith(("op is none", "no change event")):
            assert changes(lenient, message) == []
        elif isinstance(wanted, str):
            with pytest.raises(RejectedRecord, match=wanted):
                changes(lenient, message)


def test_a_value_that_is_left_alone_is_missed_only_where_the_table_has_its_column(
    tmp_path: Path,
) -> None:
    """Of PostgreSQL each update of a row with a large text in a column that nobody reads."""
    given = flow(tmp_path, source(KEYED))
    assert changes(given, debezium("u", None, {**A, "large": LONG})) == [UPSERT]


def test_a_row_before_without_all_of_its_key_is_no_row_that_stays(tmp_path: Path) -> None:
    columns = "id BIGINT, name STRING, PRIMARY KEY (id, name) NOT ENFORCED"
    given = flow(tmp_path, source(columns), target=columns)
    assert changes(given, debezium("u", {"id": 1}, A)) == [UPSERT]
    with pytest.raises(RejectedRecord, match=r"has no name, .*does not say which row was replaced"):
        changes(given, debezium("u", {"id": 2}, A))


@pytest.mark.parametrize(
    ("kind", "message", "says"),
    [
        ("canal-json", canal("TRUNCATE", None, isDdl=True), "type is none of INSERT, UPDATE"),
        ("canal-json", canal("ERASE", None, isDdl=True), "type is none of INSERT, UPDATE"),
        ("canal-json", canal("UPDATE", [A], []), "old has 0 rows, and data 1"),
        ("canal-json", canal("INSERT", A), "data is not an array of rows"),
        ("canal-json", canal("INSERT", [7]), "a row of data is not a JSON object"),
        ("canal-json", [], "the message is not a JSON object"),
        ("canal-json", {"type": {}}, "type is none of"),
        ("maxwell-json", maxwell("table-drop"), "type is none of insert"),
        ("maxwell-json", maxwell("insert"), "data is not a JSON object"),
    ],
)
def test_a_message_that_is_no_change_is_rejected(
    tmp_path: Path, kind: str, message: Any, says: str
) -> None:
    with pytest.raises(RejectedRecord, match=says):
        changes(flow(tmp_path, source(format=kind)), message)
    lenient = source(format=kind, **{f"{kind}_ignore-parse-errors": "true"})
    assert changes(flow(tmp_path, lenient), message) == []


def test_where_asks_a_row_that_goes_for_all_that_is_known_of_it(tmp_path: Path) -> None:
    query = f"{ALL} WHERE name <> 'a'"
    keyed, plain = (flow(tmp_path, source(key), query) for key in (KEYED, PLAIN))
    for message, with_key, without in (
        (debezium("d", A), [DELETE], []),
        (debezium("u", A, A), [DELETE], []),
        (debezium("u", B, A), [DELETE], [DELETE]),
        (debezium("u", A, B), [("upsert", B)], [("upsert", B)]),
        (debezium("c", None, A), [DELETE], []),
    ):
        assert (changes(keyed, message), changes(plain, message)) == (with_key, without), message


def test_only_some_tables_of_canal_are_read(tmp_path: Path) -> None:
    for option, name, there in (
        ("database", "shop", True),
        ("database", "sho", False),
        ("table", "ord.*", True),
        ("table", "items", False),
    ):
        key = f"canal-json_{option}_include"
        given = flow(tmp_path, source(format="canal-json", **{key: name}))
        assert changes(given, canal("INSERT", [A])) == ([UPSERT] if there else [])
    with pytest.raises(RejectedRecord, match="does not say of which table it is"):
        changes(given, canal("INSERT", [A], table=None))
    bad = source(format="canal-json", **{"canal-json_table_include": "("})
    assert messages(tmp_path, bad)[0].startswith("the regular expression cannot be used")


def test_the_envelope_is_metadata(tmp_path: Path) -> None:
    beside = (
        "at TIMESTAMP_LTZ(3) METADATA FROM 'value.ingestion-timestamp' VIRTUAL, "
        "moment STRING METADATA FROM 'value.source.timestamp' VIRTUAL, "
        "db STRING METADATA FROM 'value.source.database' VIRTUAL, "
        "more MAP<STRING, STRING> METADATA FROM 'value.source.properties' VIRTUAL, "
    )
    given = flow(
        tmp_path,
        source(beside + KEYED),
        "SELECT id, CONCAT_WS('|', CAST(at AS STRING), moment, db, more['lsn']) FROM s",
    )
    told = {"ts_ms": 1_589_362_330_000, "db": "shop", "lsn": 29_029_192, "x": None}
    wanted = "2020-05-13 09:32:10.904|2020-05-13 09:32:10.000|shop|29029192"
    found = changes(given, debezium("c", None, A, source=told))
    assert found == [("upsert", {"id": 1, "name": wanted})]
    of_maxwell = "at TIMESTAMP_LTZ(3) METADATA FROM 'value.ingestion-timestamp', "
    given = flow(
        tmp_path,
        source(of_maxwell + KEYED, "maxwell-json"),
        "SELECT id, CAST(at AS STRING) FROM s",
    )
    found = changes(given, maxwell("insert", A))
    assert found == [("upsert", {"id": 1, "name": "2020-08-06 03:35:04.000"})]
    lenient = {"maxwell-json_ignore-parse-errors": "true"}
    given = flow(tmp_path, source(of_maxwell + KEYED, "maxwell-json", **lenient))
    assert changes(given, []) == []
    other = source(of_maxwell.replace("ingestion-timestamp", "sql-type") + KEYED)
    assert "no METADATA value.sql-type" in messages(tmp_path, other)[0]


def test_a_row_that_moves_leaves_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    timed = "id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
    windows = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    query = f"SELECT window_start, COUNT(*) FROM {windows} GROUP BY window_start, window_end"
    target = "ws TIMESTAMP(3), n BIGINT, PRIMARY KEY (ws) NOT ENFORCED"
    given = flow(tmp_path, source(f"{timed}, PRIMARY KEY (id) NOT ENFORCED"), query, target)
    assert isinstance(given.source, ViewSource)
    arrivals = WindowArrivals(given.source.view, Environment("UTC", NOW), None)
    at = "2020-01-01 00:00:00"
    message = debezium("u", {"id": 1, "ts": at}, {"id": 2, "ts": at})
    old, new = arrivals(Record(message, {}))
    assert (len(old.rows), len(new.rows), old.key == new.key) == (0, 1, False)
    without = messages(tmp_path, source(timed), table("o", target), f"INSERT INTO o {query};")
    assert "a window over s, whose rows come and go, needs its PRIMARY KEY" in without[0]


def test_a_text_keeps_the_digits_of_its_number(tmp_path: Path) -> None:
    given = flow(tmp_path, source())
    for text in (
        b'{"before":{"id":1,"name":-0},"after":{"id":1,"name":1.50e2},"op":"u"}',
        b'{"payload":{"before":null,"after":{"id":1,"name":1.50e2},"op":"c"}}',
    ):
        assert changes(given, text) == [("upsert", {"id": 1, "name": "1.50e2"})]


def test_what_cannot_be_done_with_changes_is_refused(tmp_path: Path) -> None:
    rows = table("p", PLAIN)
    keyed, plain, grouped = source(), source(PLAIN), "SELECT MAX(id), name FROM s GROUP BY name"
    filtered = grouped.replace("FROM s", "FROM s WHERE db = 'shop'")
    of_table = f"db STRING METADATA FROM 'value.source.database' VIRTUAL, {KEYED}"
    named = "id BIGINT, name STRING, PRIMARY KEY (name) NOT ENFORCED"
    by_name, timed = table("o", named), f"ts TIMESTAMP(3) METADATA FROM 'timestamp', {PLAIN}"
    for statements, says in (
        ((keyed, rows, f"INSERT INTO p {ALL};"), "p takes inserts only: give it a PRIMARY KEY"),
        ((rows, keyed, "INSERT INTO s SELECT id, name FROM p;"), "such tables are only read"),
        (
            (keyed, by_name, "INSERT INTO o SELECT id, name FROM s;"),
            "must be the columns of that of s (id)",
        ),
        (
            (source(timed), by_name, f"INSERT INTO o {grouped.replace('MAX(id)', 'COUNT(ts)')};"),
            "s has no PRIMARY KEY, so a row that goes",
        ),
        (
            (source(of_table), table("o", KEYED), f"INSERT INTO o {ALL} WHERE db = 'shop';"),
            "METADATA value.source.database: a change of another table would delete the row",
        ),
        (
            (source(of_table), by_name, f"INSERT INTO o {filtered};"),
            "METADATA value.source.database: a change of another table would delete the row",
        ),
        (
            (plain, by_name, f"INSERT INTO o {grouped}, UNIX_TIMESTAMP();"),
            "s has no PRIMARY KEY, so a row that goes",
        ),
        (
            (table("s", KEYED, value_format="debezium-json"),),
            "is read with the connector kafka, where it also has a PRIMARY KEY",
        ),
        (
            (source(KEYED, key_format="debezium-json", key_fields="id"),),
            "is of values: a key is no change",
        ),
        (
            (source(key_format="json", key_fields="id", **{"value_fields-include": "EXCEPT_KEY"}),),
            "must be ALL",
        ),
        ((table("s", KEYED, connector="kafka", format="json"),), "or a format of changes"),
        ((source(format="ogg-json"),), "ogg-json is not supported"),
    ):
        assert [says in one for one in messages(tmp_path, *statements)].count(True) == 1, says


ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "srv.shop.orders",
    "fields": [
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [
                        {"name": "id", "type": "long"},
                        {"name": "name", "type": ["null", "string"]},
                        {"name": "more", "type": "int"},
                    ],
                },
            ],
        },
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}


@dataclass(frozen=True)
class OneSchema:
    """A registry with the schema of Debezium's envelope."""

    def by_id(self, number: int) -> StoredSchema:
        assert number == 7
        return StoredSchema("AVRO", json.dumps(ENVELOPE))


def test_changes_in_avro_name_their_schema_in_a_registry(tmp_path: Path) -> None:
    url = {"debezium-avro-confluent_url": "http://registry:8081"}
    given = flow(tmp_path, source(format="debezium-avro-confluent", **url))
    assert isinstance(given.source, KafkaSource)
    assert given.source.schema_registry is not None
    form = given.source.message_format()
    assert isinstance(form, SqlFormat)
    form = replace(form, schemas=OneSchema())
    apply = given.transformations[0].step.compile(Context(NOW))
    for change, wanted in (
        (debezium("c", None, A | {"more": 1}), UPSERT),
        (debezium("u", A | {"more": 1}, A | {"more": 2}), UPSERT),
        (debezium("d", A | {"more": 2}), DELETE),
    ):
        (text,) = form.texts(pa.array([written(ENVELOPE, 7, change)], pa.binary())).texts
        found = apply(Record(parse(text.as_py()), {}))
        assert isinstance(found, Record)
        assert (found.metadata.get("operation", "upsert"), found.body) == wanted
    lacks = source(format="debezium-avro-confluent")
    assert messages(tmp_path, lacks, table("o", KEYED), f"INSERT INTO o {ALL};")[0].startswith(
        "is required: the schema registry"
    )
