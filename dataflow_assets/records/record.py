"""Records: what steps see of a message. JSON in, JSON out, nothing rounded on the way.

Integers keep every digit, fractions are `Decimal`, keys keep their order. Lone surrogates, integers
beyond 4,300 digits and the like are JSON that cannot be held exactly: rejected, never passed on
unread, or a `mask` could be slipped past. Text that is no JSON at all passes steps unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import msgspec

from dataflow_assets.errors import RejectedRecord

Form = TypeVar("Form")
exact_json = msgspec.json.Encoder(decimal_format="number").encode
"""Any value as JSON text: what travels between a source, the steps and a sink.

Decimals are numbers with their own digits. Objects keep their order."""

NOT_UTF8 = "\ufffd"
"""Stands in texts of metadata for bytes that are none; keys with it cannot be told apart."""
LONGEST_TEXT = 4_300  # digits of a number written out; `1e999999999` would fill the memory


class NotJson(msgspec.Struct, frozen=True):
    """A body that is no JSON: text, nothing at all (`b""`), or a null message (`None`)."""

    raw: bytes | None

    @property
    def empty(self) -> bool:
        """True for a tombstone: a null message, or one of blanks only."""
        return not (self.raw and self.raw.strip())


class Record(msgspec.Struct, frozen=True, gc=False):
    """One message between source and sink.

    `body`: dict, list, str, int, Decimal, bool, None or `NotJson`. `metadata`: flat, by string;
    times are aware. `route`: the text of the router's condition that chose its sink. All three are
    shared between records: a step makes new ones and changes none.
    """

    body: Any
    metadata: Mapping[str, Any]
    route: str | None = None


class _Missing:
    """The one value of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Any = _Missing()
"""What a path finds where there is nothing; JSON null is None."""


def _fraction(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:
        raise RejectedRecord("decode", "number out of range") from None


_decode = msgspec.json.Decoder(float_hook=_fraction).decode
_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def encode(body: Any, write: Callable[[Any], bytes] = exact_json) -> bytes:
    """A body as JSON text. Raises RejectedRecord for what a step made and JSON cannot hold."""
    try:
        return write(body)
    except UnicodeEncodeError:
        raise RejectedRecord("step", "text with a lone surrogate") from None
    except RecursionError:
        raise RejectedRecord("step", "nested too deeply") from None
    except ValueError:
        raise RejectedRecord("step", f"an integer of more than {LONGEST_TEXT} digits") from None


def encode_sorted(body: Any) -> bytes:
    """Encodes with sorted keys: objects that differ only in their order become equal."""
    return encode(body, _sorted)


def parse(raw: bytes | None) -> Any:
    """The body of a message: its JSON value, or `NotJson`.

    Raises RejectedRecord for JSON that cannot be held exactly, for a duplicate key in one
    object, and for invalid UTF-8.
    """
    if raw is None or not raw.strip():
        return NotJson(raw)
    try:
        body = _decode(raw)
        kept = exact_json(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _not_json(raw, error)
    if kept != raw and (raw.count(b":") != kept.count(b":") or b"\\" in raw):
        _check_unique(raw)
    return body


def parse_all(texts: Sequence[bytes]) -> list[Any]:
    """The JSON values of many messages; each of them is JSON, and can be held exactly.

    Raises an error of any kind where `parse` raises one for a text, or finds no JSON in it.
    """
    bodies = list(map(_decode, texts))
    kept = list(map(exact_json, bodies))
    if kept != texts:
        for raw, one in zip(texts, kept, strict=True):
            if one != raw and (raw.count(b":") != one.count(b":") or b"\\" in raw):
                _check_unique(raw)
    return bodies


def _check_unique(raw: bytes) -> None:
    """Asked where neither the text nor its colons prove it: a lost key has taken its own along."""
    try:
        json.loads(raw, object_pairs_hook=_unique)
    except RecursionError:
        raise RejectedRecord("decode", "nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise RejectedRecord("decode", f"the key {name!r} is a duplicate in one object")
        seen.add(name)


def _not_json(raw: bytes, error: Exception) -> NotJson:
    """`NotJson` when a second, lenient parser finds no JSON either; else the record is rejected."""
    try:
        json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as bad:
        raise RejectedRecord("decode", f"invalid UTF-8 at byte {bad.start}") from None
    except json.JSONDecodeError:
        return NotJson(raw)
    except (ValueError, RecursionError):
        pass  # an integer too long, or nesting too deep: JSON all the same
    if isinstance(error, RecursionError):
        raise RejectedRecord("decode", "nested too deeply")
    # What only the lenient parser reads: "\\ud800" without its other half, or an integer too long.
    what = "an integer too long" if "Integer" in str(error) else "text with a lone surrogate"
    raise RejectedRecord("decode", f"JSON that cannot be kept exactly: {what}")


def _no_constant(name: str) -> None:
    raise json.JSONDecodeError("not JSON", name, 0)


def value_at(value: Any, path: Iterable[str | int]) -> Any:
    """Returns the value at a path of keys and places in lists; None where there is none."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def text(body: Any) -> bytes | None:
    """A body as the bytes that a sink decodes."""
    return body.raw if isinstance(body, NotJson) else encode(body)


def text_form(value: Any) -> str:
    """A value as text, for comparisons and casts (reference section 4.1).

    Strings as they are, `true` and `false`, null as nothing, numbers in their shortest decimal form
    without exponent, objects and arrays as JSON, times of the metadata as RFC 3339 in UTC. Raises
    RejectedRecord for a number too long.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return _integer_text(value)
    if isinstance(value, Decimal):
        return _decimal_text(value)
    return _time_text(value) if isinstance(value, datetime) else encode(value).decode()


def at(name: str, form: Callable[[Any], Form], value: Any) -> Form:
    """`form(value)`, its rejection telling where the value stands."""
    try:
        return form(value)
    except RejectedRecord as error:
        raise RejectedRecord("step", f"{name}: {error.reason}") from None


def _integer_text(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        raise _too_long() from None


def _decimal_text(value: Decimal) -> str:
    if not value:
        return "0"  # `0e999999999` and -0.0 too
    if abs(value.adjusted()) > LONGEST_TEXT:
        raise _too_long()
    digits = format(value, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _too_long() -> RejectedRecord:
    return RejectedRecord("step", f"a number of more than {LONGEST_TEXT} digits")


def _time_text(value: datetime) -> str:
    """RFC 3339 in UTC, a fraction only as long as it must be."""
    utc = value.astimezone(UTC)
    fraction = f".{utc.microsecond:06}".rstrip("0") if utc.microsecond else ""
    return f"{utc:%Y-%m-%dT%H:%M:%S}{fraction}Z"
