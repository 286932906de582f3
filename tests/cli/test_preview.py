"""`dataflow preview`: what it shows of each step, its JSON, and that nothing moves."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import devservers
from dataflow_assets.cli import main
from dataflow_assets.cli.preview.messages import read, write
from dataflow_assets.connectors.memory import Store
from tests import ROOT
from tests.conftest import Topics
from tests.connectors.kafka.impatient import impatient

Said = pytest.CaptureFixture[str]
MEMORY = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: {name}}}
spec:
  source: {{type: {source}, config: {{store: {store}, topic: people}}}}
  sink: {{type: memory-slice, config: {{store: {store}, table: people}}}}
  transformations: {steps}
"""
KAFKA = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: people}}
spec:
  source:
    type: kafka
    config: {{brokers: ["{bootstrap}"], topic: {topic}, consumerGroup: {topic}}}
  sink:
    type: postgresql
    config:
      connectionString: {dsn}
      table: {schema}.people
      autoCreateTable: true
  transformations:
    - {{type: cast, config: {{spec: {{id: int64}}}}}}
"""
STEPS = """
    - {type: filter, config: {condition: "!$.draft"}}
    - {type: remove, config: {fields: [secret]}}
    - {type: cast, when: $.id, config: {spec: {id: int64}}}
    - {type: router, config: {routes: [{condition: $.id == '2', sink: {type: memory-slice,
       config: {store: s, table: two}}}]}}"""
FLATTEN = """
    - {type: flatten, config: {field: rows}}
    - {type: filter, config: {condition: $.rows != '2'}}
    - {type: cast, config: {spec: {rows: int64}}}"""


def manifest(
    folder: Path,
    steps: str = STEPS,
    name: str = "people",
    store: str = "s",
    source: str = "memory-offsets",
) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(MEMORY.format(name=name, source=source, store=store, steps=steps))
    return path


def given(folder: Path, *lines: Any) -> str:
    path = folder / "records.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts))
    return str(path)


NO_JSON = "JSON is malformed: invalid character (byte {})"


def results(said: Said) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.readouterr().out.splitlines()]


def preview(path: Path, *options: str) -> int:
    return main(["preview", str(path), *options])


def test_one_object_for_each_record_in_order(tmp_path: Path, capsys: Said) -> None:
    lines = [
        {"body": {"id": "1", "secret": "x"}, "metadata": {"key": "a"}},
        {"body": {"id": 2}},
        {"body": {"draft": True}, "metadata": {}},
        {"body": {"id": "x"}, "metadata": {"offset": 7}},
        {"text": "hello"},
    ]
    assert preview(manifest(tmp_path), "--input", given(tmp_path, *lines), "--json") == 0
    found = results(capsys)
    assert [one["in"] for one in found] == lines
    two = "$.id == '2'"
    assert [one["out"] for one in found] == [
        [{"body": {"id": 1}, "metadata": {"key": "a"}, "route": None}],
        [{"body": {"id": 2}, "metadata": {"routed_condition": two}, "route": two}],
        [],
        [],
        [{"text": "hello", "metadata": {}, "route": None}],
    ]
    reason = "id: must be a whole number of 64 bits"
    assert [one["rejected"] for one in found] == [
        *(None, None, None),
        {"step": 2, "type": "cast", "reason": reason},
        {"step": None, "type": "decode", "reason": NO_JSON.format(0)},
    ]


def test_digits_and_the_order_of_keys_survive(tmp_path: Path, capsys: Said) -> None:
    line = '{"metadata": {"n": 0.10}, "body": {"z": 1.10, "a": 12345678901234567890.5}}'
    assert preview(manifest(tmp_path), "--input", given(tmp_path, line), "--json") == 0
    assert capsys.readouterr().out == (
        f'{{"in":{line},"out":[{{"body":{{"z":1.10,"a":12345678901234567890.5}},'
        '"metadata":{"n":0.10},"route":null}],"rejected":null}\n'
    )


def test_a_key_text_inside_a_body_is_a_key(tmp_path: Path, capsys: Said) -> None:
    lines = [{"body": {"text": "a"}}, {"text": '{"id": "5"}'}, {"text": None}, {"text": ""}]
    path = manifest(tmp_path)
    assert preview(path, "--input", given(tmp_path, *lines), "--json") == 0
    outs = [one["out"][0] for one in results(capsys)]
    assert [one.get("body", "none") for one in outs] == [{"text": "a"}, {"id": 5}, "none", "none"]
    assert [one.get("text", "none") for one in outs] == ["none", "none", None, ""]


def test_json_that_cannot_be_kept_is_rejected_in_its_place(tmp_path: Path, capsys: Said) -> None:
    lines = [
        '{"body": {"a": "\\ud800"}, "metadata": {}}',
        f'{{"body": {"1" * 5000}}}',
        '{"base64": "/w=="}',
        f'{{"body": {"[" * 5000}{"]" * 5000}}}',
        '{"body": {}}',
    ]
    assert preview(manifest(tmp_path), "--input", given(tmp_path, *lines), "--json") == 0
    printed = capsys.readouterr().out.splitlines()
    assert all(
        line.startswith(f'{{"in":{one},"out":[') for line, one in zip(printed, lines, strict=True)
    )
    ends = [line.rpartition('"rejected":')[2] for line in printed]
    start = '{"step":null,"type":"decode","reason":"'
    assert ends == [
        f'{start}JSON that cannot be kept exactly: text with a lone surrogate"}}}}',
        f'{start}JSON that cannot be kept exactly: an integer too long"}}}}',
        f'{start}invalid UTF-8 at byte 0"}}}}',
        f'{start}nested too deeply"}}}}',
        "null}",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[1]",
        "5",
        '{"bodi": 1}',
        '{"metadata": {}}',
        '{"body": 1, "text": "x"}',
        '{"body": 1, "metadata": []}',
        '{"body": 1, "metadata": {"a": 1' + "0" * 5000 + "}}",
        '{"base64": "#"}',
        '{"text": 5}',
        '{"body": NaN}',
    ],
)
def test_a_line_that_is_no_record(tmp_path: Path, capsys: Said, line: str) -> None:
    file = given(tmp_path, {"body": 1}, "", line)
    assert preview(manifest(tmp_path), "--input", file, "--json") == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert f'{file}:3: must be {{"body": ..., "metadata": {{...}}}}, or {{"text"' in said.err


def test_standard_input_and_a_limit(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b'\xef\xbb\xbf{"body": 1}\n{"body": 2}\nnever read'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert preview(manifest(tmp_path), "--input", "-", "--json", "--limit", "2") == 0
    assert [one["out"][0]["body"] for one in results(capsys)] == [1, 2]


def test_the_way_through_the_steps(tmp_path: Path, capsys: Said) -> None:
    line = {"body": {"id": "2", "name": "a", "secret": "x"}, "metadata": {"key": "k"}}
    assert preview(manifest(tmp_path), "--input", given(tmp_path, line)) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        'record 1  {"key":"k"}',
        "    {",
        '      "id": "2"',
        '      "name": "a"',
        '      "secret": "x"',
        "    }",
        "[0] filter: unchanged",
        "[1] remove",
        '      "name": "a"',
        '  -   "secret": "x"',
        "    }",
        "[2] cast",
        "    {",
        '  -   "id": "2"',
        '  +   "id": 2',
        '      "name": "a"',
        "[3] router",
        '    metadata.key: "k"',
        """  + metadata.routed_condition: "$.id == '2'\"""",
        "-> memory/s/two  ($.id == '2')",
    ]
    assert "1 record: 1 passed on, 0 filtered, 0 rejected; nothing was stored" in said.err


