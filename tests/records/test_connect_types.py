"""Kafka Connect's and Debezium's types, as JsonConverter writes them, to what they stand for."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.connect_types import NAMES, reader, type_by_name, unpack_envelope
from dataflow_assets.records.record import encode, parse

TIME, DATA = "io.debezium.time.", "io.debezium.data."
CONNECT = "org.apache.kafka.connect.data."
VALUES: tuple[tuple[str, dict[str, str], Any, Any], ...] = (
    (TIME + "Date", {}, 19297, "2022-11-01"),
    (TIME + "Date", {}, -719162, "0001-01-01"),
    (TIME + "Time", {}, 43201001, "12:00:01.001"),
    (TIME + "MicroTime", {}, 86399999999, "23:59:59.999999"),
    (TIME + "MicroTime", {}, 86400000000, "24:00:00"),
    (TIME + "NanoTime", {}, 1, "00:00:00.000000001"),
    (TIME + "Timestamp", {}, 1667304001120, "2022-11-01T12:00:01.12Z"),
    (TIME + "MicroTimestamp", {}, 1667304001123456, "2022-11-01T12:00:01.123456Z"),
    (TIME + "MicroTimestamp", {}, -1, "1969-12-31T23:59:59.999999Z"),
    (TIME + "MicroTimestamp", {}, 9223372036825200000, "infinity"),
    (TIME + "MicroTimestamp", {}, -9223372036832400000, "-infinity"),
    (TIME + "NanoTimestamp", {}, 1667304001123456789, "2022-11-01T12:00:01.123456789Z"),
    (TIME + "ZonedTimestamp", {}, "2022-11-01T12:00:01.1Z", "2022-11-01T12:00:01.1Z"),
    (TIME + "IsoDate", {}, "2022-11-01Z", "2022-11-01"),
    (TIME + "IsoTime", {}, "12:00:01Z", "12:00:01"),
    (TIME + "IsoTimestamp", {}, "2022-11-01T12:00:01Z", "2022-11-01T12:00:01Z"),
    (TIME + "MicroDuration", {}, -1500000, "PT-1.5S"),
    (TIME + "Year", {}, 2022, 2022),
    (DATA + "VariableScaleDecimal", {}, {"scale": 3, "value": "AeJA"}, "123.456"),
    (DATA + "VariableScaleDecimal", {}, {"scale": -2, "value": "Bw=="}, "7E+2"),
    (DATA + "Bits", {"length": "10"}, base64.b64encode(b"\x05\x02").decode(), "1000000101"),
    (DATA + "Json", {}, '{"a":[1.10]}', '{"a":[1.10]}'),
    (DATA + "Json", {}, "{", "{"),
    (DATA + "Uuid", {}, "b0e2", "b0e2"),
    (DATA + "Enum", {"allowed": "a,b"}, "a", "a"),
    (CONNECT + "Date", {}, 0, "1970-01-01"),
    (CONNECT + "Time", {}, 0, "00:00:00"),
    (CONNECT + "Timestamp", {}, 1667304001123, "2022-11-01T12:00:01.123Z"),
    (CONNECT + "Decimal", {"scale": "18"}, "DeC2s6dkAAA=", "1.000000000000000000"),
    (CONNECT + "Decimal", {"scale": "0"}, "/w==", "-1"),
    (CONNECT + "Decimal", {"scale": "2"}, 1.5, "1.5"),
)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


@pytest.mark.parametrize("inside", ["field", "array", "map", "pairs", "struct"])
@pytest.mark.parametrize(("name", "parameters", "value", "wanted"), VALUES)
def test_a_value_is_what_its_schema_says_wherever_it_stands(
    name: str, parameters: dict[str, str], value: Any, wanted: Any, inside: str
) -> None:
    """Plain, in an array, in a map of either form, in a struct; beside a null and a plain field."""
    kind = {"type": "int64", "optional": True, "name": name, "parameters": parameters}
    given: dict[str, tuple[dict[str, Any], Any]] = {
        "field": (kind, value),
        "array": ({"type": "array", "items": kind}, [value, None]),
        "map": ({"type": "map", "keys": {"type": "string"}, "values": kind}, {"k": value}),
        "pairs": ({"type": "map", "keys": {"type": "int32"}, "values": kind}, [[1, value]]),
        "struct": ({"type": "struct", "fields": [kind | {"field": "s"}]}, {"s": value, "o": 1}),
    }
    schema, body = given[inside]
    fields = [schema | {"field": "v"}, {"type": "int64", "field": "plain"}]
    message = {"schema": {"type": "struct", "fields": fields}, "payload": {"v": body, "plain": 7}}
    found = unpack_envelope(parse(json.dumps(message).encode()))
    assert found["plain"] == 7
    shown = found["v"]
    if inside == "field":
        assert text_of(shown) == text_of(wanted)
    elif inside == "array":
        assert (text_of(shown[0]), shown[1]) == (text_of(wanted), None)
    elif inside == "pairs":
        assert text_of(shown[0][1]) == text_of(wanted)
    else:
        assert text_of(next(iter(shown.values()))) == text_of(wanted)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (TIME + "Date", "soon", ""),
        (TIME + "Date", True, "v: is not a number of days"),
        (TIME + "Date", 10**9, "v: lies outside the years 1 to 9999"),
        (TIME + "MicroTimestamp", 1.5, "v: is not a number since 1970"),
        (TIME + "MicroTimestamp", 2**62, "v: lies outside the years 1 to 9999"),
        (TIME + "MicroTime", -1, "v: lies outside the day"),
        (TIME + "MicroTime", 86400000001, "v: lies outside the day"),
        (CONNECT + "Decimal", "%", "v: is not base64"),
        (DATA + "VariableScaleDecimal", {"value": "AA=="}, "v: is not a scale"),
        (DATA + "VariableScaleDecimal", {"scale": 1}, "v: is not base64"),
    ],
)
def test_what_is_no_value_of_its_type_is_rejected_with_its_path(
    kind: str, value: Any, reason: str
) -> None:
    fields = [{"type": "int64", "field": "v", "name": kind}]
    convert = reader({"type": "struct", "fields": fields})
    assert convert is not None
    given = parse(json.dumps({"v": value}).encode())
    if not reason:
        assert convert(given) == given  # a text may be of a connector that was told to write texts
        return
    with pytest.raises(RejectedRecord) as raised:
        convert(given)
    assert raised.value.reason.startswith(reason)


@pytest.mark.parametrize(
    "schema",
    [None, 7, {}, {"type": "struct"}, {"type": "array"}, {"type": "struct", "fields": [3]}],
)
def test_a_schema_without_types_of_its_own_changes_nothing(schema: Any) -> None:
    assert reader(schema) is None


@pytest.mark.parametrize("scale", ["x", "1.5", [1]])
def test_a_schema_that_cannot_be_read_rejects_the_record(scale: Any) -> None:
    field = {"type": "bytes", "field": "v", "name": CONNECT + "Decimal"}
    with pytest.raises(RejectedRecord, match="the schema of the message cannot be read"):
        reader({"type": "struct", "fields": [field | {"parameters": {"scale": scale}}]})


def test_a_map_that_is_none_is_rejected() -> None:
    kind = {"type": "map", "values": {"type": "int32", "name": TIME + "Date"}, "field": "v"}
    convert = reader({"type": "struct", "fields": [kind]})
    assert convert is not None
    with pytest.raises(RejectedRecord, match="v: is not what its schema says"):
        convert({"v": 7})


@pytest.mark.parametrize("text", ["Decimal", "Date(3)", "Datum", "", "Decimal(x)"])
def test_a_type_that_is_none_is_refused_with_all_names(text: str) -> None:
    with pytest.raises(ValueError, match=r"is none of Date, Time, .*Decimal\(n\)"):
        type_by_name(text)


def test_every_name_is_a_type() -> None:
    for name in NAMES:
        assert callable(type_by_name(name.replace("(n)", "(2)")))


@pytest.mark.parametrize(
    "message", ['{"payload":{"day":1}}', '{"schema":"s","payload":1}', '[{"payload":1}]', "7"]
)
def test_what_is_no_message_with_a_schema_stays(message: str) -> None:
    body = parse(message.encode())
    assert unpack_envelope(body) is body
