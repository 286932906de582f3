"""Aggregates of the Kinesis Producer Library: each user record in them is a message."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.connectors.kinesis.aggregates import deaggregate
from dataflow_assets.connectors.kinesis.client import HashKeys, KinesisRecord
from dataflow_assets.contracts import REFUSED_ROW, Limit, PartSlice, system_name
from dataflow_assets.micro_batch.formatted import refusing, without_refused
from dataflow_assets.micro_batch.forward import forward
from dataflow_assets.micro_batch.originals import OriginalMessages
from dataflow_assets.micro_batch.places import Places
from tests.connectors.files import driver as files
from tests.connectors.kinesis.aggregate import MAGIC, UserRecord, aggregate, sealed
from tests.connectors.kinesis.driver import SHARDS, Stream
from tests.connectors.kinesis.test_source import Reader
from tests.drained import drain_file
from tests.flows import manifest

LOW, HIGH = 5, (1 << 128) - 5  # hash keys of the first and of the last shard


@pytest.fixture
def stream(kinesis: devservers.Kinesis) -> Iterator[Stream]:
    made = Stream(kinesis, shards=1)
    yield made
    made.remove()


def objects(low: int, high: int) -> list[UserRecord]:
    return [("k", b'{"id": %d}' % number) for number in range(low, high)]


def test_each_user_record_has_a_key_and_a_number_of_its_own(stream: Stream) -> None:
    packed: list[UserRecord] = [("k", b"one"), ("é", b"two", 7), ("k", b"")]
    stream.put([b"before", aggregate(packed), b"behind"], lambda _: "outer")
    reader = Reader(stream)
    rows = reader.rows(reader.plan())
    assert [(row["key"].decode(), row["body"]) for row in rows] == [
        *[("outer", b"before"), ("k", b"one"), ("é", b"two"), ("k", b""), ("outer", b"behind")]
    ]
    numbers = [row[system_name("sequenceNumber")] for row in rows]
    assert [number.partition("-")[2] for number in numbers] == ["", "0", "1", "2", ""]
    assert len({number.partition("-")[0] for number in numbers}) == 3
    assert [row[system_name("place")]["record"] for row in rows] == numbers


def test_an_envelope_is_of_one_user_record(stream: Stream) -> None:
    stream.put([aggregate([("k", b"\xff one"), ("k", b"two")])])
    reader = Reader(stream, envelope=True)
    rows = reader.rows(reader.plan())
    found = [json.loads(row["body"]) for row in rows]
    assert [base64.b64decode(one["data"]) for one in found] == [b"\xff one", b"two"]
    assert [one["sequenceNumber"][-2:] for one in found] == ["-0", "-1"]
    assert {one["partitionKey"] for one in found} == {"k"}


@pytest.mark.parametrize(("limit", "spans"), [(1, [10] * 5), (25, [20, 20, 10]), (99, [50])])
def test_a_limit_counts_user_records_and_no_aggregate_is_cut(
    stream: Stream, limit: int, spans: list[int]
) -> None:
    stream.put([aggregate(objects(at, at + 10)) for at in range(0, 50, 10)])
    reader, found = Reader(stream), list[int]()
    assert reader.session.lag(reader.positions).records == 50
    (whole,) = reader.plan().slices
    parts = reader.session.smaller(whole, Limit(limit))  # type: ignore[arg-type]
    assert [json.loads(part)["messages"] for part in parts] == spans
    while not (span := reader.plan(Limit(limit))).empty:
        found.append(len(reader.take(span)))
    assert found == spans
    assert reader.session.lag(reader.positions).records == 0


def test_what_is_of_another_shard_is_left_out_and_counted(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """The library packs by the shards it knows, and sends again what was not of the shard."""
    stream.put([aggregate([("k", b"before", LOW), ("k", b"there", HIGH)])])
    stream.split(SHARDS[0])
    arrived = aggregate([("k", b"low", LOW), ("k", b"high", HIGH)])
    again = aggregate([("k", b"high", HIGH)])
    for data, key in ((arrived, LOW), (again, HIGH)):
        stream.client.put_record(
            StreamName=stream.name, Data=data, PartitionKey="a", ExplicitHashKey=str(key)
        )
    with caplog.at_level(logging.WARNING):
        assert sorted(Reader(stream).rest()) == [b"before", b"high", b"low", b"there"]
    assert "1 user records in aggregates of shard shardId-000000000001 of" in caplog.text


def test_a_part_that_an_earlier_version_recorded_is_read(stream: Stream) -> None:
    stream.put([aggregate(objects(0, 3))])
    reader = Reader(stream)
    (piece,) = reader.plan().slices
    assert isinstance(piece, PartSlice)
    known = json.loads(piece.part)
    old = {name: value for name, value in known.items() if name not in ("messages", "hash_keys")}
    assert old.keys() < known.keys()
    batches = reader.source.batches(replace(piece, part=json.dumps(old)), frozenset())
    assert [body.as_py() for one in batches for body in one["body"]] == [
        data for _, data, *_ in objects(0, 3)
    ]


DAMAGED = {
    "cut off": aggregate(objects(0, 2))[:-1],
    "too short": MAGIC,
    "altered": aggregate(objects(0, 2)).replace(b'"id": 1', b'"id": 7'),
    "no Protobuf": sealed(b"\x1a\xff"),
    "no data": sealed(b"\x0a\x01k\x1a\x02\x08\x00"),
    "no such key": sealed(b"\x0a\x01k\x1a\x04\x08\x01\x1a\x00"),
    "a key that is no text": sealed(b"\x0a\x01\xff\x1a\x04\x08\x00\x1a\x00"),
    "a hash key that is no number": sealed(b"\x0a\x01k\x12\x01x\x1a\x06\x08\x00\x10\x00\x1a\x00"),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_aggregate_is_one_refused_record(data: bytes) -> None:
    (found,) = deaggregate(KinesisRecord("1", "k", data, 0), HashKeys()).records
    assert (found.sequence, found.data) == ("1", data)
    assert found.refused.startswith("a damaged aggregate: its c")


@pytest.mark.parametrize(
    ("options", "steps"),
    [({}, []), ({"envelope": True}, []), ({}, [{"type": "mask", "config": {"fields": ["x"]}}])],
    ids=["columns", "envelope", "steps"],
)
def test_a_damaged_aggregate_is_rejected_and_its_neighbours_stored(
    stream: Stream, tmp_path: Path, options: dict[str, Any], steps: list[Any]
) -> None:
    good = [aggregate(objects(0, 2)), aggregate(objects(2, 4))]
    stream.put([good[0], DAMAGED["altered"], good[1]])
    sink = files.on_disk(tmp_path / "out")
    path = manifest(
        tmp_path,
        ("kinesis", stream.config | options),
        ("files", sink),
        transformations=steps,
        onRejected="table",
    )
    drain_file(str(path))
    (rejected,) = [row for file in files.lines(files.folder(sink), rejected=True) for row in file]
    assert "a damaged aggregate: its checksum is not that of its content" in json.dumps(rejected)
    rows = [row for file in files.lines(files.folder(sink)) for row in file]
    assert len(rows) == 4


def test_a_damaged_aggregate_is_not_forwarded_as_it_is() -> None:
    """By a sink that takes messages, whatever their bytes are."""
    columns = {"body": [b"a", MAGIC, b"b"], REFUSED_ROW: [None, "damaged", None]}
    batch = pa.RecordBatch.from_pydict(
        columns, pa.schema([("body", pa.binary()), (REFUSED_ROW, pa.string())])
    )
    readable, refused = without_refused(batch)
    offsets, places = pa.array([4, 5, 6]), Places(PartSlice("stream", "part", ""))
    sent = OriginalMessages(offsets, readable, places=places)
    original = OriginalMessages(offsets, batch, places=places)
    chunk = refusing(forward(readable, sent, "reject"), refused, original)
    assert chunk.rows.column("value").to_pylist() == [b"a", b"b"]
    (rejected,) = chunk.rejected
    assert (rejected.offset, rejected.reason, rejected.body) == (5, "damaged", MAGIC)


def test_what_is_undecodable_beside_a_refused_record_is_of_the_stage_of_decoding(
    stream: Stream, tmp_path: Path
) -> None:
    """A replay decodes it again, once its schema was corrected."""
    stream.put([DAMAGED["altered"], b"\x02\x02a", b"\x04"])
    fields = [{"name": "id", "type": "int"}, {"name": "v", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    sink = files.on_disk(tmp_path / "out")
    source = {**stream.config, "format": "avro", "avroSchema": schema}
    path = manifest(
        tmp_path,
        ("kinesis", source),
        ("files", sink),
        transformations=[{"type": "mask", "config": {"fields": ["x"]}}],
        onRejected="table",
        maxRejectedPercent=100,
    )
    drain_file(str(path))
    rejected = [row for file in files.lines(files.folder(sink), rejected=True) for row in file]
    assert sorted(row["error"]["stage"] for row in rejected) == ["decode", "source"]


@pytest.mark.parametrize("steps", [[], [{"type": "mask", "config": {"fields": ["x"]}}]], ids=str)
def test_a_shard_with_nothing_but_records_of_others_goes_on(
    kinesis: devservers.Kinesis, tmp_path: Path, steps: list[Any]
) -> None:
    stream, half = Stream(kinesis, shards=2), 1 << 127
    foreign = aggregate([("k", b'{"id":1}', half + 5)])
    sink = files.on_disk(tmp_path / "out")
    path = manifest(tmp_path, ("kinesis", stream.config), ("files", sink), transformations=steps)
    for body in (foreign, b'{"id":2}'):
        to_first = {"PartitionKey": "a", "ExplicitHashKey": "5"}
        stream.client.put_record(StreamName=stream.name, Data=body, **to_first)
        drain_file(str(path))
    rows = [row for file in files.lines(files.folder(sink)) for row in file]
    assert [row["id"] for row in rows] == [2]
    stream.remove()