def test_skipped_filtered_rejected_and_no_json(tmp_path: Path, capsys: Said) -> None:
    lines = [{"body": {"a": 1}}, {"body": {"draft": 1}}, {"body": {"id": "x"}}, {"text": "hi\x1b"}]
    assert preview(manifest(tmp_path), "--input", given(tmp_path, *lines)) == 0
    said = capsys.readouterr().out.splitlines()
    untouched = "[0] filter, [1] remove: unchanged"
    skipped = "[2] cast: skipped, as $.id does not hold"
    assert [line for line in said if not line.startswith("    ")] == [
        *("record 1", untouched, skipped, "[3] router: unchanged", "-> memory/s/people"),
        *("record 2", "[0] filter: filtered"),
        *("record 3", untouched),
        "[2] cast: rejected: id: must be a whole number of 64 bits",
        *("record 4", untouched, skipped, "[3] router: unchanged", "-> memory/s/people"),
        f"decode: rejected: {NO_JSON.format(0)}",
    ]
    assert '    text: "hi\\u001b"' in said


def test_a_record_that_becomes_several(tmp_path: Path, capsys: Said) -> None:
    lines = [{"body": {"rows": ["1", 2]}}, {"body": {"rows": [3, "x", 5]}}]
    assert preview(manifest(tmp_path, FLATTEN), "--input", given(tmp_path, *lines)) == 0
    said = capsys.readouterr().out.splitlines()
    telling = "record ", "[0]", "[1]", "[2]", "->"
    assert [line for line in said if line.strip().startswith(telling)] == [
        "record 1",
        "[0] flatten: 2 records",
        "    record 1 of 2",
        "    [1] filter: unchanged",
        "    [2] cast",
        "    -> memory/s/people",
        "    record 2 of 2",
        "    [1] filter: filtered",
        "record 2",
        "[0] flatten: 3 records",
        "    record 1 of 3",
        "    [1] filter, [2] cast: unchanged",
        "    record 2 of 3",
        "    [1] filter: unchanged",
        "    [2] cast: rejected: rows: must be a whole number of 64 bits",
    ]


