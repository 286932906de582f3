"""Tables as error sinks: their layouts, what is stored of a message, and what is refused."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import ErrorRecord, OffsetSlice, Rejection, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.rejected_records import error_record
from tests.connectors.iceberg.driver import make_sink

TARGET = Target("ns/f", "postgresql:db/public/t", "hash", "t", "topic-1")
SLICE = OffsetSlice("0", 0, 1_000_000)
NUL_KEY = b'{"a":"\\u0000"}'
TWICE = b'{"a":1,"a":2}'
ORDERED = b'{"b": 1.50, "a": 12345678901234567890123}'
HUGE = b'{"a":1e300000}'
# What was sent, and what is kept of it in JSON columns; base64 is what jsonb cannot hold.
BODIES: list[tuple[bytes | None, Any]] = [
    (b'{"id":1}', {"id": 1}),
    (ORDERED, {"a": 12345678901234567890123, "b": 1.5}),
    (b"no json", {"original_data": "no json"}),
    (b"[1,2]", {"original_data": "[1,2]"}),
    (b'{"a":"\\\\u0000"}', {"a": "\\u0000"}),
    (b'{"a":"\\ud800"}', {"original_data": '{"a":"\\ud800"}'}),
    (b"\xff\xfe", bytes),
    (b"a\0b", bytes),
    (NUL_KEY, bytes),
    (TWICE, {"original_data": '{"a":1,"a":2}'}),
    (HUGE, bytes),
    (None, {"original_data": None}),
]


def record(offset: int, body: bytes | None, reason: str = "why \0 not") -> ErrorRecord:
    return error_record(TARGET, SLICE, Rejection(offset, "sink", reason, body))


RECORDS = [record(offset, body) for offset, (body, _) in enumerate(BODIES)]


def kept(body: bytes | None, wanted: Any) -> Any:
    if wanted is not bytes:
        return wanted
    assert body is not None
    return {"original_data_base64": base64.b64encode(body).decode()}


class Table:
    """One table of a schema, as an error sink."""

    def __init__(self, server: devservers.PostgreSQL, schema: str) -> None:
        self.dsn, self.name = server.dsn(), f"{schema}.errors"

    def made(self, columns: str) -> Table:
        self.execute(f"create table {self.name} ({columns})")
        return self

    def execute(self, sql: str) -> Sequence[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def sink(self, **options: Any) -> PostgresqlSink:
        return PostgresqlSink.model_validate(
            {"connectionString": self.dsn, "table": self.name} | options
        )

    def store(self, records: Sequence[ErrorRecord], **options: Any) -> None:
        store = self.sink(**options).error_store()
        store.prepare()
        store.store(records)


@pytest.fixture
def table(postgresql: devservers.PostgreSQL, schema: str) -> Table:
    return Table(postgresql, schema)


LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "jsonb": ("error jsonb, original_message jsonb", {}),
    "filled": ("id text primary key, error jsonb, original_message jsonb, flow text not null", {}),
    "keyed": (
        "id varchar primary key, error jsonb, original_message jsonb",
        {"upsertMode": True, "conflictKey": "id", "softDeleteColumn": "gone"},
    ),
    "text": ("error text, original_message text", {}),
    "other": ("id bigserial primary key, data jsonb not null, _metadata jsonb", {}),
    "raw": ("data json, _metadata text, created_at timestamptz not null default now()", {}),
    "line": ("data text", {"rawMode": True}),
    "made": ("", {"autoCreateTable": True}),
    "made raw": ("", {"autoCreateTable": True, "rawMode": True}),
}
READ = {
    "error": "select error::json, original_message::json from {t}",
    "data": "select data::json->'error', data::json->'original_message' from {t}",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_holds_each_record_once(table: Table, layout: str) -> None:
    columns, options = LAYOUTS[layout]
    if columns:
        table.made(columns)
    table.store(RECORDS[:4], **options)
    table.store(RECORDS, **options)
    whole = "data" in columns or options.get("rawMode")
    found = table.execute(READ["data" if whole else "error"].format(t=table.name))
    by_offset = {error["source"]["offset"]: (error, original) for error, original in found}
    assert len(found) == len(by_offset) == len(BODIES)
    exact = "jsonb" not in columns and layout != "made raw"
    for offset, (body, wanted) in enumerate(BODIES):
        error, original = by_offset[offset]
        assert error["id"] == RECORDS[offset].id
        assert error["message"] == "why \\u0000 not"
        if not (exact and body == HUGE):
            assert original == kept(body, wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_gives_each_message_back_until_it_is_replayed(
    table: Table, layout: str
) -> None:
    columns, options = LAYOUTS[layout]
    if columns:
        table.made(columns)
    table.store(RECORDS, **options)
    store = table.sink(**options).error_store()
    found = store.pending("ns/f", None, 100)
    assert {entry.id for entry in found} == {one.id for one in RECORDS}
    exact = "jsonb" not in columns and layout != "made raw"
    for entry in found:
        body, wanted = BODIES[int(entry.metadata["offset"])]
        if exact or not isinstance(wanted, dict) or "original_data" in wanted:
            assert entry.body == body
        else:
            assert json.loads(entry.body or b"") == wanted
    store.mark_replayed(found[:-1])
    assert store.pending("ns/f", None, 100) == found[-1:]
    assert store.pending("ns/other", None, 100) == []


def test_entries_come_oldest_first_and_since_a_time(table: Table) -> None:
    table.store(RECORDS[:3], autoCreateTable=True)
    for offset, at in enumerate(("2026-01-03T00:00:00Z", "2026-01-01T00:00:00.5Z", "yesterday")):
        sql = f'update {table.name} set error = error || \'{{"timestamp": "{at}"}}\' where id like'
        table.execute(f"{sql} '%/{offset}/0/sink'")
    store = table.sink().error_store()
    found = [entry.metadata["offset"] for entry in store.pending("ns/f", None, 100)]
    assert found == [1, 0]  # the third one's time is none of ours
    assert [entry.metadata["offset"] for entry in store.pending("ns/f", None, 1)] == [1]
    since = datetime(2026, 1, 2, tzinfo=UTC)
    assert [entry.metadata["offset"] for entry in store.pending("ns/f", since, 100)] == [0]


def test_rows_of_others_are_not_replayed(table: Table) -> None:
    table.made("data text").execute(f"insert into {table.name} values ('a line')")
    mine = {"flow": "ns/f", "timestamp": "2026-01-01T00:00:00Z"}
    for text in (json.dumps({"error": mine}), '{"error": broken'):
        table.execute(f"insert into {table.name} values ('{text}')")
    assert table.sink().error_store().pending("ns/f", None, 100) == []


def test_a_role_that_may_not_add_the_column_is_told_what_to_run(table: Table, schema: str) -> None:
    table.made("error jsonb, original_message jsonb").store(RECORDS[:1])
    role = f"r_{uuid.uuid4().hex[:12]}"
    table.execute(f"create role {role} login password 'r'")
    try:
        table.execute(f"grant usage on schema {schema} to {role}")
        table.execute(f"grant select, insert, update on {table.name} to {role}")
        conninfo = make_conninfo(table.dsn, user=role, password="r")
        store = table.sink(connectionString=conninfo).error_store()
        asked = (
            r"run as its owner: (ALTER TABLE .* ADD COLUMN IF NOT EXISTS replayed_at timestamptz)"
        )
        with pytest.raises(PermanentError, match=asked) as refused:
            store.pending("ns/f", None, 100)
        table.execute(str(refused.value).partition("owner: ")[2])
        assert len(store.pending("ns/f", None, 100)) == 1
    finally:
        table.execute(f"drop owned by {role}; drop role {role}")


def test_a_table_that_is_not_there_yet_has_nothing_to_replay(table: Table) -> None:
    assert table.sink().error_store().pending("ns/f", None, 100) == []


def test_a_table_that_is_made_keeps_messages_as_they_were_sent(table: Table) -> None:
    table.store(RECORDS, autoCreateTable=True)
    sql = f"select id, flow, original_message::text, created_at from {table.name} where id like '%"
    for body in (ORDERED, HUGE):
        offset = [sent for sent, _ in BODIES].index(body)
        ((id_, flow, original, at),) = table.execute(f"{sql}/{offset}/0/sink'")
        assert (id_, flow, original.encode()) == (RECORDS[offset].id, "ns/f", body)
        assert at is not None


def test_metadata_stands_beside_the_whole_record(table: Table) -> None:
    table.store(RECORDS[:1], autoCreateTable=True, rawMode=True)
    ((metadata,),) = table.execute(f"select _metadata from {table.name}")
    assert metadata["is_error_message"] is True
    assert metadata["original_sink"] == "postgresql"
    assert metadata["error"] == "why \\u0000 not"


def test_rows_of_others_in_a_text_table_are_not_read(table: Table) -> None:
    table.made("data text")
    table.execute(f"insert into {table.name} values ('{{\"error\": broken'), ('a line')")
    for _ in range(2):
        table.store(RECORDS[:1])
    assert table.execute(f"select count(*) from {table.name}") == [(3,)]


def test_many_records_at_once(table: Table) -> None:
    body = json.dumps({"text": "x" * 100_000}).encode()
    table.store([record(n, body) for n in range(400)], autoCreateTable=True)
    sql = "select count(*), count(distinct id), min(length(original_message::text)) from"
    assert table.execute(f"{sql} {table.name}") == [(400, 400, len(body))]


UNFIT = {
    "it has the columns a": "a integer",
    "it has the columns error": "error jsonb",
    "error, original_message": "error integer, original_message jsonb",
    "nothing fills its columns who, which are NOT NULL": (
        "who text not null, error jsonb, original_message jsonb"
    ),
}


@pytest.mark.parametrize("why", UNFIT)
def test_a_table_that_does_not_fit_is_told_before_anything_is_read(table: Table, why: str) -> None:
    table.made(UNFIT[why])
    with pytest.raises(PermanentError, match=f"error sink's table .* cannot take .*: .*{why}"):
        table.sink().error_store().prepare()


def test_a_missing_table_is_told_with_the_two_ways_out(table: Table) -> None:
    with pytest.raises(PermanentError, match=r"the error sink's table .* create it, or set autoCr"):
        table.sink().error_store().prepare()


def test_a_unique_index_on_something_else_drops_no_record(table: Table) -> None:
    table.made("error jsonb, original_message jsonb")
    table.execute(f"create unique index on {table.name} ((original_message->>'id'))")
    store = table.sink().error_store()
    store.prepare()
    with pytest.raises(PermanentError, match="has a unique index that refuses error records"):
        store.store([record(1, b'{"id":7}'), record(2, b'{"id":7}')])
    assert table.execute(f"select count(*) from {table.name}") == [(0,)]


@pytest.mark.parametrize("raw", [False, True])
def test_an_iceberg_table_holds_each_record_once(
    seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str, raw: bool
) -> None:
    store = make_sink(seaweedfs, namespace, rawMode=raw).error_store()
    store.prepare()
    store.store(RECORDS[:4])
    store.store(RECORDS)
    store.store(RECORDS)
    found = catalog.load_table((namespace, "orders")).scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in found) == sorted(one.id for one in RECORDS)
    bodies = {one.id: one.body.decode() for one in RECORDS}
    for row in found:
        whole = row["data"] if raw else _whole(row["error"], row["original_message"])
        assert whole == bodies[row["id"]]


def _whole(error: str, original: str) -> str:
    return f'{{"error":{error},"original_message":{original}}}'


@pytest.mark.parametrize("raw", [False, True])
def test_an_iceberg_table_gives_each_message_back_until_it_is_replayed(
    seaweedfs: devservers.SeaweedFS, namespace: str, raw: bool
) -> None:
    store = make_sink(seaweedfs, namespace, rawMode=raw).error_store()
    assert store.pending("ns/f", None, 100) == []
    store.prepare()
    store.store(RECORDS[:6])
    between = datetime.now(UTC)
    store.store([error_record(TARGET, SLICE, Rejection(70, "sink", "why", b"{}"))])
    store.store(RECORDS[6:])
    found = store.pending("ns/f", None, 100)
    assert {one.id: one.body for one in found} == {
        **{one.id: body for one, (body, _) in zip(RECORDS, BODIES, strict=True)},
        found[-1].id: b"{}",
    }
    assert [one.metadata["offset"] for one in store.pending("ns/f", between, 100)] == [70]
    assert store.pending("ns/f", None, 4) == found[:4]
    assert store.pending("ns/other", None, 100) == []
    for _ in range(2):
        store.mark_replayed(found[:-1])
    assert store.pending("ns/f", None, 100) == found[-1:]


def test_two_replays_and_a_flow_at_once_lose_nothing(
    seaweedfs: devservers.SeaweedFS, namespace: str
) -> None:
    store = make_sink(seaweedfs, namespace).error_store()
    store.prepare()
    store.store(RECORDS)
    names = [one.id for one in RECORDS]
    with ThreadPoolExecutor(3) as pool:
        entries = sorted(store.pending("ns/f", None, 100), key=lambda one: names.index(one.id))
        halves = [pool.submit(store.mark_replayed, entries[n:7:2]) for n in range(2)]
        for n in range(100, 103):
            store.store([record(n, b"{}")])
        for half in halves:
            half.result()
    wanted = sorted([*names[7:], *(record(n, b"{}").id for n in range(100, 103))])
    assert sorted(one.id for one in store.pending("ns/f", None, 100)) == wanted


def test_an_iceberg_table_without_ids_cannot_be_replayed(
    seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    catalog.create_table((namespace, "orders"), pa.schema([("data", pa.string())]))
    store = make_sink(seaweedfs, namespace, autoCreateTable=False).error_store()
    assert store.pending("ns/f", None, 100) == []
    store.store(RECORDS[:1])
    with pytest.raises(PermanentError, match="no column id of type string: a replay cannot take"):
        store.pending("ns/f", None, 100)


def test_an_iceberg_table_without_ids_keeps_what_comes(
    seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    catalog.create_table((namespace, "orders"), pa.schema([("data", pa.string())]))
    store = make_sink(seaweedfs, namespace, autoCreateTable=False).error_store()
    store.prepare()
    store.store(RECORDS[:2])
    store.store(RECORDS[:2])
    found = catalog.load_table((namespace, "orders")).scan().to_arrow().to_pylist()
    assert sorted(row["data"] for row in found) == sorted(
        2 * [r.body.decode() for r in RECORDS[:2]]
    )


def test_an_iceberg_table_that_does_not_fit(
    seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    catalog.create_table((namespace, "orders"), pa.schema([("a", pa.int64())]))
    why = "error sink's table .* cannot take .*: it has the columns a; it needs error"
    with pytest.raises(PermanentError, match=why):
        make_sink(seaweedfs, namespace).error_store().prepare()


def test_a_missing_iceberg_table_is_told_with_the_two_ways_out(
    seaweedfs: devservers.SeaweedFS, namespace: str
) -> None:
    store = make_sink(seaweedfs, namespace, autoCreateTable=False).error_store()
    with pytest.raises(PermanentError, match=r"the error sink's table .* create it, or set autoCr"):
        store.prepare()


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        ("host=db user=u password=p dbname=d port=5432 application_name=x", True),
        ("postgres://u:p@db:5432/d?pool_max_conns=3&connect_timeout=9", True),
        ("postgres://u:p@db/e", False),
        ("postgres://u:p@db:5433/d", False),
        ("postgres://u:p@db2/d", False),
        ("postgres://v:p@db/d", False),
        ("postgres://u:q@db/d", False),
        ("postgres://u:p@db/d?role=other", False),
    ],
)
def test_one_transaction_needs_one_server_one_database_and_one_role(
    other: str, shared: bool
) -> None:
    sink = PostgresqlSink.model_validate({"connectionString": other, "table": "e"})
    assert sink.error_store().shares("postgres://u:p@db/d") is shared  # type: ignore[attr-defined]
