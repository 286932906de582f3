"""What is read of a stream: from where, in which order, and what becomes of shards."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.kinesis import KinesisSource, client
from dataflow_assets.connectors.kinesis.client import KinesisStream as Connected
from dataflow_assets.connectors.kinesis.errors import KinesisFailure
from dataflow_assets.connectors.kinesis.source import data_loss, planning, session
from dataflow_assets.connectors.kinesis.source.session import STREAM, KinesisSourceSession
from dataflow_assets.contracts import Limit, Positions, Span, system_name
from dataflow_assets.errors import Outdated, PermanentError, TransientError
from tests.connectors.kinesis.driver import SHARDS, Stream

ALL = Limit()
DAY = 24 * 3_600_000  # milliseconds


@pytest.fixture
def stream(kinesis: devservers.Kinesis) -> Iterator[Stream]:
    made = Stream(kinesis)
    yield made
    made.remove()


class Reader:
    """Reads a stream as a flow does, span by span, without a sink."""

    def __init__(self, stream: Stream, positions: Positions | None = None, **options: Any) -> None:
        self.source = KinesisSource.model_validate(stream.config | options)
        session = self.source.open("reader")
        assert isinstance(session, KinesisSourceSession)
        self.session = session
        self.positions = self.session.start() if positions is None else positions
        self.shards: list[str] = []

    def plan(self, limit: Limit = ALL, until: Positions | None = None) -> Span:
        return self.session.plan(self.positions, limit, until)

    def rows(self, span: Span) -> list[dict[str, Any]]:
        return [
            row
            for piece in span.slices
            for batch in self.source.batches(piece, self.source.metadata_columns)
            for row in batch.to_pylist()
        ]

    def take(self, span: Span) -> list[bytes]:
        """Reads and commits it."""
        rows = self.rows(span)
        self.shards += [row[system_name("shardId")] for row in rows]
        self.positions = self.session.fold({**self.positions, **span.upto})
        return [row["body"] for row in rows]

    def rest(self, limit: Limit = ALL) -> list[bytes]:
        """All that there is."""
        found: list[bytes] = []
        while not (span := self.plan(limit)).empty:
            found += self.take(span)
        return found


def numbers(low: int, high: int) -> list[bytes]:
    return [b"%d" % number for number in range(low, high)]


def test_a_record_has_its_key_its_time_and_its_place(stream: Stream) -> None:
    before = datetime.now(UTC)
    stream.put([b'{"id": 1}'], lambda _: "customer 7")
    reader = Reader(stream)
    (row,) = reader.rows(reader.plan())
    shard = row[system_name("shardId")]
    assert shard in SHARDS
    assert len(row[system_name("sequenceNumber")]) == 56
    assert (row["body"], row["key"]) == (b'{"id": 1}', b"customer 7")
    assert abs((row["timestamp"] - before).total_seconds()) < 30
    assert row[system_name("place")] == {
        "shard": shard,
        "record": row[system_name("sequenceNumber")],
    }


def test_an_envelope_has_the_data_in_base64_and_what_names_the_record(stream: Stream) -> None:
    stream.put([b"\xff\x00 no text"], lambda _: "k")
    reader = Reader(stream, envelope=True)
    (row,) = reader.rows(reader.plan())
    assert json.loads(row["body"]) == {
        "partitionKey": "k",
        "sequenceNumber": row[system_name("sequenceNumber")],
        "shardId": row[system_name("shardId")],
        "data": base64.b64encode(b"\xff\x00 no text").decode(),
    }


def test_a_span_has_a_part_for_each_shard_and_no_more_than_the_limit(stream: Stream) -> None:
    stream.put(numbers(0, 50))
    reader = Reader(stream)
    spans = []
    while not (span := reader.plan(Limit(records=7))).empty:
        spans.append((len(reader.take(span)), len(span.slices), span.full))
    assert sum(rows for rows, _, _ in spans) == 50
    assert all(rows <= 7 * parts <= 14 for rows, parts, _ in spans)
    assert [full for *_, full in spans] == [True] * (len(spans) - 1) + [False]
    bytes_bound = Reader(stream).plan(Limit(bytes=5))
    assert [json.loads(p.part)["bytes"] <= 5 for p in bytes_bound.slices] == [True, True]  # type: ignore[union-attr]


def test_one_record_is_read_however_large_it_is(stream: Stream) -> None:
    stream.put([b"x" * 900_000, b"y" * 900_000], lambda _: "k")
    reader = Reader(stream)
    assert [len(body) for body in reader.take(reader.plan(Limit(bytes=1)))] == [900_000]
    assert [len(body) for body in reader.rest()] == [900_000]


def test_shards_that_were_split_and_merged_keep_the_order_of_each_key(stream: Stream) -> None:
    """Each key has numbers that grow; parents are read to their end before their children."""
    keys = [f"key {number}" for number in range(8)]

    def put(low: int, high: int) -> None:
        bodies = [b"%d %d" % (number % 8, number) for number in range(low, high)]
        stream.put(bodies, lambda n: keys[(low + n) % 8])

    reader, found = Reader(stream), list[bytes]()
    put(0, 40)
    found += reader.take(reader.plan(Limit(records=5)))
    stream.split(SHARDS[0])
    put(40, 80)
    stream.split(SHARDS[1])
    put(80, 120)
    middle = sorted(
        (one for one in stream.shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]),
        key=lambda one: int(one["HashKeyRange"]["StartingHashKey"]),
    )[1:3]
    stream.merge(*(one["ShardId"] for one in middle))
    put(120, 160)
    found += reader.rest(Limit(records=5))
    rows = [tuple(map(int, body.split())) for body in found]
    assert sorted(number for _, number in rows) == list(range(160))
    for key in range(8):
        assert [n for k, n in rows if k == key] == list(range(key, 160, 8)), f"key {key}"
    parents = {s["ShardId"]: s for s in stream.shards if "ParentShardId" in s}
    assert len(parents) == 5
    for child, one in parents.items():
        for parent in (one["ParentShardId"], one.get("AdjacentParentShardId")):
            if child in reader.shards and parent in reader.shards:
                last = len(reader.shards) - 1 - reader.shards[::-1].index(parent)
                assert reader.shards.index(child) > last, f"{child} was read before {parent} ended"


def test_children_of_shards_without_records_are_read_at_once(stream: Stream) -> None:
    stream.split(SHARDS[0])
    stream.split(SHARDS[2])
    reader = Reader(stream)
    stream.put(numbers(0, 30))
    assert sorted(map(int, reader.take(reader.plan()))) == list(range(30))
    assert len(reader.session.lag(reader.positions).ends) == 1


@pytest.mark.parametrize("another", [False, True], ids=["same session", "another session"])
def test_a_look_from_elsewhere_finds_what_children_have(stream: Stream, another: bool) -> None:
    """A sensor's session has its list of shards from before the split."""
    reader, sensor = Reader(stream), Reader(stream).session
    stream.put(numbers(0, 10))
    reader.rest()
    stream.split(SHARDS[0])
    stream.split(SHARDS[1])
    stream.put(numbers(10, 20))
    looking = sensor if another else reader.session
    assert looking.lags(STREAM, reader.positions[STREAM], looking.end()[STREAM])
    assert looking.lag(reader.positions).records == 10
    assert sorted(map(int, reader.rest())) == list(range(10, 20))
    assert not looking.lags(STREAM, reader.positions[STREAM], looking.end()[STREAM])