def test_colours_on_a_terminal(tmp_path: Path) -> None:
    file = given(tmp_path, {"body": {"id": "7"}})
    command = [sys.executable, "-m", "dataflow_assets.cli", "preview", str(manifest(tmp_path))]
    master, slave = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    done = subprocess.run(
        [*command, "--input", file],
        stdout=slave,
        stderr=subprocess.PIPE,
        env={k: v for k, v in environment.items() if k != "NO_COLOR"},
        check=True,
    )
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert '\x1b[31m  -   "id": "7"\x1b[0m' in shown
    assert '\x1b[32m  +   "id": 7\x1b[0m' in shown
    assert b"\x1b" not in done.stderr


def test_no_steps_and_no_record(tmp_path: Path, capsys: Said) -> None:
    path = manifest(tmp_path, "[]")
    assert preview(path, "--input", given(tmp_path, {"body": {"a": 1}}, '{"base64": "/w=="}')) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        *("record 1", "    {", '      "a": 1', "    }", "-> memory/s/people"),
        *("record 2", '    {"base64": "/w=="}', "decode: rejected: invalid UTF-8 at byte 0"),
    ]
    assert "the flow has no steps" in said.err


def test_the_page_shows_what_is_printed(capsys: Said) -> None:
    page = (ROOT / "docs" / "preview.md").read_text()
    example = ROOT / "examples" / "orders-with-steps.yaml"
    file = str(example.with_suffix(".jsonl"))
    assert preview(example, "--input", file) == 0
    said = capsys.readouterr()
    assert f"```diff\n{said.out}```" in page
    assert said.err.rstrip() in page
    assert preview(example, "--input", file, "--json", "--limit", "1") == 0
    assert f"```json\n{capsys.readouterr().out}```" in page


def test_which_flow(tmp_path: Path, capsys: Said) -> None:
    manifest(tmp_path, "[]", "one")
    manifest(tmp_path, "[]", "two", store="other")
    file = given(tmp_path, {"body": 1})
    assert preview(tmp_path, "--input", file) == 1
    assert "which flow is meant; name one of: default/one, default/two" in capsys.readouterr().err
    assert preview(tmp_path, "--flow", "two", "--input", file, "--json") == 0
    assert len(results(capsys)) == 1
    assert preview(tmp_path, "--flow", "twoo", "--input", file) == 1
    assert "did you mean" in capsys.readouterr().err


def test_findings_are_exit_code_1_and_a_wrong_command_line_2(tmp_path: Path, capsys: Said) -> None:
    path = manifest(tmp_path, "[{type: cast, config: {spec: {a: int65}}}]")
    file = given(tmp_path, {"body": 1})
    assert preview(path, "--input", file) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{path}:7:" in said.err
    assert preview(path, "--input", str(tmp_path / "missing")) == 1
    for wrong in (["--limit", "0"], ["--limit", "x"], ["--nonsense"]):
        with pytest.raises(SystemExit) as ended:
            preview(path, *wrong)
        assert ended.value.code == 2


