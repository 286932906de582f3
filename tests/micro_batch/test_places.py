"""The places of records of parts: two records never share one, and one always has the same."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from dataflow_assets.contracts import (
    HEADER_LIST,
    OffsetSlice,
    PartSlice,
    Place,
    Rejection,
    Target,
)
from dataflow_assets.micro_batch.places import Places
from dataflow_assets.sdk.place import constant, named_by, with_place
from dataflow_assets.sdk.record_ids import message_of, place_of, record_place, rejection_id
from dataflow_assets.sdk.rejected_records import entry as entry_of
from dataflow_assets.sdk.rejected_records import error_record
from dataflow_assets.sdk.rejected_rows import metadata_of, metadata_text

TARGET = Target("ns/f", "postgresql:db/public/t", "hash", "t", "1.2")
PART = PartSlice("part-0", None, "end")
LONG = "x" * 3_000
DIFFERENT: tuple[dict[str, str], ...] = (
    {"file": "a,byte=1", "byte": "2"},
    {"file": "a", "byte": "1,byte=2"},
    {"file": "a", "byte": "1", "byte=2": ""},
    {"file": "a%2C", "byte": "1"},
    {"file": "a,", "byte": "1"},
    {"file": "a/7", "byte": "1"},
    {"file": f"{LONG}a", "byte": "1"},
    {"file": f"{LONG}b", "byte": "1"},
    {"file": f"y{LONG}a", "byte": "1"},
    {"file": "\0", "byte": "\ud800"},
    {},
)


def id_of(place: Place | None, stage: str = "sink") -> str:
    return rejection_id(Rejection(3, stage, "why", b"{}", place=place), TARGET, PART)


def test_two_places_never_make_one_id() -> None:
    places = [Place(values, row) for values in DIFFERENT for row in ("", "ab", "ab.1")]
    ids = [id_of(place) for place in places]
    assert len(set(ids)) == len(ids)
    assert all(len(id_) < 400 and id_.isascii() and id_.isprintable() for id_ in ids)


@pytest.mark.parametrize("values", DIFFERENT, ids=str)
def test_an_id_of_a_place_tells_no_offset(values: dict[str, str]) -> None:
    id_ = id_of(Place(values, "0" * 32))
    assert place_of(id_) is None
    assert metadata_of(f"{id_}#attempt-2", "t", "entries", 0, None) == {"topic": "t"}
    assert metadata_of(id_, "t", "part-0", 3, None) == {
        "topic": "t",
        "partition": "part-0",
        "offset": 3,
    }


def test_an_offset_names_its_record_by_itself() -> None:
    batch = pa.record_batch({"id": [1]})
    assert Places(OffsetSlice("0", 0, 9)).of(batch, 0, 0, b"{}") is None
    id_ = rejection_id(Rejection(3, "sink", "why", b"{}"), TARGET, OffsetSlice("0", 0, 9))
    assert id_ == "ns/f/postgresql:db/public/t/1.2/0/3/0/sink"
    assert place_of(f"{id_}#attempt-2") == ("0", 3)


def test_an_id_of_an_earlier_version_still_tells_its_place() -> None:
    id_ = 'ns/f/b/1.2/part-1@{"order":"7"}/3/0/sink#attempt-2'
    assert message_of(id_) == 'ns/f/b/1.2/part-1@{"order":"7"}/3'
    assert metadata_of(id_, "t", "entries", 0, None)["offset"] == 3


def rows() -> Iterator[tuple[bytes, pa.RecordBatch]]:
    batch = pa.record_batch({"id": [1, 1, 1, 2], "name": ["a", "b", "a", "a"]})
    bodies = [str(row).encode() for row in batch.to_pylist()]
    for at, body in enumerate(bodies):
        yield body, named_by(batch, ["id", "gone"]).slice(at, 1)


def test_rows_that_share_their_values_are_told_apart() -> None:
    places = Places(PART)
    found = [places.of(batch, 0, at, body) for at, (body, batch) in enumerate(rows())]
    again = [places.of(batch, 0, at, body) for at, (body, batch) in enumerate(rows())]
    assert found == again
    ids = [id_of(place) for place in found]
    assert len(set(ids)) == 4
    assert ids[2] == ids[0].replace("/0/sink", ".1/0/sink")
    messages = [message_of(id_) for id_ in ids]
    assert messages[0] == messages[1] == messages[2] != messages[3]


def test_rows_without_an_order_are_known_by_what_they_hold() -> None:
    batch = pa.record_batch({"id": [1, 2]})
    places = Places(PART)
    found = [places.of(batch, at, at, body) for at, body in enumerate((b"1", b"2"))]
    messages = {message_of(id_of(place)) for place in found}
    assert len(messages) == 2


def test_a_place_is_said_as_people_say_it() -> None:
    batch = pa.record_batch({"body": [b"x", b"y"]})
    lines = with_place(batch, {"file": constant("d/a b.jsonl", 2), "byte": pa.array([0, 17])})
    place = Places(PART).of(lines, 1, 1, b"y")
    assert str(place) == "file d/a b.jsonl, byte 17"
    assert record_place(Rejection(1, "decode", "why", b"y", place=place), PART) == str(place)
    assert record_place(Rejection(1, "decode", "why", b"y"), PART) == "partition part-0, offset 1"
    assert id_of(place) == id_of(Places(PART).of(lines.slice(1), 0, 0, b"other"))


def test_metadata_that_is_kept_has_all_its_digits() -> None:
    number = Decimal("12345678901234567.890123456789012345")
    text = metadata_text({"id": number, HEADER_LIST: [{"key": "x", "value": b"\xff"}]})
    known = metadata_of("a/0/3/0/sink", "t", "part-0", 3, text)
    assert known["id"] == number
    assert "partition" not in known
    record = error_record(TARGET, PART, Rejection(3, "sink", "why", b"{}", metadata=known))
    assert entry_of(record.body)[1].metadata["id"] == number
