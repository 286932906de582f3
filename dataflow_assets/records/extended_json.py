"""MongoDB's Extended JSON: values that say their own type, as the values that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from decimal import Decimal, InvalidOperation
from typing import Any

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.connect_times import moment
from dataflow_assets.records.times.instant import read, rfc3339_nano

_MOMENT = moment(1_000)


def plain(value: Any) -> Any:
    """The value without marks of types, nested ones too.

    Called by steps inside tasks, once for each document. ObjectIds, UUIDs and symbols become text,
    numbers numbers with all digits, dates text in RFC 3339, binary data text in base64. Other types
    of MongoDB stay objects.

    Raises:
        RejectedRecord: a number or a date is none.
    """
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    form = _FORMS.get(name)
    if form is None or value.keys() - {"$type"} != {name}:
        return {key: plain(item) for key, item in value.items()}
    try:
        return form(value[name])
    except (ValueError, InvalidOperation, TypeError):
        raise RejectedRecord("step", f"a value of {name} cannot be read") from None


def _number(value: Any) -> Any:
    """NaN and the infinities stay texts: JSON has no numbers for them."""
    number = Decimal(value)
    return number if number.is_finite() else value


def _date(value: Any) -> Any:
    date = plain(value)
    return _MOMENT(date) if isinstance(date, int) else rfc3339_nano(read(date, UTC))


def _binary(value: Any) -> Any:
    return value["base64"] if isinstance(value, Mapping) else value


_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "$oid": str,
    "$uuid": str,
    "$symbol": str,
    "$numberInt": int,
    "$numberLong": int,
    "$numberDouble": _number,
    "$numberDecimal": _number,
    "$date": _date,
    "$binary": _binary,
    "$undefined": lambda _: None,
}
