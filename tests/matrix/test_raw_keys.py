"""Raw mode with upserts: whole bodies of which the last of a key stands, the key being metadata."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import Loaded, load
from dataflow_assets.runs.request import Start
from dataflow_assets.testing import choose
from tests.connectors.kafka.system import Kafka
from tests.drained import drained
from tests.flows import SYSTEMS
from tests.systems import Change, Config, Row, System

SINKS = ("postgresql", "clickhouse", "iceberg", pytest.param("trino", marks=pytest.mark.full))
CHANGES = [
    Change("insert", {"id": 1, "name": "a"}),
    Change("insert", {"id": 2, "name": "b"}),
    Change("insert", {"id": 3, "name": "c"}),
    Change("update", {"id": 1, "name": "A"}),
    Change("delete", {"id": 3}),
]


@dataclass
class Raw:
    """A flow from a topic into a raw table."""

    source: Kafka
    sink: System
    config: dict[str, Config]
    path: Path
    name: str = field(default_factory=lambda: f"raw-{uuid.uuid4().hex[:8]}")

    def load(self, **spec: Any) -> Loaded:
        ends = {"source": self.source, "sink": self.sink}
        spec |= {
            role: {"type": end.type, "config": self.config[role]} for role, end in ends.items()
        }
        head = {"apiVersion": "dataflow.dataflow.io/v1", "kind": "DataFlow"}
        meta = {"name": self.name}
        self.path.write_text(json.dumps({**head, "metadata": meta, "spec": spec}))
        return load(self.path)

    def drain(self, start: Start | None = None, **spec: Any) -> list[Row]:
        drained(choose(self.load(**spec), None), start)
        return self.rows()

    def rows(self) -> list[Row]:
        return self.sink.rows(self.config["sink"])


@pytest.fixture(params=SINKS)
def raw(request: pytest.FixtureRequest, tmp_path: Path) -> Raw:
    return made(request, request.param, tmp_path)


def made(request: pytest.FixtureRequest, type_: str, folder: Path) -> Raw:
    source, sink = Kafka(request), SYSTEMS[type_](request)
    options = {**(sink.upsert or {}), "rawMode": True, "conflictKey": "key"}
    config = {
        "source": source.at("source", {"tombstones": "delete"}),
        "sink": sink.at("sink", options | {"autoCreateTable": True}),
    }
    return Raw(source, sink, config, folder / "raw.yaml")


def parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


@pytest.mark.parametrize("flat", [False, True], ids=["metadata in one column", "flat"])
def test_the_last_body_of_a_key_stands(raw: Raw, flat: bool) -> None:
    raw.config["sink"] |= {"flattenMetadataColumns": True} if flat else {}
    assert not [hint for hint in raw.load().hints if hint.path.endswith("conflictKey")]
    raw.source.change(raw.config["source"], CHANGES[:3])
    raw.drain()
    raw.source.change(raw.config["source"], CHANGES[3:])
    rows = raw.drain()
    found = {row["key"]: parsed(row["data"]) for row in rows}
    assert len(rows) == len(found)
    assert found == {'{"id":1}': {"id": 1, "name": "A"}, '{"id":2}': {"id": 2, "name": "b"}}
    topics = {row["topic"] if flat else parsed(row["_metadata"])["topic"] for row in rows}
    assert topics == {raw.config["source"]["topic"]}


def test_a_topic_that_is_read_again_by_its_offsets_gives_the_same_rows(raw: Raw) -> None:
    raw.config["source"]["tombstones"] = "skip"
    raw.config["sink"]["conflictKey"] = ["topic", "partition", "offset"]
    raw.source.change(raw.config["source"], CHANGES)
    first = raw.drain()
    assert len(first) == 4
    again = raw.drain(Start("earliest"))
    order = ("partition", "offset")
    assert [{name: row[name] for name in order} for row in sorted(again, key=place)] == [
        {name: row[name] for name in order} for row in sorted(first, key=place)
    ]


def place(row: Row) -> tuple[int, int]:
    return row["partition"], row["offset"]


def test_a_record_without_the_metadata_of_its_key_is_rejected(raw: Raw) -> None:
    """A field of the body is no metadata, but for a body with metadata of its own."""
    raw.config["sink"]["conflictKey"] = "id"
    (note,) = (one for one in raw.load().hints if one.path.endswith("conflictKey"))
    assert "id is none that this source gives (it gives topic, partition, offset, key" in (
        note.message
    )
    wrapped = json.dumps({"value": {"n": 1}, "_metadata": {"id": 7}}).encode()
    raw.source.send(raw.config["source"], wrapped)
    drained(choose(raw.load(), None))
    raw.source.send(raw.config["source"], b'{"id": 8}')
    with pytest.raises(PermanentError, match="its metadata has no id, by which rows are matched"):
        raw.drain()
    assert [parsed(row["data"]) for row in raw.rows()] == [{"n": 1}]


def test_an_empty_key_is_none(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Records of a topic without keys would all be one row."""
    from confluent_kafka import Producer

    raw = made(request, "postgresql", tmp_path)
    raw.source.change(raw.config["source"], CHANGES[:1])
    raw.drain()
    producer = Producer({"bootstrap.servers": raw.config["source"]["brokers"][0]})
    producer.produce(raw.config["source"]["topic"], b'{"id": 9}')
    assert producer.flush(30) == 0
    with pytest.raises(PermanentError, match="its metadata has no key, by which rows are matched"):
        raw.drain()
    assert len(raw.rows()) == 1


def test_a_table_cannot_be_made_of_metadata_that_no_record_has(raw: Raw) -> None:
    raw.config["sink"]["conflictKey"] = "id"
    raw.source.change(raw.config["source"], CHANGES[:2])
    with pytest.raises(PermanentError, match="the metadata of the first records has no id, by"):
        drained(choose(raw.load(), None))


def test_a_table_without_the_column_of_the_key_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    raw = made(request, "postgresql", tmp_path)
    table = raw.config["sink"]["table"]
    with psycopg.connect(request.getfixturevalue("postgresql").dsn()) as connection:
        connection.execute(f"create table {table} (data jsonb, _metadata jsonb)".encode())
    raw.source.change(raw.config["source"], CHANGES[:1])
    with pytest.raises(PermanentError, match="has no column key; it has data, _metadata"):
        raw.drain()


def test_keys_that_are_no_text_are_rejected(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """As text several of them would be one key."""
    from confluent_kafka import Producer

    raw = made(request, "postgresql", tmp_path)
    producer = Producer({"bootstrap.servers": raw.config["source"]["brokers"][0]})
    for key in (b"ok", b"\x80a", b"\x81a"):
        producer.produce(raw.config["source"]["topic"], b'{"id": 9}', key, partition=0)
    assert producer.flush(30) == 0
    rows = raw.drain(onRejected="skip", maxRejectedPercent=100)
    assert [row["key"] for row in rows] == ["ok"]