def test_a_missing_file(tmp_path: Path, capsys: Said) -> None:
    assert preview(manifest(tmp_path), "--input", str(tmp_path / "missing")) == 1
    assert "missing: cannot be read: No such file or directory" in capsys.readouterr().err


def test_what_is_printed_can_be_read_again() -> None:
    when = datetime(2026, 7, 20, 10, 0, 0, 250_000, tzinfo=UTC)
    for raw in (b'{"a":1.10}', b"null", b"hello", b"", None, b"\xff\x00", b'"\\ud800"'):
        line = write(raw, {"offset": 1, "timestamp": when})
        (message,) = read([line], "here")
        assert message.raw == raw
        assert message.metadata == {"offset": 1, "timestamp": "2026-07-20T10:00:00.25Z"}


def test_live_from_memory(tmp_path: Path, store: Store, capsys: Said) -> None:
    name = store.name
    path = manifest(tmp_path, store=name)
    assert preview(path, "--json") == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"memory/{name}/people: it holds no records" in said.err
    store.produce("people", 0, [b'{"id": "1"}', b"{bad"])
    store.produce("people", 1, [b'{"id": "3"}'])
    assert preview(path, "--json") == 0
    said = capsys.readouterr()
    found = [json.loads(line) for line in said.out.splitlines()]
    assert [one["in"] for one in found] == [
        {
            "body": {"id": "1"},
            "metadata": {"topic": "people", "partition": 0, "offset": 0, "key": ""},
        },
        {"text": "{bad", "metadata": {"topic": "people", "partition": 0, "offset": 1, "key": ""}},
        {
            "body": {"id": "3"},
            "metadata": {"topic": "people", "partition": 1, "offset": 0, "key": ""},
        },
    ]
    assert found[0]["out"][0]["body"] == {"id": 1}
    assert "the next 3 records after the place where the flow begins (never run)" in said.err


def test_live_from_a_table(tmp_path: Path, store: Store, capsys: Said) -> None:
    name = store.name
    sql = "insert into messages values ('people', 0, ?, null, ?)"
    for number in range(5):
        store.query(sql, number, f"name-{number}".encode())
    path = manifest(tmp_path, "[]", source="memory-parts", store=name)
    assert preview(path, "--json", "--limit", "2") == 0
    said = capsys.readouterr()
    bodies = [json.loads(line)["in"]["body"] for line in said.out.splitlines()]
    assert bodies == [{"id": 0, "name": "name-0"}, {"id": 1, "name": "name-1"}]
    assert "the next 2 records after the place where the flow begins (never run)" in said.err


@pytest.fixture
def people(
    tmp_path: Path,
    topic: Topics,
    kafka: devservers.Kafka,
    schema: str,
    postgresql: devservers.PostgreSQL,
) -> tuple[Path, str]:
    """A manifest on a topic of two partitions, and the topic's name."""
    name = topic(partitions=2, config={"retention.ms": "-1"})  # the records say they are old
    path = tmp_path / "people.yaml"
    path.write_text(
        KAFKA.format(bootstrap=kafka.bootstrap, topic=name, dsn=postgresql.dsn(), schema=schema)
    )
    return path, name


def send(kafka: devservers.Kafka, name: str, *ids: int, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, **more})
    if more:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in ids:
        body = b'{"id": "%d"}' % number
        when = 1_784_541_600_000 + number * 1000
        headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", b"2")]
        producer.produce(name, body, b"k", number % 2, timestamp=when, headers=headers)
    if more:
        producer.commit_transaction(30)
    assert producer.flush(20) == 0


