"""Raw mode: bodies and metadata as they stand in PostgreSQL and Iceberg."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from psycopg import sql
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.iceberg import IcebergSink
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import Kind, Note, Run, Sink
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.wrapped import unwrapped_texts
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.sdk.raw_mode import shape_of
from dataflow_assets.transforms.filter import Filter
from dataflow_assets.transforms.insert_field import InsertField
from tests.conftest import Topics
from tests.connectors.iceberg.driver import make_sink, table_rows

BIG = 123456789012345678901234567890
SENT_AT = 1_790_000_000_123  # 2026-09-21T14:13:20.123Z
KEPT = {"retention.ms": "-1"}
AT = "2026-09-21T14:13:20.123Z"


@dataclass
class Pipe:
    """One topic, and what becomes of its messages in a sink."""

    kafka: devservers.Kafka
    topic: str
    engine: SparkSession
    sink: Sink
    read: Callable[[], list[dict[str, Any]]]
    refused: Callable[[], list[str]]
    steps: tuple[Transformation, ...] = ()
    name: str = field(default_factory=lambda: f"raw-{uuid.uuid4().hex[:8]}")
    tombstones: Any = "reject"
    others: tuple[Branch, ...] = ()

    def send(self, *bodies: bytes | None, headers: Sequence[tuple[str, str]] = ()) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for body in bodies:
            producer.produce(
                self.topic, body, key=b"k1", timestamp=SENT_AT, headers=list(headers) or None
            )
        assert producer.flush(30) == 0

    def drain(self, *bodies: bytes | None) -> list[dict[str, Any]]:
        """The rows once these messages have been sent and the flow has run."""
        self.send(*bodies)
        source = KafkaSource(
            brokers=(self.kafka.bootstrap,),
            topic=self.topic,
            consumer_group=self.name,
            tombstones=self.tombstones,
        )
        flow = Flow(
            *("raw", self.name, source, (Branch(self.sink), *self.others)),
            transformations=self.steps,
            hash="h",
        )
        order = Request(run=Run(), patience=Patience(20, 0.01, 0.05))
        for _ in drain(flow, lambda: self.engine, order):
            pass
        return self.read()


@dataclass
class Tables:
    """The tables of one schema."""

    dsn: str
    schema: str

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("set search_path to {}").format(sql.Identifier(self.schema)))
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def rows(self) -> list[dict[str, Any]]:
        return [row for (row,) in self.execute("select to_jsonb(t) from t order by ctid")]

    def refused(self) -> list[str]:
        found = self.execute('select reason from dataflow_rejected order by "offset"')
        return [str(reason) for (reason,) in found]

    def columns(self) -> dict[str, str]:
        return dict(
            self.execute(
                "select column_name, data_type from information_schema.columns "
                "where table_schema = %s and table_name = 't' order by ordinal_position",
                self.schema,
            )
        )


MakePipe = Callable[..., Pipe]


@pytest.fixture
def tables(postgresql: devservers.PostgreSQL, schema: str) -> Tables:
    return Tables(postgresql.dsn(), schema)


@pytest.fixture
def to_postgresql(
    kafka: devservers.Kafka, topic: Topics, tables: Tables, engine: SparkSession
) -> MakePipe:
    def make(*, table: str = "", **config: Any) -> Pipe:
        if table:
            tables.execute(f"create table t ({table})")
        base: dict[str, Any] = {"connectionString": tables.dsn, "table": f"{tables.schema}.t"}
        base |= {"autoCreateTable": not table}
        sink = PostgresqlSink.model_validate(base | config)
        return Pipe(kafka, topic(1, KEPT), engine, sink, tables.rows, tables.refused)

    return make


@pytest.fixture
def to_iceberg(
    kafka: devservers.Kafka,
    topic: Topics,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
    engine: SparkSession,
) -> MakePipe:
    def make(*, table: pa.Schema | None = None, **config: Any) -> Pipe:
        if table is not None:
            catalog.create_table((namespace, "orders"), table)

        def refused() -> list[str]:
            found = table_rows(catalog, namespace, "orders_rejected")
            return [row["reason"] for row in sorted(found, key=lambda row: int(row["offset"]))]

        sink = make_sink(seaweedfs, namespace, **config)
        read = lambda: table_rows(catalog, namespace)  # noqa: E731
        return Pipe(kafka, topic(1, KEPT), engine, sink, read, refused)

    return make


def encoded(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def metadata_of(pipe: Pipe, offset: int, **more: Any) -> dict[str, Any]:
    return {
        "key": "k1",
        "offset": offset,
        "partition": 0,
        "timestamp": AT,
        "topic": pipe.topic,
        **more,
    }


PLAIN: list[tuple[str, bytes]] = [
    ("an object", b'{"id": 1, "event": "login"}'),
    ("a list", b"[1, 2]"),
    ("text", b'"text"'),
    ("a number", b"7"),
    ("false", b"false"),
    ("big and exact", b'{"n": %d, "d": 1.10, "e": 1e400}' % BIG),
    ("a business record that the original cuts", b'{"value": 5, "unit": "kg"}'),
    ("a lone value", b'{"value": {"id": 1}}'),
    ("three keys", b'{"value": 1, "_metadata": {}, "x": 2}'),
    ("metadata that is none", b'{"value": 1, "_metadata": "x"}'),
]
WRAPPED: list[tuple[bytes, Any, Any]] = [
    (b'{"value": {"id": 1}, "_metadata": {"offset": 10}}', {"id": 1}, {"offset": 10}),
    (b'{"_metadata": {}, "value": [1]}', [1], {}),
    (b'{"value": "x", "_metadata": null}', "x", None),
    (b'{"value": 0, "_metadata": {"z": 1, "a": %d}}' % BIG, 0, {"z": 1, "a": BIG}),
]
NUL = b'{"a": "\\u0000"}'
REFUSED: list[tuple[bytes | None, str]] = [
    (b'{"value": null, "_metadata": {}}', "null in column data"),
    (b"null", "null in column data"),
    (b"\xff{", "invalid UTF-8"),
    (None, "null message"),
    (b'"\\ud800"', "surrogate"),
]


def exactly(text: bytes | str) -> Any:
    """JSON with each number as its digits."""
    return json.loads(text, parse_float=str, parse_int=str)


# PostgreSQL


def test_postgresql_keeps_whole_bodies(to_postgresql: MakePipe, tables: Tables) -> None:
    pipe = to_postgresql(rawMode=True)
    pipe.send(b'{"with": "headers"}', headers=[("h", "one"), ("h", "two"), ("i", "3")])
    refused = [*REFUSED, (b"no json", "is not JSON"), (b"", "is not JSON"), (NUL, "NUL")]
    sent = [body for _, body in PLAIN] + [body for body, _, _ in WRAPPED]
    rows = pipe.drain(*sent, *(body for body, _ in refused))
    assert rows[0]["_metadata"] == metadata_of(pipe, 0, headers={"h": "two", "i": "3"})
    assert [row["id"] for row in rows] == list(range(1, len(sent) + 2))
    assert all(row["created_at"] and row["updated_at"] for row in rows)
    for offset, (what, _) in enumerate(PLAIN, 1):
        assert rows[offset]["_metadata"] == metadata_of(pipe, offset), what
    found = [(row["data"], row["_metadata"]) for row in rows[len(PLAIN) + 1 :]]
    assert found == [(value, metadata) for _, value, metadata in WRAPPED]
    texts = [text for (text,) in tables.execute("select data::text from t order by id offset 1")]
    for text, (what, body) in zip(texts, PLAIN, strict=False):
        if what == "big and exact":
            assert (exactly(text)["n"], exactly(text)["d"]) == (str(BIG), "1.10")
        else:
            assert exactly(text) == exactly(body), what
    for reason, (_, part) in zip(tables.refused(), refused, strict=True):
        assert part in reason


def test_postgresql_makes_the_original_s_table(to_postgresql: MakePipe, tables: Tables) -> None:
    to_postgresql(rawMode=True).drain(b"{}")
    assert tables.columns() == {
        "id": "bigint",
        "data": "jsonb",
        "_metadata": "jsonb",
        "created_at": "timestamp with time zone",
        "updated_at": "timestamp with time zone",
        "deleted_at": "timestamp with time zone",
    }
    indexes = [
        text
        for (text,) in tables.execute(
            "select indexdef from pg_indexes where schemaname = %s and tablename = 't'",
            tables.schema,
        )
    ]
    assert any("idx_t_data ON" in text and "gin (data)" in text for text in indexes)
    assert any("UNIQUE" in text and "(id)" in text for text in indexes)
    ((required,),) = tables.execute(
        "select attnotnull from pg_attribute where attrelid = 't'::regclass and attname = 'data'"
    )
    assert required


def test_a_table_is_made_even_where_its_index_cannot_be(to_postgresql: MakePipe) -> None:
    rows = to_postgresql(rawMode=True, columns={"data": "text"}).drain(b"no json")
    assert [row["data"] for row in rows] == ["no json"]


def test_postgresql_table_without_the_columns(to_postgresql: MakePipe) -> None:
    with pytest.raises(PermanentError, match="no column _metadata, which rawMode writes to"):
        to_postgresql(rawMode=True, table="id serial, data jsonb").drain(b"{}")


def test_postgresql_existing_text_columns_hold_json_text(to_postgresql: MakePipe) -> None:
    pipe = to_postgresql(rawMode=True, table="data text, _metadata json")
    rows = pipe.drain(b'{"b": 1.50, "a": 2}', b"no json")
    assert [row["data"] for row in rows] == ['{"b":1.50,"a":2}', "no json"]
    assert [row["_metadata"] for row in rows] == [metadata_of(pipe, 0), metadata_of(pipe, 1)]


def test_postgresql_columns_of_other_types_do_not_fit(to_postgresql: MakePipe) -> None:
    with pytest.raises(PermanentError, match="column data of table t must hold JSON or text"):
        to_postgresql(rawMode=True, table="data bigint, _metadata jsonb").drain(b"1")


def test_steps_run_before_raw_mode(to_postgresql: MakePipe) -> None:
    pipe = to_postgresql(rawMode=True)
    step = InsertField.model_validate({"fields": {"source": "web"}})
    pipe.steps = (Transformation(step),)
    assert [row["data"] for row in pipe.drain(b'{"id": 1}')] == [{"id": 1, "source": "web"}]


def test_null_messages_may_be_skipped(to_postgresql: MakePipe, tables: Tables) -> None:
    pipe = to_postgresql(rawMode=True)
    pipe.tombstones = "skip"
    assert [row["data"] for row in pipe.drain(None, b"1")] == [1]
    assert tables.refused() == []


# Iceberg


def test_iceberg_keeps_text(to_iceberg: MakePipe) -> None:
    pipe = to_iceberg(rawMode=True)
    texts = [b'{"z": 1.10, "a": %d, "u": "\\u00e9"}' % BIG, b"no json", b"", b'"text"', NUL]
    plain = [body for what, body in PLAIN if what != "big and exact"]
    wrapped = [body for body, _, _ in WRAPPED]
    rows = pipe.drain(*texts, *plain, *wrapped, *(body for body, _ in REFUSED))
    assert rows[0]["data"] == f'{{"z":1.10,"a":{BIG},"u":"é"}}'
    assert [row["data"] for row in rows[1:4]] == ["no json", "", '"text"']
    assert exactly(rows[4]["data"]) == exactly(NUL)
    assert list(exactly(rows[0]["_metadata"]).items()) == list(
        exactly(json.dumps(metadata_of(pipe, 0))).items()
    )
    assert set(rows[0]) == {"data", "_metadata"}
    rest = rows[len(texts) :]
    assert [exactly(row["data"]) for row in rest[: len(plain)]] == [exactly(b) for b in plain]
    for row, (_, value, metadata) in zip(rest[len(plain) :], WRAPPED, strict=True):
        assert json.loads(row["data"]) == value
        assert json.loads(row["_metadata"] or "null") == metadata
    assert rows[-1]["_metadata"] == f'{{"z":1,"a":{BIG}}}'
    for reason, (_, part) in zip(pipe.refused(), REFUSED, strict=True):
        assert part in reason


def test_iceberg_columns_in_any_case(to_iceberg: MakePipe) -> None:
    columns = pa.schema([("Data", pa.string()), ("_METADATA", pa.string())])
    rows = to_iceberg(rawMode=True, table=columns).drain(b"1")
    assert rows[0]["Data"] == "1"
    assert json.loads(rows[0]["_METADATA"])["offset"] == 0


def test_iceberg_table_without_the_columns(to_iceberg: MakePipe) -> None:
    pipe = to_iceberg(rawMode=True, table=pa.schema([("data", pa.string())]))
    with pytest.raises(PermanentError, match="no column _metadata, which rawMode writes to"):
        pipe.drain(b"1")


# flattenMetadataColumns

FLAT = {"rawMode": True, "flattenMetadataColumns": True}
TYPED: dict[str, list[Any]] = {
    "a": [True],
    "b": [1, 2.5],
    "c": [1, "x"],
    "d": [{"x": 1}],
    "e": [None],
    "f": [BIG],
    "g": [5],
    "h": [True, 1],
    "partition": [3],
    "timestamp": [AT],
}


def wrapped_with(samples: dict[str, list[Any]]) -> Iterable[bytes]:
    longest = max(map(len, samples.values()))
    for index in range(longest):
        metadata = {name: values[index] for name, values in samples.items() if index < len(values)}
        yield json.dumps({"value": index, "_metadata": metadata}).encode()


def test_postgresql_metadata_as_columns(to_postgresql: MakePipe, tables: Tables) -> None:
    pipe = to_postgresql(**FLAT, flattenMetadataColumnsPrefix="kafka_")
    pipe.send(b'{"id": 1}', headers=[("h", "x")])
    rows = pipe.drain(b'{"value": 2, "_metadata": {"offset": 7}}')
    zoned = "timestamp with time zone"
    assert tables.columns() == {
        "id": "bigint",
        "data": "jsonb",
        "kafka_headers": "text",
        "kafka_key": "text",
        "kafka_offset": "bigint",
        "kafka_partition": "integer",
        "kafka_timestamp": zoned,
        "kafka_topic": "text",
        "created_at": zoned,
        "updated_at": zoned,
        "deleted_at": zoned,
    }
    first = {name: value for name, value in rows[0].items() if name.startswith("kafka_")}
    assert first == {
        "kafka_headers": '{"h":"x"}',
        "kafka_key": "k1",
        "kafka_offset": 0,
        "kafka_partition": 0,
        "kafka_timestamp": "2026-09-21T14:13:20.123+00:00",
        "kafka_topic": pipe.topic,
    }
    assert (rows[1]["data"], rows[1]["kafka_offset"], rows[1]["kafka_topic"]) == (2, 7, None)


def test_postgresql_types_of_metadata(to_postgresql: MakePipe, tables: Tables) -> None:
    rows = to_postgresql(**FLAT).drain(*wrapped_with(TYPED))
    kinds = {name: kind for name, kind in tables.columns().items() if name in TYPED}
    assert kinds == {
        "a": "boolean",
        "b": "double precision",
        "c": "text",
        "d": "text",
        "e": "text",
        "f": "text",
        "g": "bigint",
        "h": "text",
        "partition": "integer",
        "timestamp": "timestamp with time zone",
    }
    assert rows[0]["f"] == str(BIG)
    assert rows[0]["d"] == '{"x":1}'
    assert [row["h"] for row in rows] == ["true", "1"]
    assert [row["c"] for row in rows] == ["1", "x"]
    assert rows[1]["a"] is None


def test_iceberg_types_of_metadata(to_iceberg: MakePipe, catalog: Catalog, namespace: str) -> None:
    rows = to_iceberg(**FLAT, flattenMetadataColumnsPrefix="m_").drain(*wrapped_with(TYPED))
    found = catalog.load_table((namespace, "orders")).schema()
    assert {field.name: str(field.field_type) for field in found.fields} == {
        "data": "string",
        "m_a": "boolean",
        "m_b": "double",
        "m_c": "string",
        "m_d": "string",
        "m_e": "string",
        "m_f": "string",
        "m_g": "long",
        "m_h": "string",
        "m_partition": "int",
        "m_timestamp": "timestamptz",
    }
    assert [field.name for field in found.fields[1:]] == sorted(f"m_{name}" for name in TYPED)
    assert rows[0]["m_timestamp"].isoformat() == "2026-09-21T14:13:20.123000+00:00"
    assert [row["m_c"] for row in rows] == ["1", "x"]


def test_later_keys_are_left_out_and_told_once(
    to_postgresql: MakePipe, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = to_postgresql(**FLAT)
    pipe.drain(b'{"value": 1, "_metadata": {"a": 1}}')
    late = f"late_{uuid.uuid4().hex[:8]}"
    bodies = encoded(*({"value": n, "_metadata": {"a": n, late: 1}} for n in (2, 3)))
    with caplog.at_level(logging.WARNING):
        rows = pipe.drain(*bodies)
        pipe.drain(*bodies)
    assert [row["a"] for row in rows] == [1, 2, 3]
    assert all(late not in row for row in rows)
    told = [r.getMessage() for r in caplog.records if late in r.getMessage()]
    assert len(told) == 1
    assert "it is left out" in told[0]


def test_a_key_that_would_fill_the_table_s_own_column(
    to_postgresql: MakePipe, tables: Tables
) -> None:
    pipe = to_postgresql(**FLAT)
    rows = pipe.drain(
        b'{"value": 1, "_metadata": {"a": 1}}', b'{"value": 2, "_metadata": {"a": 2, "id": 77}}'
    )
    assert [(row["id"], row["a"]) for row in rows] == [(1, 1)]
    assert tables.refused() == [
        "metadata id would fill the table's own column id; set flattenMetadataColumnsPrefix"
    ]


def test_no_metadata_at_all(to_postgresql: MakePipe) -> None:
    with pytest.raises(PermanentError, match="have no metadata that can become columns"):
        to_postgresql(**FLAT).drain(b'{"value": 1, "_metadata": {}}')


def test_a_time_that_is_none_rejects_its_record(to_postgresql: MakePipe, tables: Tables) -> None:
    good = {"value": 1, "_metadata": {"timestamp": AT}}
    pipe = to_postgresql(**FLAT)
    pipe.drain(*encoded(good))
    pipe.drain(*encoded({"value": 2, "_metadata": {"timestamp": "noon"}}, good))
    assert [row["data"] for row in tables.rows()] == [1, 1]
    (reason,) = tables.refused()
    assert reason.startswith("metadata timestamp is not a time")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("data jsonb, _metadata jsonb", "flattenMetadataColumns does not write"),
        ("payload jsonb, topic text", "has no column data"),
    ],
)
def test_existing_tables_that_do_not_fit(to_postgresql: MakePipe, table: str, message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        to_postgresql(**FLAT, table=table).drain(b"1")


# Without raw mode: wrapped bodies, and tables made for bodies


def test_wrapped_bodies_fill_columns(to_postgresql: MakePipe, tables: Tables) -> None:
    bodies = [
        b'{"id": 1, "name": "plain"}',
        b'{"value": {"id": 2, "name": "wrapped"}, "_metadata": {"x": 1}}',
        b' {"_metadata": null, "value": {"id": 3, "name": "the other way"}}',
        b'{"value": {"id": 4}, "unit": "kg"}',
        b'{"value": 5, "_metadata": {}}',
        b'{"value": {"id": 6}, "value": {"id": 7}, "_metadata": {}}',
    ]
    rows = to_postgresql(table="id bigint, name text").drain(*bodies)
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert len(tables.refused()) == 3
    kept = tables.execute("select body from dataflow_rejected")
    assert sorted(body for (body,) in kept) == sorted(body.decode() for body in bodies[3:])


def test_wrapped_bodies_fill_columns_behind_steps_too(to_postgresql: MakePipe) -> None:
    pipe = to_postgresql(table="id bigint")
    bodies = encoded(*({"value": {"id": n}, "_metadata": {}} for n in (1, 2)))
    pipe.steps = (Transformation(Filter.model_validate({"condition": "$.value.id == 2"})),)
    assert [row["id"] for row in pipe.drain(*bodies)] == [2]


@pytest.mark.parametrize(
    ("sent", "inner"),
    [
        (b'{"value":{"a":1},"_metadata":{}}', b'{"a":1}'),
        (b' {\n "_metadata" : null, "value" : {"a": 1.50} }', b'{"a": 1.50}'),
        (b'{"value":{},"_metadata":{"x":"\\"value\\""}}', b"{}"),
        (b'{"value":{"a":1},"unit":"kg"}', None),
        (b'{"value":{"a":1},"_metadata":1}', None),
        (b'{"value":{"a":1}}', None),
        (b'{"value":[1],"_metadata":{}}', None),
        (b'{"value":{"a":1},"value":{"a":2},"_metadata":{}}', None),
        (b'{"value":{"a":1},"_metadata":{},"value2":1}', None),
        (b'{"value":{"a":"\xff"},"_metadata":{}', None),
        (b'{"v', None),
        (b"", None),
        (None, None),
    ],
)
def test_what_is_inside_a_wrapped_text(sent: bytes | None, inner: bytes | None) -> None:
    plain = b'{"id": 1}'
    bodies = pa.array([plain, sent, plain, sent], pa.binary())
    expected = sent if inner is None else inner
    assert unwrapped_texts(bodies).to_pylist() == [plain, expected, plain, expected]
    assert unwrapped_texts(bodies.slice(1, 2)).to_pylist() == [expected, plain]
    assert unwrapped_texts(pa.array([sent], pa.binary())).to_pylist() == [expected]


def test_batches_without_wrapped_bodies_are_not_copied() -> None:
    for bodies in ([], [None], [b'{"id":1}', b'{"id": 2}'], [b'{"value": 1}'], [b" [1]"]):
        array = pa.array(bodies, pa.binary())
        assert unwrapped_texts(array) is array or bodies == [b'{"value": 1}']


def test_wrapped_bodies_tell_the_columns_of_a_new_table(
    to_iceberg: MakePipe, to_postgresql: MakePipe, tables: Tables
) -> None:
    body = b'{"value": {"id": 2, "name": "x"}, "_metadata": {"topic": "t"}}'
    assert to_iceberg().drain(body) == [{"id": 2, "name": "x"}]
    to_postgresql().drain(body)
    assert set(tables.columns()) == {"id", "name", "created_at", "updated_at"}


def test_a_table_with_a_column_value_takes_them_as_they_are(to_postgresql: MakePipe) -> None:
    pipe = to_postgresql(table="value jsonb, _metadata jsonb")
    rows = pipe.drain(b'{"value": {"id": 2}, "_metadata": {"x": 1}}')
    assert rows == [{"value": {"id": 2}, "_metadata": {"x": 1}}]


BODIES = "id bigserial primary key, data jsonb not null, created_at timestamptz default now()"


def test_a_table_made_for_bodies_takes_them_without_raw_mode(to_postgresql: MakePipe) -> None:
    rows = to_postgresql(table=BODIES).drain(
        b'{"order": 7}', b"[1]", b'{"id": 50, "data": {"typed": true}}', b'{"id": 8}'
    )
    found = sorted((row["data"] for row in rows), key=str)
    assert found == sorted([{"order": 7}, [1], {"typed": True}, {"id": 8}], key=str)
    assert {row["id"] for row in rows if row["data"] == {"typed": True}} == {50}


ID = pa.field("id", pa.int64(), metadata={Note.HAS_DEFAULT: b"1"})
JSONB = Kind.JSON.field("data")
TEXT = pa.field("data", pa.string())


@pytest.mark.parametrize(
    ("kind", "columns", "config", "whole"),
    [
        ("postgresql", [ID, JSONB], {}, True),
        ("postgresql", [ID, JSONB, pa.field("_metadata", pa.string())], {}, True),
        ("postgresql", [JSONB, pa.field("deleted_at", pa.date32())], {}, True),
        ("postgresql", [ID, JSONB], {"unknownFields": "ignore"}, False),
        ("postgresql", [ID, JSONB], {"upsertMode": True}, False),
        ("postgresql", [ID.remove_metadata(), JSONB], {}, False),
        ("postgresql", [ID, JSONB, pa.field("name", pa.string())], {}, False),
        ("postgresql", [TEXT], {}, False),
        ("iceberg", [TEXT], {}, True),
        ("iceberg", [TEXT, pa.field("id", pa.int64())], {}, False),
    ],
)
def test_which_tables_are_made_for_bodies(
    kind: str, columns: list[pa.Field], config: dict[str, Any], whole: bool
) -> None:
    assert (shape_of(declared(kind, config), pa.schema(columns)) is not None) is whole


def test_iceberg_s_one_column_of_text_takes_bodies(to_iceberg: MakePipe) -> None:
    pipe = to_iceberg(table=pa.schema([("data", pa.string())]))
    rows = pipe.drain(b'{"b": 1, "a": 2}', b"no json", b'{"data": "typed"}')
    assert [row["data"] for row in rows] == ['{"b":1,"a":2}', "no json", "typed"]


# What a manifest may say

URL = "postgresql://flow:pw@db.example.org/shop"


@pytest.mark.parametrize("sink", ["postgresql", "iceberg"])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"flattenMetadataColumns": True}, "flattenMetadataColumns requires rawMode: true"),
        (FLAT | {"flattenMetadataColumnsPrefix": "1x"}, "not beginning with a digit"),
        (FLAT | {"flattenMetadataColumnsPrefix": "a-b"}, "must be letters, digits and _"),
        (FLAT | {"flattenMetadataColumnsPrefix": "a\n"}, "must be letters, digits and _"),
    ],
)
def test_what_does_not_fit_together(sink: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declared(sink, config)


@pytest.mark.parametrize("sink", ["postgresql", "iceberg"])
def test_what_fits(sink: str) -> None:
    found = declared(sink, FLAT | {"flattenMetadataColumnsPrefix": "_k1"})
    assert shape_of(found, None) is not None
    assert shape_of(declared(sink, {"rawMode": False}), None) is None


def declared(kind: str, config: dict[str, Any]) -> Sink:
    if kind == "postgresql":
        return PostgresqlSink.model_validate({"connectionString": URL, "table": "t"} | config)
    place = {"catalogURI": "http://catalog", "namespace": "n", "table": "t"}
    return IcebergSink.model_validate(place | config)


def test_the_table_is_there_before_the_first_record(
    to_postgresql: MakePipe, to_iceberg: MakePipe, tables: Tables, catalog: Catalog, namespace: str
) -> None:
    """Its columns are known; those for metadata of their own are not."""
    with pytest.raises(psycopg.errors.UndefinedTable):
        to_postgresql(**FLAT).drain()
    pipe = to_postgresql(rawMode=True)
    pipe.drain()
    names = ["id", "data", "_metadata", "created_at", "updated_at", "deleted_at"]
    assert list(tables.columns()) == names
    assert len(pipe.drain(b'{"id": 1}')) == 1
    assert to_iceberg(rawMode=True).drain() == []
    assert catalog.load_table((namespace, "orders")).schema().column_names == ["data", "_metadata"]


def test_the_tables_of_all_branches_are_there_before_the_first_record(
    to_postgresql: MakePipe, tables: Tables
) -> None:
    """Also of one that no record has reached yet."""
    pipe = to_postgresql(rawMode=True)
    other = pipe.sink.model_copy(update={"table": f"{tables.schema}.other"})
    pipe.others = (Branch(other, routes=("other",)),)
    pipe.drain()
    made = "select to_regclass('t') is not null and to_regclass('other') is not null"
    assert tables.execute(made) == [(True,)]
