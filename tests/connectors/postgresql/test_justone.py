"""JustOne's properties against Kafka and PostgreSQL: values, delivery, and taking over."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.cli import main
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.contracts import Run
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.runs.reset import reset
from dataflow_assets.runs.take_over import adopt_stored
from tests.conftest import Topics
from tests.connectors.postgresql.predecessor import Predecessor
from tests.connectors.postgresql.test_parse_texts import USUAL
from tests.examples import examples
from tests.formats.test_parse_paths import MESSAGE
from tests.languages.justone.test_reader import WORKER, changed

ONCE = Request(patience=Patience(20, 0.05, 0.2))


@dataclass
class Justone:
    """A folder with both files, a topic, and a database of its own with one table."""

    folder: Path
    kafka: devservers.Kafka
    dsn: str
    topic: str
    engine: SparkSession
    group: str = ""

    def write(self, **keys: str | None) -> Flow:
        settings = psycopg.conninfo.conninfo_to_dict(self.dsn)
        name = f"sink-{self.topic}"
        self.group = f"connect-{name}"
        own = {
            "name": name,
            "topics": self.topic,
            "db__host": f"{settings['host']}:{settings['port']}",
            "db__database": str(settings["dbname"]),
            "db__username": str(settings["user"]),
        }
        (self.folder / "sink.properties").write_text(changed(**own | keys))
        worker = WORKER.replace("localhost:9092", self.kafka.bootstrap)
        (self.folder / "worker.properties").write_text(worker)
        loaded = load(self.folder)
        assert loaded.findings == ()
        (flow,) = loaded.flows
        return flow

    def table(self, columns: str) -> None:
        self.run(f"CREATE TABLE readings ({columns})")

    def run(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET timezone = 'UTC'")
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def send(self, bodies: Sequence[bytes | None], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        for body in bodies:
            producer.produce(self.topic, body, partition=partition)
        assert producer.flush(30) == 0

    def drain(self, flow: Flow) -> int:
        return sum(report.delta.rows for report in drain(flow, lambda: self.engine, ONCE))

    def commit(self, offsets: Mapping[int, int]) -> None:
        """As Connect's consumer does: without metadata."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": self.group})
        places = [TopicPartition(self.topic, p, o) for p, o in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


@pytest.fixture
def justone(
    tmp_path: Path, kafka: devservers.Kafka, own_database: str, topic: Topics, engine: SparkSession
) -> Justone:
    return Justone(tmp_path, kafka, own_database, topic(2), engine)


def test_the_pages_example_runs_as_it_is(justone: Justone) -> None:
    """Names of topic and database, and the address of both servers, are this test's own."""
    justone.table("id bigint, latitude numeric, longitude real, acceleration json")
    flow = justone.write()
    justone.send([MESSAGE, b'{"identity":2}'])
    assert justone.drain(flow) == 2
    found = "SELECT id::text, latitude::text, longitude::text, acceleration::text FROM readings"
    assert justone.run(f"{found} ORDER BY id DESC") == [
        ("71293145", "51.5009449", "-2.4773414", "[0.01,0.0,0.0]"),
        ("2", None, None, None),
    ]
    assert justone.drain(flow) == 0


TYPES = {
    "i2": "smallint",
    "i4": "integer",
    "i8": "bigint",
    "f4": "real",
    "f8": "double precision",
    "n": "numeric",
    "n2": "numeric(6,2)",
    "b": "boolean",
    "d": "date",
    "t": "time",
    "ts": "timestamp",
    "tz": "timestamptz",
    "iv": "interval",
    "u": "uuid",
    "ip": "inet",
    "v": "varchar(5)",
    "c": "char(4)",
    "x": "text",
    "j": "json",
    "jb": "jsonb",
    "by": "bytea",
    "ar": "integer[]",
    "m": "mood",
}
"""A column of every kind."""
VALUES = [
    "March 3, 2026", "2026-03-03", "20260303", "3/4/2026", "today is not", "infinity", "-infinity",
    "1e3", "1000", " 12 ", "+7", "-0", "1_000", "0x1F", "1.50", "1.", ".5", "NaN", "Infinity",
    "32768", "9223372036854775808", "123456.789", "true", "t", "yes", "off", "1", "0", "",
    "04:05:06.789", "04:05 PM", "24:00:00", "2026-03-03T04:05:06Z", "2026-03-03 04:05:06+02",
    "Jan 8 04:05:06 1999 PST", "1 day 2 hours", "P1DT2H", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
    "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}", "10.0.0.1/24", "::1", "äöüß", "too long", "ab  ",
    "abcd  ", "a\nb", "a\tb", "a\\b", 'a"b', "a,b", "\\N", "\\.", "null", "NULL", '{"a": 1}',
    "[1, 2]", '"text"', "{broken", "{1,2,NULL}", "\\x00ff", "\\000", "happy", "Happy", "😀",
]  # fmt: skip


Case = tuple[str, Any]
"""A column, and a value for it."""


def _bodies(cases: Sequence[Case]) -> list[bytes]:
    return [
        json.dumps({"key": str(number), name: value}, ensure_ascii=False).encode()
        for number, (name, value) in enumerate(cases)
    ]


def _every(names: Sequence[str], values: Sequence[Any]) -> list[Case]:
    return [(name, value) for name in names for value in values]


def test_values_are_parsed_by_postgresql(justone: Justone) -> None:
    """Held against COPY of the same text, value by value, into columns of the same types."""
    flow = _of_types(justone, [*TYPES])
    cases = _every([*TYPES], [*VALUES, 1, 1.5, True, 1000, {"a": 1}, [1, 2], "x" * 70, "Feb 30"])
    justone.send(_bodies(cases))
    justone.drain(flow)
    _same_as_copy(justone, cases)


def test_text_needs_no_parsing(justone: Justone) -> None:
    """Columns of text go by binary COPY; what PostgreSQL makes of them is the same."""
    names = ["v", "c", "x", "j", "jb", "m"]
    _by_binary_copy(justone, names, _every(names, VALUES))


PARSED = {
    "i2": "int2", "i4": "int4", "i8": "int8", "f4": "float4", "f8": "float8", "n": "numeric",
    "n2": "numeric", "b": "bool", "d": "date", "t": "time", "ts": "timestamp",
    "tz": "timestamptz", "u": "uuid",
}  # fmt: skip
"""The columns whose texts are parsed here where all of them have a usual form."""


def test_usual_forms_are_as_copy_reads_them(justone: Justone) -> None:
    """By binary COPY, in a block of all columns, with values that a limit of a type refuses."""
    cases: list[Case] = [(name, value) for name, base in PARSED.items() for value in USUAL[base]]
    cases += [("n2", "123456.789"), ("m", "happy"), ("m", "Happy"), ("v", "too long"), ("n", None)]
    _by_binary_copy(justone, [*PARSED, "v", "c", "x", "j", "jb", "m"], cases)


def _by_binary_copy(justone: Justone, names: Sequence[str], cases: Sequence[Case]) -> None:
    flow = _of_types(justone, names)
    session = flow.resolve().branches[0].sink.open(flow.target(flow.branches[0]), Run())
    schema = session.table.schema()
    assert schema is not None
    assert schema.metadata[b"dataflow.postgresql.driver"] == b"binary"
    session.close()
    justone.send(_bodies(cases))
    justone.drain(flow)
    _same_as_copy(justone, cases)


DIGITS = st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{0,6})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
FORMS = st.sampled_from(["%Y-%m-%d", "%d %B %Y", "%B %d, %Y", "%H:%M:%S", "%c", "%Y-%m-%dT%XZ"])
TIMES = st.builds(lambda at, form: at.strftime(form), st.datetimes(), FORMS)
SCALARS = st.text(max_size=8) | DIGITS | TIMES | st.integers() | st.booleans() | st.none()
NESTED = st.lists(st.integers(0, 9), max_size=3) | st.dictionaries(st.text(max_size=3), SCALARS)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
CASES = st.tuples(st.sampled_from([*TYPES]), SCALARS | NESTED | FLOATS)