def committed(kafka: devservers.Kafka, name: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": name})
    try:
        asked = [TopicPartition(name, partition) for partition in range(2)]
        return [found.offset for found in consumer.committed(asked, 20)]
    finally:
        consumer.close()


def checkpoint(dsn: str, schema: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", [schema]
        ).fetchall()
        rows: list[tuple[Any, ...]] = sorted(tables)
        if ("dataflow_checkpoint",) in tables:
            sql = f'SELECT t::text FROM "{schema}".dataflow_checkpoint t ORDER BY 1'
            rows += connection.execute(sql).fetchall()
        return rows


def numbers(said: Said) -> tuple[list[int], str]:
    shown = said.readouterr()
    found = [json.loads(line) for line in shown.out.splitlines()]
    return [one["out"][0]["body"]["id"] for one in found], shown.err


def test_live_from_kafka(
    people: tuple[Path, str],
    kafka: devservers.Kafka,
    postgresql: devservers.PostgreSQL,
    schema: str,
    spark_server: devservers.SparkConnect,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Said,
) -> None:
    monkeypatch.setenv("DATAFLOW_SPARK", spark_server.remote)
    path, name = people
    send(kafka, name, *range(6))
    before = checkpoint(postgresql.dsn(), schema)
    assert preview(path, "--json", "--limit", "3") == 0
    said = capsys.readouterr()
    first = json.loads(said.out.splitlines()[0])
    where = {"topic": name, "partition": 0, "offset": 0, "key": "k"}
    metadata = {**where, "timestamp": "2026-07-20T10:00:00Z", "headers": {"h": "2"}}
    assert first["in"] == {"body": {"id": "0"}, "metadata": metadata}
    ids = [json.loads(line)["out"][0]["body"]["id"] for line in said.out.splitlines()]
    assert ids == [0, 1, 2], "in the order of their time"
    assert "the next 3 records after the place where the flow begins (never run)" in said.err
    assert checkpoint(postgresql.dsn(), schema) == before
    assert committed(kafka, name) == [-1001, -1001]

    assert main(["run", str(path)]) == 0
    stored, offsets = checkpoint(postgresql.dsn(), schema), _settled(kafka, name)
    assert offsets == [3, 3]
    capsys.readouterr()
    send(kafka, name, 6, 7)
    assert preview(path, "--json") == 0
    ids, about = numbers(capsys)
    assert ids == [6, 7]
    assert "the next 2 records after the stored checkpoint" in about
    assert checkpoint(postgresql.dsn(), schema) == stored
    assert committed(kafka, name) == offsets

    assert main(["run", str(path)]) == 0
    stored, _ = checkpoint(postgresql.dsn(), schema), capsys.readouterr()
    assert preview(path, "--json", "--limit", "3") == 0
    ids, about = numbers(capsys)
    assert ids == [5, 6, 7]
    assert "nothing is waiting after the stored checkpoint; the last 3 records" in about
    assert checkpoint(postgresql.dsn(), schema) == stored


def _settled(kafka: devservers.Kafka, name: str) -> list[int]:
    """What a run has told the group; it is sent without waiting."""
    deadline = time.monotonic() + 10
    while (found := committed(kafka, name)) != [3, 3] and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def test_the_last_records_lie_before_markers_that_are_none(
    people: tuple[Path, str], kafka: devservers.Kafka, capsys: Said
) -> None:
    path, name = people
    text = path.read_text().replace("consumerGroup", "startingOffsets: latest, consumerGroup")
    path.write_text(text)
    for number in range(12):
        send(kafka, name, number, **{"transactional.id": name})
    assert preview(path, "--json", "--limit", "3") == 0
    ids, about = numbers(capsys)
    assert ids == [9, 10, 11]
    assert "the last 3 records" in about


def test_a_sink_that_is_down_does_not_hide_the_records(
    people: tuple[Path, str], kafka: devservers.Kafka, capsys: Said
) -> None:
    path, name = people
    lines = path.read_text().splitlines()
    dsn = "      connectionString: postgresql://u:hidden-word@127.0.0.1:9/d?connect_timeout=2"
    path.write_text("\n".join(dsn if "connectionString" in line else line for line in lines))
    send(kafka, name, 0)
    assert preview(path, "--json") == 0
    ids, about = numbers(capsys)
    assert ids == [0]
    assert "its checkpoint cannot be read" in about
    assert "hidden-word" not in about


def test_a_broker_that_is_down(
    people: tuple[Path, str], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    path, _ = people
    text = path.read_text()
    start = text.index('["')
    path.write_text(text.replace(text[start : text.index('"]')], '["127.0.0.1:9'))
    assert preview(path) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "kafka 127.0.0.1:9" in said.err