def test_where_a_flow_begins(stream: Stream) -> None:
    stream.put([b"old"])
    time.sleep(1.1)  # the service tells whole seconds
    moment = datetime.now(UTC).isoformat()
    timed: dict[str, Any] = {"startingPosition": "AT_TIMESTAMP", "startingTimestamp": moment}
    latest = Reader(stream, startingPosition="LATEST")
    stream.put([b"new"])
    assert latest.rest() == [b"new"]
    assert Reader(stream, **timed).rest() == [b"new"]
    assert sorted(Reader(stream).rest()) == [b"new", b"old"]
    seeking = Reader(stream)
    time.sleep(1.1)
    for where, rows in (("earliest", 2), ("latest", 0), (moment, 1)):
        seeking.positions = seeking.session.start(where)
        assert len(seeking.rest()) == rows, where
    timed["startingTimestamp"] = "2020-01-01T00:00:00Z"
    assert len(Reader(stream, **timed).rest()) == 2


def test_an_end_stops_before_what_arrives_later(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SLACK", 0)
    reader = Reader(stream)
    stream.put(numbers(0, 10))
    time.sleep(0.05)
    end = reader.session.end()
    time.sleep(0.05)
    stream.put(numbers(10, 20))
    assert reader.session.lags(STREAM, reader.positions[STREAM], end[STREAM])
    assert sorted(map(int, reader.take(reader.plan(until=end)))) == list(range(10))
    assert not reader.session.lags(STREAM, reader.positions[STREAM], end[STREAM])
    assert reader.plan(until=end).empty
    assert len(reader.rest()) == 10


def test_another_reader_s_position_is_a_bound(stream: Stream) -> None:
    ahead, late = Reader(stream), Reader(stream)
    stream.put(numbers(0, 20))
    bodies = ahead.take(ahead.plan(Limit(records=4)))
    assert late.session.lags(STREAM, late.positions[STREAM], ahead.positions[STREAM])
    assert late.take(late.plan(until=ahead.positions)) == bodies
    assert not late.session.lags(STREAM, late.positions[STREAM], ahead.positions[STREAM])
    assert late.plan(until=ahead.positions).empty


def test_a_part_is_cut_into_smaller_ones_with_the_same_records(stream: Stream) -> None:
    stream.put(numbers(0, 20), lambda _: "k")
    reader = Reader(stream)
    (piece,) = reader.plan().slices
    smaller = reader.session.smaller(piece, Limit(records=6))  # type: ignore[arg-type]
    assert [json.loads(part)["records"] for part in smaller] == [6, 6, 6, 2]
    assert reader.rows(Span.of_parts("", smaller)) == reader.rows(Span((piece,)))
    assert reader.session.smaller(piece, Limit(records=20)) == (piece.part,)  # type: ignore[arg-type, union-attr]
    assert reader.session.renew(piece, Limit(records=6)) == (piece.part,)  # type: ignore[arg-type, union-attr]


def test_of_very_many_shards_those_come_next_that_had_to_wait(
    kinesis: devservers.Kinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MOST_SHARDS", 4)
    stream = Stream(kinesis, shards=10)
    stream.put(numbers(0, 200))
    reader, found, spans = Reader(stream), list[bytes](), list[set[str]]()
    for _ in range(3):
        span = reader.plan(Limit(records=5))
        assert span.full
        spans.append({json.loads(piece.part)["shard"] for piece in span.slices})  # type: ignore[union-attr]
        found += reader.take(span)
    assert len(set.union(*spans)) == 10
    assert sorted(map(int, found + reader.rest())) == list(range(200))
    stream.remove()


def shifted(monkeypatch: pytest.MonkeyPatch, milliseconds: int) -> None:
    """The clock of this machine goes on by so much."""
    for module in (planning, session, data_loss):
        monkeypatch.setattr(module, "now", lambda: round(time.time() * 1_000) + milliseconds)


def test_records_that_retention_removed_before_they_were_read_are_an_error(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.put(numbers(0, 30), lambda _: "k")
    reader = Reader(stream)
    read = reader.take(reader.plan(Limit(records=10)))
    stream.trim(reader.rows(reader.plan())[5][system_name("sequenceNumber")])
    shifted(monkeypatch, DAY + 60_000)
    with pytest.raises(PermanentError, match=r"may have been removed before they were read: .+24"):
        reader.plan()
    going_on = Reader(stream, reader.positions, onDataLoss="continue")
    assert len(read + going_on.rest()) == 25


def test_a_stream_that_keeps_records_for_less_than_when_it_was_opened_loses_none_in_silence(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane has a session open for hours; so it hears of another stream of the name, too."""
    stream.put(numbers(0, 30), lambda _: "k")
    reader = Reader(stream)
    reader.take(reader.plan(Limit(records=10)))
    stream.trim(reader.rows(reader.plan())[5][system_name("sequenceNumber")])
    known = Connected(reader.source).describe()
    shifted(monkeypatch, 2 * 3_600_000)
    hour = replace(known, retention=3_600_000)
    monkeypatch.setattr(Connected, "describe", lambda _: hour)
    with pytest.raises(
        PermanentError, match=r"may have been removed before they were read: .+ 1 h"
    ):
        reader.plan()
    shifted(monkeypatch, 4 * 3_600_000)
    other = replace(known, identity="another")
    monkeypatch.setattr(Connected, "describe", lambda _: other)
    with pytest.raises(TransientError, match="was deleted and created again while it was read"):
        reader.plan()


def test_a_reader_far_behind_hears_of_a_shorter_retention_before_records_go(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream keeps a day at least: a younger position needs no second question so soon."""
    stream.put(numbers(0, 30), lambda _: "k")
    reader = Reader(stream)
    reader.take(reader.plan(Limit(records=10)))
    known, asked = Connected(reader.source).describe(), list[int]()

    def keep(days: int) -> None:
        def describe(_: Connected) -> client.Description:
            asked.append(days)
            return replace(known, retention=days * DAY)

        monkeypatch.setattr(Connected, "describe", describe)

    keep(7)
    for young in (0, 120_000):
        shifted(monkeypatch, 3_600_000 + young)
        reader.plan()
    shifted(monkeypatch, 2 * DAY)
    reader.plan()
    assert asked == [7, 7]
    stream.trim(reader.rows(reader.plan())[5][system_name("sequenceNumber")])
    keep(1)
    shifted(monkeypatch, 2 * DAY + 120_000)
    with pytest.raises(PermanentError, match=r"may have been removed before they were read: .+24"):
        reader.plan()


def test_an_old_position_whose_record_is_still_there_has_lost_nothing(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.put(numbers(0, 30), lambda _: "k")
    reader = Reader(stream)
    read = reader.take(reader.plan(Limit(records=10)))
    shifted(monkeypatch, DAY + 60_000)
    assert len(read + reader.rest()) == 30


def test_a_shard_that_is_idle_for_longer_than_the_retention_has_lost_nothing(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few hours a micro-batch without records stores that there was nothing to read."""
    stream.put(numbers(0, 5), lambda _: "k")
    reader = Reader(stream)
    reader.rest()
    for hours in range(7, 60, 7):
        shifted(monkeypatch, hours * 3_600_000)
        span = reader.plan()
        assert [piece.part for piece in span.slices] == [""]  # type: ignore[union-attr]
        assert reader.take(span) == []
        assert reader.plan().empty
    stream.put([b"last"], lambda _: "k")
    last = Reader(stream, reader.positions).rest()
    assert last == [b"last"]


def test_a_part_whose_records_are_gone_is_planned_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.put(numbers(0, 10), lambda _: "k")
    reader = Reader(stream)
    span = reader.plan()
    rows = reader.rows(span)
    shifted(monkeypatch, DAY + 60_000)
    assert reader.session.smaller(span.slices[0], Limit())  # type: ignore[arg-type]
    stream.trim(rows[5][system_name("sequenceNumber")])
    for ask in (reader.session.smaller, reader.session.renew):
        with pytest.raises(Outdated, match="were removed by retention before they were stored"):
            ask(span.slices[0], Limit())  # type: ignore[arg-type]
    with pytest.raises(TransientError, match="no longer shows the 10 records from"):
        reader.rows(span)


def test_a_stream_that_was_made_again_is_another_one(stream: Stream) -> None:
    before = Reader(stream)
    time.sleep(1.1)  # its age is told in seconds
    stream.remove()
    stream.make()
    assert Reader(stream).session.identity != before.session.identity


@pytest.mark.parametrize(
    "code", ["ProvisionedThroughputExceededException", "ExpiredIteratorException"]
)
def test_a_busy_shard_and_an_old_iterator_are_met_without_an_error(
    code: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in the middle of a shard: nothing is left out and nothing comes again."""
    stream.put(numbers(0, 30), lambda _: "k")
    connected = Connected(KinesisSource.model_validate(stream.config))
    real, calls = connected._client.get_records, list[int]()
    refused = connected._client.exceptions.from_code(code)

    def get_records(**arguments: Any) -> Any:
        calls.append(1)
        if len(calls) in {2, 4}:
            raise refused({"Error": {"Code": code, "Message": "for now"}}, "GetRecords")
        return real(**arguments)

    monkeypatch.setattr(connected._client, "get_records", get_records)
    begin = {"ShardIteratorType": "TRIM_HORIZON"}
    found: list[bytes] = []
    for shard in SHARDS[:2]:
        for page in connected.pages(shard, begin, 10):
            found += [record.data for record in page.records]
            if page.at_tip:
                break
    assert found == numbers(0, 30)
    assert len(calls) >= 6


def test_a_shard_that_stays_busy_is_named(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "ProvisionedThroughputExceededException"
    reader = Reader(stream)
    monkeypatch.setattr(client, "_PATIENCE", 0.1)

    def refuse(**_: Any) -> None:
        raise KinesisFailure(code, "Rate exceeded for shard shardId-000000000000", 400)

    connected = reader.session._stream
    monkeypatch.setattr(connected._client, "get_records", refuse)
    with pytest.raises(TransientError, match=r"cannot read shard shardId-\d+ of .+: Provisioned"):
        reader.plan()


def test_requests_to_a_shard_are_paced(stream: Stream) -> None:
    """Five in a second, of which ours are not more."""
    stream.put(numbers(0, 5), lambda _: "k")
    connected = Connected(KinesisSource.model_validate(stream.config))
    begun = time.monotonic()
    pages = [0]
    for shard in SHARDS[:2]:
        for page in connected.pages(shard, {"ShardIteratorType": "TRIM_HORIZON"}, 1):
            pages[0] += 1
            if page.at_tip:
                break
    assert pages[0] >= 6
    assert time.monotonic() - begun >= 0.2 * (pages[0] - 2)


def test_the_lag_is_told_by_the_first_records_of_each_shard(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(stream)
    assert reader.session.lag(reader.positions).records == 0
    stream.put(numbers(0, 20))
    time.sleep(0.2)
    lag = reader.session.lag(reader.positions)
    assert lag.records == 20
    assert 0.2 <= (lag.seconds or 0) < 30
    monkeypatch.setattr(session, "_SAMPLE", 2)
    assert reader.session.lag(reader.positions).records > 4
    reader.rest()
    lag = reader.session.lag(reader.positions)
    assert (lag.records, lag.seconds) == (0, 0.0)


def test_looking_does_not_move_anything(stream: Stream) -> None:
    stream.put(numbers(0, 20), lambda _: "k")
    with closing(Reader(stream).session) as looking:
        for _ in range(2):
            (batch,) = looking.peek(looking.start(), 3).values()
            assert batch["body"].to_pylist() == numbers(0, 3)