@settings(
    max_examples=examples(10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cases=st.lists(CASES, min_size=100, max_size=200))
def test_any_value_is_what_postgresql_makes_of_it(
    justone: Justone, topic: Topics, cases: list[Case]
) -> None:
    """By chance: texts, numbers, times in many forms, nested values; many of them per flow."""
    justone.run("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    justone.topic = topic(1)
    flow = _of_types(justone, [*TYPES])
    justone.send(_bodies(cases))
    justone.drain(flow)
    _same_as_copy(justone, cases)


def _of_types(justone: Justone, names: Sequence[str]) -> Flow:
    justone.run("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    justone.table(", ".join(["key text", *(f"{name} {kind}" for name, kind in TYPES.items())]))
    return justone.write(
        db__columns=",".join(["key", *names]),
        db__json__parse=",".join(f"/@{name}" for name in ["key", *names]),
        dataflow__onRejected="table",
        dataflow__maxRejectedPercent="100",
    )


def _same_as_copy(justone: Justone, cases: Sequence[Case]) -> None:
    """Each value that PostgreSQL takes is stored as it takes it; each other one is rejected."""
    texts = ", ".join(f"{name}::text" for name in TYPES)
    stored = {int(row[0]): row[1:] for row in justone.run(f"SELECT key, {texts} FROM readings")}
    found = justone.run("SELECT body FROM dataflow_rejected")
    refused = {int(json.loads(row[0])["key"]) for row in found}
    assert sorted([*stored, *refused]) == [*range(len(cases))]
    with psycopg.connect(justone.dsn, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        for name, kind in TYPES.items():
            connection.execute(f"CREATE TEMP TABLE one_{name} (v {kind})".encode())
        for number, (name, value) in enumerate(cases):
            copied = _copied(connection, f"one_{name}", _as_text(value))
            if copied is None:
                assert number in refused, (name, value, stored.get(number))
            else:
                assert stored[number][[*TYPES].index(name)] == copied[0], (name, value)


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _copied(connection: psycopg.Connection, table: str, text: str | None) -> tuple[Any] | None:
    """What COPY makes of one value; None where it refuses it."""
    try:
        with connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
            copy.write_row([text])
    except (psycopg.DataError, psycopg.OperationalError, psycopg.InternalError):
        return None
    row = connection.execute(f"DELETE FROM {table} RETURNING v::text".encode()).fetchone()
    assert row is not None
    return (row[0],)


def test_a_message_that_is_no_json_stops_the_flow_and_is_named(justone: Justone) -> None:
    justone.table("id bigint")
    flow = justone.write(db__columns="id", db__json__parse="/@id")
    justone.send([b'{"id": 1}', b"no json", b'{"id": 3}'])
    with pytest.raises(PermanentError, match=r"offset 1.*is not JSON"):
        justone.drain(flow)
    assert justone.run("SELECT id FROM readings ORDER BY 1") == [(1,)]


def test_rejected_records_are_kept_where_that_is_asked(justone: Justone) -> None:
    justone.table("id int NOT NULL, v varchar(3)")
    flow = justone.write(
        db__columns="id,v", db__json__parse="/@id,/@v", errors__tolerance="all",
        dataflow__maxRejectedPercent="100",
    )  # fmt: skip
    bodies = [b'{"id": 1}', b"no json", b'{"id": "1e3"}', b'{"id": 2, "v": "long"}', None, b"{}"]
    justone.send(bodies)
    assert justone.drain(flow) == 1
    found = justone.run('SELECT "offset", stage, reason, body FROM dataflow_rejected ORDER BY 1')
    assert [(row[0], row[1]) for row in found] == [
        (1, "decode"), (2, "sink"), (3, "sink"), (4, "decode"), (5, "encode"),
    ]  # fmt: skip
    assert 'invalid input syntax for type integer: "1e3"' in found[1][2]
    assert "column id" in found[1][2]
    assert found[1][3] == '{"id": "1e3"}'
    assert justone.run("SELECT id FROM readings") == [(1,)]


def test_columns_that_are_not_listed_get_their_defaults(justone: Justone) -> None:
    justone.table("n int GENERATED ALWAYS AS IDENTITY, id bigint, at timestamptz DEFAULT now()")
    flow = justone.write(db__columns="id", db__json__parse="/@id")
    justone.send([b'{"id": 1}', b'{"id": null}'])
    assert justone.drain(flow) == 2
    found = justone.run("SELECT n, id, at IS NOT NULL FROM readings")
    assert found == [(1, 1, True), (2, None, True)]


def test_what_the_table_lacks_is_said(justone: Justone) -> None:
    flow = justone.write(db__columns="id", db__json__parse="/@id")
    justone.send([b'{"id": 1}'])
    with pytest.raises(PermanentError, match=r"public\.readings does not exist.*db\.table"):
        justone.drain(flow)
    justone.table("number int, name text")
    with pytest.raises(PermanentError, match=r"names id, which .* it has number, name"):
        justone.drain(flow)


@pytest.mark.parametrize(
    ("version", "said"),
    [(90325, "PostgreSQL 9.3: .* need PostgreSQL 14"), (130014, "PostgreSQL 13,")],
)
def test_an_old_server_is_told_by_its_version(
    justone: Justone, monkeypatch: pytest.MonkeyPatch, version: int, said: str
) -> None:
    """The server says another version than it has; older ones cannot be had."""
    justone.table("id bigint")
    flow = justone.write(db__columns="id", db__json__parse="/@id")
    monkeypatch.setattr(TextLink, "version", version)
    with pytest.raises(PermanentError, match=said):
        justone.drain(flow)


def _numbers(first: int, last: int) -> list[bytes]:
    return [json.dumps({"id": number}).encode() for number in range(first, last)]


def _taken(justone: Justone) -> list[int]:
    return [row[0] for row in justone.run("SELECT id FROM readings ORDER BY id, ctid")]


@pytest.fixture
def running(justone: Justone) -> Flow:
    """Forty messages in two partitions; the even numbers in 0. A table, and the flow's files."""
    justone.table("id bigint")
    justone.send(_numbers(0, 40)[::2], 0)
    justone.send(_numbers(0, 40)[1::2], 1)
    return justone.write(db__columns="id", db__json__parse="/@id")


def test_a_flow_goes_on_where_the_connector_stopped(
    justone: Justone, running: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    with Predecessor(justone.dsn, "public", "readings") as connector:
        connector.flush([[n] for n in range(10)], {(justone.topic, 0): 5, (justone.topic, 1): 5})
        connector.flush(
            [[n] for n in range(10, 23)], {(justone.topic, 0): 12, (justone.topic, 1): 11}
        )
    justone.commit({0: 5, 1: 5})  # behind, as it may be
    assert justone.drain(running) == 17
    assert _taken(justone) == [*range(40)]
    assert "partition 0 offset 12, partition 1 offset 11, as stored with the rows" in caplog.text
    justone.send(_numbers(40, 50))
    assert justone.drain(running) == 10
    assert _taken(justone) == [*range(50)]


def test_partitions_that_only_the_group_knows_are_warned_of(
    justone: Justone, running: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    """With several tasks a flush leaves the offsets of one of them."""
    with Predecessor(justone.dsn, "public", "readings") as connector:
        connector.flush([[n] for n in range(20)], {(justone.topic, 0): 10})
    justone.commit({0: 2, 1: 10})
    assert justone.drain(running) == 20
    assert _taken(justone) == [*range(40)]
    stored, warning = (one for one in caplog.records if one.levelno == logging.WARNING)
    assert "begins at partition 0 offset 10, as stored with the rows" in stored.message
    assert "partition 1 offset 10, as committed by the consumer group" in warning.message
    assert f"connect-sink-{justone.topic}" in warning.message


def test_without_state_the_group_is_all_there_is(
    justone: Justone, running: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    justone.commit({0: 19})
    assert justone.drain(running) == 21
    assert "partition 0 offset 19, as committed by the consumer group" in caplog.text
    assert "begins at partition 1 offset 0, the earliest: nobody has read these" in caplog.text
    assert _taken(justone) == sorted([*range(1, 40, 2), 38])


def test_a_connector_that_still_runs_is_waited_for(justone: Justone, running: Flow) -> None:
    with Predecessor(justone.dsn, "public", "readings") as connector:
        connector.flush([[0]], {(justone.topic, 0): 1, (justone.topic, 1): 0})
        with pytest.raises(TransientError, match=r"JustOne's connector still writes to public"):
            list(drain(running, lambda: justone.engine, HASTY))
    assert justone.drain(running) == 39
    assert _taken(justone) == [*range(40)]


HASTY = Request(patience=Patience(0.2, 0.05, 0.05))


def test_the_last_flush_of_a_connector_that_stops_meanwhile_is_counted(
    justone: Justone, running: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stores its last rows right before the flow looks whether it still runs."""
    connector = Predecessor(justone.dsn, "public", "readings")
    with connector:
        connector.flush([[0]], {(justone.topic, 0): 1, (justone.topic, 1): 0})
        asked = TextLink.execute

        def meanwhile(link: TextLink, query: str, *values: Any) -> Any:
            if "pg_my_temp_schema" in query:
                monkeypatch.setattr(TextLink, "execute", asked)
                places = {(justone.topic, 0): 10, (justone.topic, 1): 10}
                connector.flush([[n] for n in range(1, 20)], places)
                connector.__exit__(None, None, None)
                while justone.run("SELECT FROM pg_class WHERE relpersistence = 't'"):
                    time.sleep(0.01)
            return asked(link, query, *values)

        monkeypatch.setattr(TextLink, "execute", meanwhile)
        justone.drain(running)
    assert _taken(justone) == [*range(40)]


def test_a_connector_that_starts_while_its_state_is_read_is_noticed(
    justone: Justone, running: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Predecessor(justone.dsn, "public", "readings") as connector:
        connector.flush([[0]], {(justone.topic, 0): 1, (justone.topic, 1): 0})
    started = Predecessor(justone.dsn, "public", "readings")
    asked = TextLink.execute

    def meanwhile(link: TextLink, query: str, *values: Any) -> Any:
        if "max(kafka_offset)" in query:
            monkeypatch.setattr(TextLink, "execute", asked)
            started.__enter__()
        return asked(link, query, *values)

    monkeypatch.setattr(TextLink, "execute", meanwhile)
    with pytest.raises(TransientError, match="JustOne's connector still writes"):
        list(drain(running, lambda: justone.engine, HASTY))
    started.__exit__(None, None, None)
    assert justone.drain(running) == 39


def test_temporary_tables_of_others_do_not_count(justone: Justone, running: Flow) -> None:
    """One of another role, and one of other columns."""
    with Predecessor(justone.dsn, "public", "readings") as connector:
        connector.flush([[0]], {(justone.topic, 0): 1, (justone.topic, 1): 0})
    role = f"analyst_{justone.topic}"
    justone.run(f"CREATE ROLE {role}; GRANT {role} TO CURRENT_USER")
    try:
        with (
            psycopg.connect(justone.dsn, autocommit=True) as own,
            psycopg.connect(justone.dsn, autocommit=True) as other,
        ):
            own.execute("CREATE TEMP TABLE readings (id bigint, more text)")
            other.execute(f"SET ROLE {role}".encode())
            other.execute("CREATE TEMP TABLE readings (id bigint)")
            assert justone.drain(running) == 39
            other.execute("DROP TABLE pg_temp.readings")
    finally:
        justone.run(f"DROP ROLE {role}")


def test_a_connector_without_state_is_noticed_by_its_consumer_group(
    justone: Justone, running: Flow
) -> None:
    """Delivery `fastest` and `guaranteed`: the table shows nothing of it."""
    settings = {"bootstrap.servers": justone.kafka.bootstrap, "group.id": justone.group}
    connector = Consumer(settings | {"client.id": "connector-sink-0", "log_level": 0})
    connector.subscribe([justone.topic])
    while not connector.assignment():
        connector.poll(0.1)
    said = r"still has members \(connector-sink-0 at .*\): the connector runs\. Stop it"
    with pytest.raises(TransientError, match=said):
        list(drain(running, lambda: justone.engine, HASTY))
    connector.close()
    justone.commit({0: 20, 1: 10})
    assert justone.drain(running) == 10


@pytest.mark.parametrize(
    ("partition", "offset", "said"),
    [(0, 21, "ends at offset 20, but 21"), (2, 0, "has 2 partitions, and the table knows part")],
)
def test_state_of_another_topic_is_not_believed(
    justone: Justone, running: Flow, partition: int, offset: int, said: str
) -> None:
    with Predecessor(justone.dsn, "public", "readings") as connector:
        connector.flush([], {(justone.topic, partition): offset})
    with pytest.raises(PermanentError, match=f"{said}.*was it the same topic"):
        justone.drain(running)
    assert _taken(justone) == []


def test_state_of_other_topics_and_tables_does_not_count(justone: Justone, running: Flow) -> None:
    justone.run("CREATE TABLE others (id bigint)")
    with Predecessor(justone.dsn, "public", "readings") as connector:
        connector.flush([], {("another", 0): 7})
    with Predecessor(justone.dsn, "public", "others") as connector:
        connector.flush([], {(justone.topic, 0): 7})
    assert justone.drain(running) == 40


def test_a_reset_goes_back_to_where_the_connector_stopped(
    justone: Justone, running: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    with Predecessor(justone.dsn, "public", "readings") as connector:
        connector.flush([[0]], {(justone.topic, 0): 1, (justone.topic, 1): 0})
    assert justone.drain(running) == 39
    asked = ["reset", str(justone.folder), "--flow", running.name, "--yes", "--checkpoint"]
    assert main(asked) == 0
    assert "goes on where the program that filled its table stopped" in capsys.readouterr().out
    justone.run("DELETE FROM readings WHERE id > 0")
    assert justone.drain(running) == 39
    reset(running, Run())
    justone.run("DELETE FROM readings WHERE id > 0")
    assert justone.drain(running) == 39
    assert _taken(justone) == [*range(40)]


def test_check_preview_and_status_know_the_flow(
    justone: Justone, running: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(justone.folder)
    assert main(["check", folder]) == 0
    said = capsys.readouterr().out
    assert f"flow {running.id}: kafka/" in said
    assert "1 flow, 0 findings" in said
    assert main(["preview", folder, "--limit", "2", "--json"]) == 0
    assert '"id"' in capsys.readouterr().out
    assert justone.drain(running) == 40
    assert main(["status", folder]) == 0
    assert running.name in capsys.readouterr().out


def test_preview_and_status_show_where_the_connector_is(
    justone: Justone, running: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it runs, and before the flow has run: nothing is taken over by looking."""
    folder = str(justone.folder)
    with Predecessor(justone.dsn, "public", "readings") as connector:
        connector.flush([[0]], {(justone.topic, 0): 19, (justone.topic, 1): 18})
        assert main(["status", folder]) == 0
        assert "never run; begins at 0:19 1:18" in capsys.readouterr().out
        assert main(["status", folder, "--json"]) == 0
        (branch,) = json.loads(capsys.readouterr().out)["flows"][0]["branches"]
        assert (branch["checkpoint"], branch["lag_records"]) == (None, 3)
        assert branch["inherited"] == {"0": 19, "1": 18}
        assert main(["preview", folder]) == 0
    said = capsys.readouterr()
    shown = said.out + said.err
    assert "the next 3 records after where the program before this flow has stopped" in shown
    assert justone.drain(running) == 3
    assert main(["status", folder]) == 0
    assert "never run" not in capsys.readouterr().out


def test_taking_over_asks_for_a_table_that_can_have_been_filled(justone: Justone) -> None:
    flow = justone.write(db__columns="id", db__json__parse="/@id")
    justone.table("id bigint")
    adopt_stored(flow, Run())
    justone.send(_numbers(0, 3))
    assert justone.drain(flow) == 3
