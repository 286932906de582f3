"""Tables whose columns are those of a schema registry: Apicurio, Kafka and a store."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest

import devservers
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.formats.registry_client import RegistryClient
from dataflow_assets.manifests.load import load
from dataflow_assets.manifests.stored_tables import compare
from dataflow_assets.runs.request import Report, Request
from dataflow_assets.sdk.sql_table.rejected import entries_of
from tests.conftest import Topics
from tests.drained import drain_apart, draining
from tests.e2e.flows import produce
from tests.languages.tableflow.files import Bucket, Tableflow

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
Run = Callable[[Flow], list[Report]]
Schema = dict[str, Any]


def record(*fields: Schema | tuple[str, Any], name: str = "row") -> Schema:
    """An Avro record; a pair is a field's name and type."""
    inner = [{"name": f[0], "type": f[1]} if isinstance(f, tuple) else f for f in fields]
    return {"type": "record", "name": name, "fields": inner}


def optional(name: str, kind: Any) -> Schema:
    return {"name": name, "type": ["null", kind], "default": None}


DEVICE = record(("model", "string"), name="device")
WIDER = record(("model", "string"), optional("vendor", "string"), name="device")
FIRST = record(
    ("id", "int"),
    ("device", DEVICE),
    ("cookies", {"type": "array", "items": "string"}),
    ("attributes", {"type": "map", "values": "int"}),
    ("choice", ["long", "string"]),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
)
SECOND = record(
    ("id", "long"),
    optional("note", "string"),
    ("device", WIDER),
    ("attributes", {"type": "map", "values": "int"}),
    ("choice", ["long", "string"]),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
)
ROW = {
    "id": 1,
    "device": {"model": "m"},
    "cookies": ["a"],
    "attributes": {"x": 1},
    "choice": "c",
    "at": 1_700_000_000_000,
}


@dataclass
class Registered:
    """A file with one table of a registry's subject, and a producer that registers schemas."""

    file: Tableflow
    kafka: devservers.Kafka
    registry: RegistryClient

    @property
    def subject(self) -> str:
        return f"{self.file.topic}-value"

    def register(self, schema: Schema) -> int:
        return self.registry.register(self.subject, "AVRO", json.dumps(schema))

    def send(self, schema: Schema, rows: Iterable[Any]) -> None:
        """Each with the number of its schema, which is registered first."""
        head = b"\0" + self.register(schema).to_bytes(4, "big")
        produce(self.kafka, self.file.topic, [_written(schema, head, row) for row in rows])

    def ids(self) -> dict[str, int]:
        schema = self.file.bucket.table(self.file.name).schema()
        return {str(schema.find_column_name(number)): number for number in schema.field_ids}


def _written(schema: Schema, head: bytes, row: Any) -> bytes:
    out = io.BytesIO(head)
    out.seek(len(head))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


@pytest.fixture
def registered(
    tmp_path: Path,
    kafka: devservers.Kafka,
    topic: Topics,
    apicurio: devservers.Apicurio,
) -> Registered:
    bucket = Bucket(f"file://{tmp_path}/lake")
    file = Tableflow(tmp_path / "tableflow.yaml", kafka.bootstrap, topic(2), bucket)
    file.source_format, file.registry = "avro", apicurio.url
    return Registered(file, kafka, RegistryClient(apicurio.url))


FIRST_IDS = {
    "id": 1,
    "device": 2,
    "device.model": 3,
    "cookies": 4,
    "cookies.element": 5,
    "attributes": 6,
    "attributes.key": 7,
    "attributes.value": 8,
    "choice": 9,
    "at": 10,
}


def test_the_table_follows_the_registry_while_it_runs(registered: Registered) -> None:
    """New fields get the next ids, those that are gone stay, and nothing restarts."""
    flow = registered.file.write()
    registered.send(FIRST, [ROW])
    ran = draining(flow, Request(seconds=120))
    next(ran)
    assert registered.ids() == FIRST_IDS
    second = ROW | {"id": 2**40, "note": "n", "device": {"model": "m", "vendor": "v"}}
    registered.send(SECOND, [second])
    registered.send(FIRST, [ROW | {"id": 3}])
    while len(registered.file.rows()) < 3:
        next(ran)
    assert registered.ids() == FIRST_IDS | {"device.vendor": 11, "note": 12}
    rows = sorted(registered.file.rows(), key=lambda row: row["id"])
    assert [(r["id"], r["note"], r["cookies"], r["device"]) for r in rows] == [
        (1, None, ["a"], {"model": "m", "vendor": None}),
        (3, None, ["a"], {"model": "m", "vendor": None}),
        (2**40, "n", None, {"model": "m", "vendor": "v"}),
    ]
    assert {(r["choice"], *r["attributes"]) for r in rows} == {('"c"', ("x", 1))}
    schema = registered.file.bucket.table(registered.file.name).schema()
    assert [one.required for one in schema.fields] == [True, True, False, True, True, True, False]


def test_what_the_table_cannot_become_is_refused(registered: Registered, run: Run) -> None:
    """Also by `dataflow check`; and once that version is deleted, the flow goes on."""
    flow = registered.file.write()
    registered.send(record(("id", "long"), ("name", "string")), [{"id": 1, "name": "a"}])
    run(flow)
    registered.send(record(("id", "string"), ("name", "string")), [{"id": "x", "name": "b"}])
    message = (
        f"id is long in the table, and string in version 2 of subject {registered.subject}: "
        "delete that version in the registry, or give the field another name"
    )
    with pytest.raises(PermanentError, match=message):
        run(flow)
    (found,) = compare(load(registered.file.path)).findings
    assert found.path == "tables[0].schema_mode"
    assert found.message.startswith(message)
    assert [row["id"] for row in registered.file.rows()] == [1]


