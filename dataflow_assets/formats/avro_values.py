"""Single JSON values as Avro writes them: numbers, texts, bytes, and the logical types."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, timedelta
from datetime import datetime as moment
from decimal import Decimal
from struct import pack, unpack
from typing import Any
from uuid import UUID

import numpy as np

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.times.instant import read

Take = Callable[[Any], Any]
"""A JSON value as fastavro writes it. Raises RejectedRecord."""

_EPOCH = moment(1970, 1, 1, tzinfo=UTC)
_DAY_ZERO = date(1970, 1, 1).toordinal()
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?", re.ASCII)
_DURATION = re.compile(r"P(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)(?:\.(\d{1,3}))?S)?)?", re.ASCII)
_UNSIGNED = 2**32
_DIGITS_OF = {"millis": 3, "micros": 6, "nanos": 9}
_RANGES = {"int": 2**31, "long": 2**63}
_ENDLESS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def unfit(reason: str) -> RejectedRecord:
    return RejectedRecord("encode", reason)


def _null(value: Any) -> None:
    if value is not None:
        raise unfit("expected null")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise unfit("expected true or false")
    return value


def _whole(kind: str) -> Take:
    limit = _RANGES[kind]

    def take(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise unfit("expected a whole number")
        if not -limit <= value < limit:
            raise unfit(f"a number beyond the range of {kind}")
        return value

    return take


def _fraction(kind: str) -> Take:
    def take(value: Any) -> float:
        if isinstance(value, str) and value in _ENDLESS:
            return _ENDLESS[value]
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise unfit("expected a number")
        nearest = _nearest(kind, value)
        if math.isinf(nearest):
            raise unfit(f"a number beyond the range of {kind}")
        if isinstance(value, int) and nearest != value and _shortest(kind, nearest) != value:
            raise unfit(f"a whole number with more digits than {kind} holds")
        return nearest

    return take


def _nearest(kind: str, value: int | Decimal) -> float:
    try:
        number = float(value)
        return unpack("<f", pack("<f", number))[0] if kind == "float" else number
    except OverflowError:
        return math.inf


def _shortest(kind: str, value: float) -> Decimal:
    """The shortest decimal that reads back the same: so programs write a float."""
    return Decimal(str(np.float32(value)) if kind == "float" else repr(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise unfit("expected text")
    return value


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except ValueError:
        raise unfit("expected base64 text") from None


def take_fixed(size: int) -> Take:
    def take(value: Any) -> bytes:
        data = _bytes(value)
        if len(data) != size:
            raise unfit(f"expected {size} bytes, got {len(data)}")
        return data

    return take


def enum(symbols: frozenset[str]) -> Take:
    def take(value: Any) -> str:
        if _text(value) not in symbols:
            raise unfit(f"expected one of {', '.join(sorted(symbols))}")
        return value  # type: ignore[no-any-return]

    return take


SIMPLE: dict[str, Take] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole("int"),
    "long": _whole("long"),
    "float": _fraction("float"),
    "double": _fraction("double"),
    "string": _text,
    "bytes": _bytes,
}


def logical(name: str, schema: Mapping[str, Any]) -> Take:
    if name == "decimal":
        return _decimal(schema)
    if name == "uuid":
        return _uuid_bytes if schema["type"] == "fixed" else _uuid_text
    if name == "duration":
        return _duration
    number = SIMPLE[schema["type"]]
    digits = _DIGITS_OF.get(name.rpartition("-")[2], 0)
    day = 86_400 * 10**digits
    of_text = {"date": _days, "time": _time}.get(name.partition("-")[0], _timestamp)

    def take(value: Any) -> int:
        if isinstance(value, str):
            value = of_text(value, digits)
        if name.startswith("time-") and isinstance(value, int) and not 0 <= value < day:
            raise unfit("a time outside the day")
        return number(value)  # type: ignore[no-any-return]

    return take


def same(take: Take, form: Callable[[Any], Any] | None) -> Take:
    """Takes what reads back as the same value; `form`: what JSON has for what is stored."""

    def exact(value: Any) -> Any:
        taken = take(value)
        back = taken if form is None or taken is None else form(taken)
        back = Decimal(repr(back)) if isinstance(back, float) else back  # as its text has it
        if isinstance(value, bool) is not isinstance(back, bool) or back != value:
            raise unfit("would be another value")
        return taken

    return exact


def _duration(value: Any) -> bytes:
    match = _DURATION.fullmatch(_text(value))
    if match is None or value in ("P", "PT"):
        return take_fixed(12)(value)  # type: ignore[no-any-return]
    months, days, seconds = (int(match[place] or 0) for place in (1, 2, 3))
    millis = seconds * 1000 + int((match[4] or "").ljust(3, "0"))
    if max(months, days, millis) >= _UNSIGNED:
        raise unfit("a duration beyond the range of the type")
    return pack("<III", months, days, millis)


def _decimal(schema: Mapping[str, Any]) -> Take:
    precision, scale = schema["precision"], schema.get("scale", 0)
    size = schema.get("size")

    def take(value: Any) -> bytes:
        try:
            exact = Decimal(value) if isinstance(value, str) else value
            if isinstance(exact, bool) or not isinstance(exact, int | Decimal):
                raise unfit("expected a number")
            number = _unscale(Decimal(exact), precision, scale)
        except ArithmeticError:
            raise unfit("expected a number") from None
        width = size or (number if number >= 0 else ~number).bit_length() // 8 + 1
        try:
            return number.to_bytes(width, "big", signed=True)
        except OverflowError:
            raise unfit(f"more than {size} bytes") from None

    return take


def _unscale(value: Decimal, precision: int, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise unfit("expected a finite number")
    if value and value.adjusted() + 1 + scale > precision:
        raise unfit(f"more than {precision} digits")
    written = "".join(map(str, digits))
    places = exponent + scale
    if places < 0:
        if written[places:].strip("0"):
            raise unfit(f"more than {scale} digits behind the point")
        written = written[:places]
    number = int(written or "0") * int(10 ** (max(places, 0) if value else 0))
    return -number if sign else number


def _uuid_text(value: Any) -> str:
    return str(_uuid(value))


def _uuid_bytes(value: Any) -> bytes:
    return _uuid(value).bytes


def _uuid(value: Any) -> UUID:
    try:
        return UUID(_text(value))
    except ValueError:
        raise unfit("expected a UUID") from None


def _days(text: str, _: int) -> int:
    try:
        return date.fromisoformat(text).toordinal() - _DAY_ZERO
    except ValueError:
        raise unfit("expected a date, like 2026-01-31") from None


def _time(text: str, digits: int) -> int:
    match = _TIME.fullmatch(text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59 or int(match[3]) > 59:
        raise unfit("expected a time, like 23:59:59.5")
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
    return _scale(seconds, match[4] or "", digits)


def _timestamp(text: str, digits: int) -> int:
    """A time without a zone is in UTC."""
    try:
        instant = read(text, UTC)
    except ValueError:
        raise unfit("expected a time, like 2026-01-31T23:59:59Z") from None
    return _scale((instant.second - _EPOCH) // timedelta(seconds=1), instant.fraction, digits)


def _scale(seconds: int, fraction: str, digits: int) -> int:
    fraction = fraction.rstrip("0")
    if len(fraction) > digits:
        raise unfit(f"more than {digits} digits of a second")
    return seconds * int(10**digits) + int(fraction.ljust(digits, "0") or "0")
