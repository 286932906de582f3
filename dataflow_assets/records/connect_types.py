"""Values of Kafka Connect's and Debezium's own types, as Kafka Connect's JsonConverter writes them.

A date is a number of days there, a decimal the base64 of its digits: only the schema of a message,
or whoever knows the connector, says so. Times come out as text in RFC 3339, decimals as numbers,
and every digit is kept.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.connect_times import (
    Convert,
    day,
    duration,
    moment,
    time_of_day,
    whole_number,
)
from dataflow_assets.records.record import NotJson, encode, parse

_MOST_BITS = 65_536
_DECLARED = re.compile(r"(\w+)(?:\((\d{1,5})\))?", re.ASCII)


def reader(schema: Any) -> Convert | None:
    """Returns what converts values of a schema of Kafka Connect, nested ones too.

    Called by steps inside tasks, for each message; equal schemas are read once.

    Args:
        schema: the JSON object that JsonConverter writes beside a value.

    Returns:
        What raises RejectedRecord with the path of a value that is none of its type. None where all
        values are what they look like already, or the object is no schema.
    """
    if not isinstance(schema, dict):
        return None
    try:
        return _reader(encode(schema))
    except (ValueError, TypeError, RecursionError):
        raise RejectedRecord("step", "the schema of the message cannot be read") from None


@lru_cache(256)
def _reader(schema: bytes) -> Convert | None:
    return _of(parse(schema))


def member(schema: Any, name: str) -> Any:
    """The schema of a field of a struct; None where there is none. Called for each message.

    Args:
        schema: that of the struct, as JsonConverter writes it.
        name: of the field.
    """
    fields = schema.get("fields") if isinstance(schema, dict) else None
    listed = fields if isinstance(fields, list) else ()
    matching = (one for one in listed if isinstance(one, dict) and one.get("field") == name)
    return next(matching, None)


def type_by_name(text: str) -> Convert:
    """Returns what converts values of a type that a manifest names. Called once for each step.

    Args:
        text: such as `MicroTimestamp` or `Decimal(18)`, see `NAMES`.

    Raises:
        ValueError: there is no such type.
    """
    match = _DECLARED.fullmatch(text)
    kind = _BY_NAME.get(match[1]) if match else None
    if match is None or kind is None or (match[2] is not None) != (match[1] in _WITH_NUMBER):
        raise ValueError(f"{text} is none of {', '.join(NAMES)}")
    number = match[2]
    return kind({"scale": number, "length": number})


def debezium_type(schema: Any) -> Convert | None:
    """Returns the conversion for an Avro schema whose `connect.name` is a type of Debezium's.

    Kafka Connect's types have logical types in Avro. Called once for each field of a schema.
    """
    name = schema.get("connect.name") if isinstance(schema, dict) else None
    if not isinstance(name, str) or not name.startswith("io.debezium."):
        return None
    return _of({"name": name, "parameters": schema.get("connect.parameters")})


def unpack_envelope(message: Any) -> Any:
    """A message of JsonConverter with its schema, as the value alone.

    Called by steps inside tasks, once for each message, and for keys of null messages.

    Args:
        message: a JSON value. Only an object of `schema` and `payload` is changed.

    Raises:
        RejectedRecord: a value is none of its type.
    """
    if not is_envelope(message):
        return message
    convert, payload = reader(message["schema"]), message["payload"]
    return payload if convert is None else convert_at("payload", convert, payload)


def is_envelope(message: Any) -> bool:
    """Returns whether a JSON value is a schema of Kafka Connect and a value beside it."""
    if not isinstance(message, dict) or message.keys() != {"schema", "payload"}:
        return False
    return isinstance(message["schema"], dict | None)


def convert_at(name: str, convert: Convert, value: Any) -> Any:
    """The value, with the path of what is none of its type in front of the reason.

    Raises RejectedRecord.
    """
    try:
        return None if value is None else convert(value)
    except RejectedRecord as error:
        raise RejectedRecord("step", f"{name}.{error.reason}") from None
    except (ValueError, OverflowError) as error:
        raise RejectedRecord("step", f"{name}: {error}") from None
    except TypeError:
        raise RejectedRecord("step", f"{name}: is not what its schema says") from None


def _of(schema: Any) -> Convert | None:
    if not isinstance(schema, dict):
        return None
    name, parameters = schema.get("name"), schema.get("parameters")
    if isinstance(name, str) and name in _LOGICAL:
        return _LOGICAL[name](parameters if isinstance(parameters, dict) else {})
    kind = schema.get("type")
    if kind == "struct":
        return _struct(schema)
    if kind == "array" and (item := _of(schema.get("items"))):
        return _each(item)
    if kind == "map" and (value := _of(schema.get("values"))):
        return _values(value)
    return None


def _struct(schema: Mapping[str, Any]) -> Convert | None:
    fields = schema.get("fields")
    listed = fields if isinstance(fields, list) else ()
    members = [(one.get("field"), _of(one)) for one in listed if isinstance(one, dict)]
    plan = [(str(name), convert) for name, convert in members if convert is not None]
    if not plan:
        return None

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("is not an object, as its schema says")  # noqa: TRY004
        values = {name: convert_at(name, form, value[name]) for name, form in plan if name in value}
        return {**value, **values}

    return convert


def _each(item: Convert) -> Convert:
    def convert(values: Any) -> Any:
        if not isinstance(values, list):
            raise ValueError("is not a list, as its schema says")  # noqa: TRY004
        return [convert_at(str(at), item, value) for at, value in enumerate(values)]

    return convert


def _values(item: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: convert_at(key, item, one) for key, one in value.items()}
        return [[key, convert_at(str(key), item, one)] for key, one in value]

    return convert


def _decimal(parameters: Mapping[str, Any]) -> Convert:
    """Numbers and texts of digits are left as they are: `decimal.format` may be NUMERIC."""
    scale = int(parameters.get("scale") or 0)
    return lambda value: _decimal_of(value, scale) if isinstance(value, str) else value


def _variable_decimal(_: Mapping[str, Any]) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        scale = value.get("scale")
        return _decimal_of(value.get("value"), whole_number(scale, "a scale and a value in base64"))

    return convert


def _decimal_of(value: Any, scale: int) -> Decimal:
    return Decimal(f"{int.from_bytes(_bytes(value), 'big', signed=True)}E{-scale}")


def _bits(parameters: Mapping[str, Any]) -> Convert:
    """Bits as digits, the last one of the value first: PostgreSQL writes them that way."""
    length = int(parameters.get("length") or 0)

    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        data = _bytes(value)
        digits = f"{int.from_bytes(data, 'little'):b}"
        return digits.zfill(length if length <= _MOST_BITS else 8 * len(data))

    return convert


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError("is not base64") from None


def _json(value: Any) -> Any:
    """Text of JSON as the value itself; what is none stays a text."""
    parsed = parse(value.encode()) if isinstance(value, str) else value
    return value if isinstance(parsed, NotJson) else parsed


def _without_zone(value: Any) -> Any:
    """Debezium's dates and times of day in ISO 8601 end in a `Z` that they have no zone for."""
    return value.removesuffix("Z") if isinstance(value, str) else value


