"""JSON values to Avro: what `avro_columns` reads is written back, and what does not fit is refused.

| Avro | takes |
|---|---|
| int, long | a whole number in its range |
| float, double | a number, or `NaN`, `Infinity`, `-Infinity` |
| bytes, fixed | base64 text |
| union | the first type that takes the value; null where null is one of its types |
| decimal | a number, or its digits as text, with no more digits than the type has |
| date, time, timestamp | RFC 3339 with as many digits of a second as the type has, or a number |
| uuid, enum | its text |

A member that is absent has the field's default, else null where the type takes null.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, timedelta
from datetime import datetime as moment
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from typing import Any
from uuid import UUID

from fastavro import parse_schema, schemaless_writer

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.avro_logical import logical_type
from dataflow_assets.formats.avro_schema import AvroSchema, Schema
from dataflow_assets.records.record import MISSING, NotJson, parse
from dataflow_assets.records.times.instant import read

Take = Callable[[Any], Any]
"""A JSON value as fastavro writes it. Raises RejectedRecord."""

_EPOCH = moment(1970, 1, 1, tzinfo=UTC)
_DAY_ZERO = date(1970, 1, 1).toordinal()
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?", re.ASCII)
_DIGITS_OF = {"millis": 3, "micros": 6, "nanos": 9}
_RANGES = {"int": 2**31, "long": 2**63}
_ENDLESS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BITS_OF_A_FLOAT = 2.0**128


class AvroEncoder:
    """Writes bodies of one schema; made once per process. Keeps nothing between two bodies."""

    def __init__(self, text: str, *, ignore_unknown: bool = False) -> None:
        """`ignore_unknown`: a member without a field is left out; else it rejects its record.

        Raises ValueError where the text is no Avro schema.
        """
        self._schema = AvroSchema(text)
        self._ignores = ignore_unknown
        self._named: dict[str, Take] = {}
        self._take = self._made(self._schema.root)
        self._parsed = parse_schema(self._schema.bare)

    def __call__(self, body: bytes) -> bytes:
        """The value of a JSON body. Raises RejectedRecord where the schema does not take it."""
        found = parse(body)
        if isinstance(found, NotJson):
            raise _unfit("not JSON, which a value of a schema is made of")
        out = BytesIO()
        try:
            schemaless_writer(out, self._parsed, self._take(found))
        except RecursionError:
            raise _unfit("nested too deeply") from None
        return out.getvalue()

    def _made(self, schema: Schema) -> Take:
        found = self._schema.resolved(schema)
        if isinstance(found, list):
            return self._union(found)
        if isinstance(found, str):
            return _SIMPLE[found]
        if logical := logical_type(found):
            return _logical(logical, found)
        kind = found["type"]
        if kind == "record":
            return self._record(found)
        if kind == "array":
            return self._array(self._made(found["items"]))
        if kind == "map":
            return self._map(self._made(found["values"]))
        if kind == "enum":
            return _enum(frozenset(found["symbols"]))
        return _fixed(found["size"]) if kind == "fixed" else _SIMPLE[kind]

    def _record(self, found: Any) -> Take:
        name = found["name"]
        if name not in self._named:
            fields: dict[str, tuple[Take, Any]] = {}
            ignores = self._ignores

            def take(value: Any) -> dict[str, Any]:
                if not isinstance(value, dict):
                    raise _unfit("expected an object")
                if not ignores and not value.keys() <= fields.keys():
                    unknown = sorted(value.keys() - fields.keys())
                    raise _unfit(f"the schema has no field {', '.join(unknown)}")
                return {key: _member(key, one, value) for key, one in fields.items()}

            self._named[name] = take
            for one in found["fields"]:
                fields[one["name"]] = self._made(one["type"]), self._absent(one)
        return self._named[name]

    def _absent(self, field: Mapping[str, Any]) -> Any:
        """What a field has whose member is absent; MISSING: it must be there."""
        found = self._schema.resolved(field["type"])
        arms = found if isinstance(found, list) else [found]
        if "default" in field:
            return _of_default(field["default"], self._schema.resolved(arms[0]))
        return None if "null" in map(_name, map(self._schema.resolved, arms)) else MISSING

    def _array(self, item: Take) -> Take:
        def take(value: Any) -> list[Any]:
            if not isinstance(value, list):
                raise _unfit("expected an array")
            return [_inside(f"[{index}]", item, one) for index, one in enumerate(value)]

        return take

    def _map(self, item: Take) -> Take:
        def take(value: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise _unfit("expected an object")
            return {key: _inside(key, item, one) for key, one in value.items()}

        return take

    def _union(self, arms: list[Schema]) -> Take:
        resolved = [self._schema.resolved(one) for one in arms]
        takes = [(_name(one), self._made(one)) for one in resolved if _name(one) != "null"]
        nullable = len(takes) < len(arms)

        def take(value: Any) -> Any:
            if value is None and nullable:
                return None
            for name, one in takes:
                try:
                    return name, one(value)
                except RejectedRecord:
                    if len(takes) == 1:
                        raise
            raise _unfit("no type of the union takes the value")

        return take


@lru_cache(maxsize=64)
def encoder(text: str, ignore_unknown: bool) -> AvroEncoder:
    """One for all slices of a process. Raises ValueError where the text is no Avro schema."""
    return AvroEncoder(text, ignore_unknown=ignore_unknown)


def _member(key: str, field: tuple[Take, Any], value: Mapping[str, Any]) -> Any:
    take, absent = field
    if key in value:
        return _inside(key, take, value[key])
    if absent is MISSING:
        raise _unfit(f"{key}: is missing, and the field has no default")
    return _inside(key, take, absent)


def _inside(key: str, take: Take, value: Any) -> Any:
    try:
        return take(value)
    except RejectedRecord as error:
        between = "" if error.reason.startswith("[") else ": " if ": " not in error.reason else "."
        raise _unfit(f"{key}{between}{error.reason}") from None


def _of_default(value: Any, schema: Schema) -> Any:
    """A default as JSON bodies have their values: fractions are exact, bytes are base64."""
    if isinstance(value, float):
        return Decimal(repr(value))
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind not in ("bytes", "fixed") or not isinstance(value, str):
        return value
    raw = value.encode("latin-1")  # so Avro writes bytes in a schema
    if logical_type(schema) == "decimal":
        return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}E-{schema.get('scale', 0)}")
    return base64.b64encode(raw).decode()


def _unfit(reason: str) -> RejectedRecord:
    return RejectedRecord("encode", reason)


def _name(schema: Schema) -> str:
    if isinstance(schema, str):
        return schema
    return schema.get("name") or schema["type"]  # type: ignore[no-any-return]


def _null(value: Any) -> None:
    if value is not None:
        raise _unfit("expected null")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _unfit("expected true or false")
    return value


def _whole(kind: str) -> Take:
    limit = _RANGES[kind]

    def take(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _unfit("expected a whole number")
        if not -limit <= value < limit:
            raise _unfit(f"a number beyond the range of {kind}")
        return value

    return take


def _fraction(kind: str) -> Take:
    def take(value: Any) -> float:
        if isinstance(value, str) and value in _ENDLESS:
            return _ENDLESS[value]
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise _unfit("expected a number")
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if math.isinf(found) or (kind == "float" and abs(found) >= _BITS_OF_A_FLOAT):
            raise _unfit(f"a number beyond the range of {kind}")
        return found

    return take


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _unfit("expected text")
    return value


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except ValueError:
        raise _unfit("expected base64 text") from None


def _fixed(size: int) -> Take:
    def take(value: Any) -> bytes:
        found = _bytes(value)
        if len(found) != size:
            raise _unfit(f"expected {size} bytes, got {len(found)}")
        return found

    return take


def _enum(symbols: frozenset[str]) -> Take:
    def take(value: Any) -> str:
        if _text(value) not in symbols:
            raise _unfit(f"expected one of {', '.join(sorted(symbols))}")
        return value  # type: ignore[no-any-return]

    return take


_SIMPLE: dict[str, Take] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole("int"),
    "long": _whole("long"),
    "float": _fraction("float"),
    "double": _fraction("double"),
    "string": _text,
    "bytes": _bytes,
}


def _logical(name: str, schema: Mapping[str, Any]) -> Take:
    if name == "decimal":
        return _decimal(schema)
    if name == "uuid":
        return _uuid_bytes if schema["type"] == "fixed" else _uuid_text
    if name == "duration":
        return _fixed(12)
    number = _SIMPLE[schema["type"]]
    digits = _DIGITS_OF.get(name.rpartition("-")[2], 0)
    of_text = {"date": _days, "time": _time}.get(name.partition("-")[0], _timestamp)

    def take(value: Any) -> int:
        if isinstance(value, str):
            value = of_text(value, digits)
        return number(value)  # type: ignore[no-any-return]

    return take


def _decimal(schema: Mapping[str, Any]) -> Take:
    precision, scale = schema["precision"], schema.get("scale", 0)
    size = schema.get("size")

    def take(value: Any) -> bytes:
        try:
            exact = Decimal(value) if isinstance(value, str) else value
            if isinstance(exact, bool) or not isinstance(exact, int | Decimal):
                raise _unfit("expected a number")
            number = _unscaled(Decimal(exact), precision, scale)
        except ArithmeticError:
            raise _unfit("expected a number") from None
        width = size or (number if number >= 0 else ~number).bit_length() // 8 + 1
        try:
            return number.to_bytes(width, "big", signed=True)
        except OverflowError:
            raise _unfit(f"more than {size} bytes") from None

    return take


def _unscaled(value: Decimal, precision: int, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise _unfit("expected a finite number")
    if value and value.adjusted() + 1 + scale > precision:
        raise _unfit(f"more than {precision} digits")
    written = "".join(map(str, digits))
    places = exponent + scale
    if places < 0:
        if written[places:].strip("0"):
            raise _unfit(f"more than {scale} digits behind the point")
        written = written[:places]
    found = int(written or "0") * int(10 ** (max(places, 0) if value else 0))
    return -found if sign else found


def _uuid_text(value: Any) -> str:
    return str(_uuid(value))


def _uuid_bytes(value: Any) -> bytes:
    return _uuid(value).bytes


def _uuid(value: Any) -> UUID:
    try:
        return UUID(_text(value))
    except ValueError:
        raise _unfit("expected a UUID") from None


def _days(text: str, _: int) -> int:
    try:
        return date.fromisoformat(text).toordinal() - _DAY_ZERO
    except ValueError:
        raise _unfit("expected a date, like 2026-01-31") from None


def _time(text: str, digits: int) -> int:
    match = _TIME.fullmatch(text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59 or int(match[3]) > 59:
        raise _unfit("expected a time, like 23:59:59.5")
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
    return _scaled(seconds, match[4] or "", digits)


def _timestamp(text: str, digits: int) -> int:
    """A time without a zone is in UTC."""
    try:
        found = read(text, UTC)
    except ValueError:
        raise _unfit("expected a time, like 2026-01-31T23:59:59Z") from None
    return _scaled((found.second - _EPOCH) // timedelta(seconds=1), found.fraction, digits)


def _scaled(seconds: int, fraction: str, digits: int) -> int:
    fraction = fraction.rstrip("0")
    if len(fraction) > digits:
        raise _unfit(f"more than {digits} digits of a second")
    return seconds * int(10**digits) + int(fraction.ljust(digits, "0") or "0")
