"""The key of a null message as the row that it deletes."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from dataflow_assets.contracts import Kind
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.formats.json_tombstones import Tombstones

TEXT = pa.field("id", pa.string())
NUMBER = pa.field("id", pa.int64())
DIGITS = Kind.NUMERIC.field("id")
BYTES = pa.field("id", pa.binary())


def deleted(field: pa.Field, *keys: bytes) -> list[object]:
    decoder = JsonDecoder(pa.schema([field]), tombstones=Tombstones("delete", ("id",)))
    nulls = pa.nulls(len(keys), pa.binary())
    offsets = pa.array(range(len(keys)), pa.int64())
    decoded = decoder.decode(nulls, offsets, pa.array(keys, pa.binary()))
    assert [one.reason for one in decoded.rejected] == []
    found: list[object] = decoded.rows.column("id").to_pylist()
    return found


@pytest.mark.parametrize(
    "key",
    ["123", "007", "null", "true", "1.50", "[1]", "A12", " 12 ", "-0", "{", "{a}", "1e400", '"'],
)
def test_a_text_column_takes_the_key_as_it_is(key: str) -> None:
    assert deleted(TEXT, key.encode()) == [key]


def test_json_objects_and_strings_are_read_as_such() -> None:
    keys = (b'{"id": "a"}', b'"a"', b' {"id": "007"} ', b'"123"', b'"null"')
    assert deleted(TEXT, *keys) == ["a", "a", "007", "123", "null"]


def test_a_number_s_key_is_a_number() -> None:
    assert deleted(NUMBER, b"123", b'{"id": 5}', b" 7 ") == [123, 5, 7]
    assert deleted(DIGITS, b"1.50", b'"2"') == ["1.50", "2"]


def test_of_a_key_beside_its_schema_the_payload_counts() -> None:
    number = b'{"schema":{"type":"int32","optional":false},"payload":5}'
    days = b'{"schema":{"type":"int32","name":"io.debezium.time.Date"},"payload":19297}'
    row = b'{"schema":{"type":"struct","fields":[]},"payload":{"id":7}}'
    assert deleted(NUMBER, number, row) == [5, 7]
    assert deleted(pa.field("id", pa.date32()), days) == [date(2022, 11, 1)]
    assert deleted(TEXT, days) == ["2022-11-01"]


def test_a_key_that_is_none_of_its_type_is_a_rejected_record() -> None:
    key = b'{"schema":{"type":"int32","name":"io.debezium.time.Date"},"payload":2147483647}'
    decoder = JsonDecoder(pa.schema([TEXT]), tombstones=Tombstones("delete", ("id",)))
    decoded = decoder.decode(
        pa.nulls(1, pa.binary()), pa.array([0], pa.int64()), pa.array([key], pa.binary())
    )
    (rejected,) = decoded.rejected
    assert "payload: lies outside the years 1 to 9999" in rejected.reason


def test_bytes_that_look_like_a_number_are_base64_all_the_same() -> None:
    assert deleted(BYTES, b"1234", b'"YQ=="', b"YQ==") == [b"\xd7m\xf8", b"a", b"a"]