def _text(value: Any) -> Any:
    return value


def _plain(convert: Convert) -> Callable[[Mapping[str, Any]], Convert]:
    return lambda _: convert


_BY_NAME: Mapping[str, Callable[[Mapping[str, Any]], Convert]] = {
    "Date": _plain(day),
    "Time": _plain(time_of_day(10**3)),
    "MicroTime": _plain(time_of_day(10**6)),
    "NanoTime": _plain(time_of_day(10**9)),
    "Timestamp": _plain(moment(10**3)),
    "MicroTimestamp": _plain(moment(10**6)),
    "NanoTimestamp": _plain(moment(10**9)),
    "IsoDate": _plain(_without_zone),
    "IsoTime": _plain(_without_zone),
    "MicroDuration": _plain(duration(10**6)),
    "NanoDuration": _plain(duration(10**9)),
    "Decimal": _decimal,
    "VariableScaleDecimal": _variable_decimal,
    "Bits": _bits,
    "Json": _plain(_json),
    "text": _plain(_text),
}
_WITH_NUMBER = frozenset({"Decimal", "Bits"})
NAMES = tuple(f"{name}(n)" if name in _WITH_NUMBER else name for name in _BY_NAME)
"""The types that a manifest may name."""
_OF_TIME = [name for name in _BY_NAME if name.endswith(("Date", "Time", "stamp", "Duration"))]
_LOGICAL = {
    **{f"io.debezium.time.{name}": _BY_NAME[name] for name in _OF_TIME},
    **{f"io.debezium.data.{n}": _BY_NAME[n] for n in ("VariableScaleDecimal", "Bits", "Json")},
    **{
        f"org.apache.kafka.connect.data.{name}": _BY_NAME[name]
        for name in ("Date", "Time", "Timestamp", "Decimal")
    },
}