def test_partitions_keys_and_their_columns(registered: Registered, run: Run) -> None:
    terms = ["hour(_record_timestamp)", "bucket(2, id)"]
    flow = registered.file.write(more={"partition_by": terms})
    registered.send(record(("id", "long")), [{"id": number} for number in range(9)])
    run(flow)
    assert sorted(row["id"] for row in registered.file.rows()) == [*range(9)]
    table = registered.file.bucket.table(registered.file.name)
    assert [str(one.transform) for one in table.spec().fields] == ["hour", "bucket[2]"]
    assert registered.ids() == {"id": 1, "_record_timestamp": 2_000_000_000}
    registered.send(record(("id", "long"), optional("late", "int")), [{"id": 9, "late": 1}])
    run(flow)
    assert registered.ids() == {"id": 1, "late": 2, "_record_timestamp": 2_000_000_000}
    wrong = registered.file.write(more={"partition_by": ["bucket(2, other)"]})
    with pytest.raises(PermanentError, match="names column other, which the table lacks"):
        run(wrong)


def test_a_message_of_no_subject_of_the_table_is_rejected(registered: Registered, run: Run) -> None:
    """Its field would be lost: no version of the subject has it."""
    flow = registered.file.write()
    known = record(("id", "long"))
    registered.send(known, [{"id": number} for number in range(20)])
    other = record(("id", "long"), ("more", "string"))
    number = registered.registry.register(f"{registered.subject}-other", "AVRO", json.dumps(other))
    head = b"\0" + number.to_bytes(4, "big")
    bodies = [_written(other, head, {"id": 77, "more": "x"}), b"no head"]
    produce(registered.kafka, registered.file.topic, bodies)
    run(flow)
    assert sorted(row["id"] for row in registered.file.rows()) == [*range(20)]
    rejected = registered.file.rows(f"{registered.file.name}_rejected")
    assert len(rejected) == 2
    assert {one.body for one in entries_of(rejected, None, 99)} == set(bodies)


def test_there_is_no_table_before_there_is_a_subject(registered: Registered, run: Run) -> None:
    with pytest.raises(PermanentError, match=f"there is no subject {registered.subject}: register"):
        run(registered.file.write())


def test_each_record_is_stored_once_where_it_is_killed_while_the_table_follows(
    registered: Registered, run: Run
) -> None:
    """At the commit of new columns, of the epoch, and of the rows, each behind another version."""
    flow = registered.file.write()
    fields: list[Any] = [("id", "long")]
    for turn in range(4):
        registered.send(record(*fields), [{"id": 10 * turn + n, "late": turn} for n in range(10)])
        if turn == 0:
            run(flow)
            fields.append(optional("late", "int"))
            continue
        step = f"iceberg.bucket-committed:kill:{turn}"
        assert drain_apart(str(registered.file.path), failpoint=step) == -signal.SIGKILL
        fields.append(optional(f"more_{turn}", "string"))
    run(flow)
    rows = sorted(registered.file.rows(), key=lambda row: row["id"])
    assert [(r["id"], r["late"]) for r in rows] == [(n, n // 10 or None) for n in range(40)]
    assert registered.ids() == {"id": 1, "late": 2, "more_1": 3, "more_2": 4}


def properties(**given: Any) -> Schema:
    """A JSON Schema of an object with these properties; `id` is required."""
    return {"type": "object", "properties": given, "required": ["id"]}


def test_json_messages_have_the_columns_of_their_json_schemas(
    registered: Registered, run: Run
) -> None:
    """With the id of their schema and without; the table follows, and refuses, as with Avro."""
    registered.file.source_format = "json"
    flow = registered.file.write()
    integer, text = {"type": "integer"}, {"type": ["string", "null"]}
    head = _json(registered, properties(id=integer, at={"type": "string", "format": "date-time"}))
    sent = [head + b'{"id": 1, "at": "2026-11-25T10:00:00Z"}', b'{"id": 2}']
    produce(registered.kafka, registered.file.topic, [*sent, b'{"id": 3, "unknown": 1}'])
    run(flow)
    assert registered.ids() == {"id": 1, "at": 2}
    rejected = registered.file.rows(f"{registered.file.name}_rejected")
    assert [one.body for one in entries_of(rejected, None, 99)] == [b'{"id": 3, "unknown": 1}']
    inner = {"type": "object", "properties": {"note": text}}
    head = _json(registered, properties(id=integer, tags={"type": "array", "items": inner}))
    produce(registered.kafka, registered.file.topic, [head + b'{"id": 4, "tags": [{"note": "n"}]}'])
    run(flow)
    names = {"tags": 3, "tags.element": 4, "tags.element.note": 5}
    assert registered.ids() == {"id": 1, "at": 2} | names
    rows = sorted(registered.file.rows(), key=lambda row: row["id"])
    assert [(row["id"], row["tags"]) for row in rows] == [
        (1, None), (2, None), (4, [{"note": "n"}]),
    ]  # fmt: skip
    assert rows[0]["at"].isoformat() == "2026-11-25T10:00:00+00:00"
    _json(registered, properties(id=text))
    with pytest.raises(PermanentError, match="id is long in the table, and string in version 3"):
        run(flow)


def test_schemas_of_another_kind_are_refused(registered: Registered, run: Run) -> None:
    registered.file.source_format = "json"
    flow = registered.file.write()
    registered.register(record(("id", "long")))
    with pytest.raises(PermanentError, match="is of type AVRO, and not JSON Schema"):
        run(flow)


def _json(registered: Registered, schema: Schema) -> bytes:
    """The head of messages of a JSON Schema, which is registered."""
    number = registered.registry.register(registered.subject, "JSON", json.dumps(schema))
    return b"\0" + number.to_bytes(4, "big")
