"""JSON values -> values of the columns, by the rules of Flink's formats."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from dataflow_assets.languages.sql.engine.bytes.layout import FlinkLayout
from dataflow_assets.languages.sql.engine.bytes.read_times import Read, time_reader
from dataflow_assets.languages.sql.engine.casts import cast, or_null
from dataflow_assets.languages.sql.engine.numbers import (
    bounds,
    number_reader,
    rounder,
    single,
    wrap_around,
)
from dataflow_assets.languages.sql.engine.types import DOUBLE, STRING, FlinkType
from dataflow_assets.records.record import exact_json

_UTC = ZoneInfo("UTC")
_MOST_DIGITS = 20  # before the point, of any whole number
_double_of_text = number_reader(DOUBLE)


class FlinkReader:
    """Reads parsed bodies of one layout; made once for each task."""

    def __init__(self, layout: FlinkLayout, used: frozenset[int] | None = None) -> None:
        """`used`: the columns that somebody looks at, all by default; the others become null.

        `reads`: what reads the value of each column.
        """
        self._layout = layout
        if layout.kind == "csv":
            self.reads = [_of_text(one, layout) for one in layout.types]
        else:
            self.reads = [reader(one, layout) for one in layout.types]
        if used is not None:
            pairs = enumerate(self.reads)
            self.reads = [read if at in used else _read_nothing for at, read in pairs]

    def __call__(self, body: Any) -> list[Any] | None:
        """The values in the order of the layout; None where the bytes are to be skipped.

        Raises ValueError, with a sentence that names the column and no value.
        """
        try:
            fields = self.fields(body)
        except ValueError:
            if self._layout.ignore_errors:
                return None
            raise
        pairs = zip(self.reads, fields, strict=True)
        try:
            return [None if value is None else read(value) for read, value in pairs]
        except (ValueError, OverflowError):
            columns = zip(self._layout.names, self.reads, fields, strict=True)
            return [self._one(name, read, value) for name, read, value in columns]

    def has(self, body: Any, at: int) -> bool:
        """Returns whether the bytes have a column at all, be it null."""
        is_object = self._layout.kind == "json" and isinstance(body, dict)
        return not is_object or self._layout.names[at] in body

    def fields(self, body: Any) -> Sequence[Any]:
        """Returns what a body has for each column, not read yet. Raises ValueError."""
        names = self._layout.names
        if self._layout.kind == "raw":
            return [body]
        if self._layout.kind == "csv":
            return self._of_csv(body)
        if not isinstance(body, dict):
            raise ValueError("the record is not a JSON object")  # noqa: TRY004
        if self._layout.fail_on_missing:
            _check_fields(body, names)
        return list(map(body.get, names))

    def _of_csv(self, body: Any) -> Sequence[Any]:
        cells: list[Any] = list(body)
        missing = len(self._layout.names) - len(cells)
        if missing == -1 and cells[-1] == "":  # a delimiter behind the last column
            return cells[:-1]
        if missing and not (self._layout.ignore_errors and missing > 0):
            raise ValueError(f"{len(cells)} columns instead of {len(self._layout.names)}")
        return cells + [None] * missing

    def _one(self, name: str, read: Read, value: Any) -> Any:
        if value is None:
            return None
        try:
            return read(value)
        except (ValueError, OverflowError) as error:
            if self._layout.ignore_errors:
                return None
            raise ValueError(f"the field {name}: {error}") from None


def _read_nothing(_: Any) -> None: ...


def reader(kind: FlinkType, layout: FlinkLayout) -> Read:
    """Returns what reads a JSON value of a type."""
    if kind.text:
        return _text
    if kind.integer:
        return _whole_numbers(kind)
    if kind.kind == "DECIMAL":
        cut = rounder(kind)
        return lambda value: cut(_decimal(value))
    if kind.kind in _SIMPLE:
        return _SIMPLE[kind.kind]
    if kind.moment or kind.kind in ("DATE", "TIME"):
        return time_reader(kind, layout)
    return _read_nested(kind, layout)


def _text(value: Any) -> str:
    """Numbers as they are written, objects and arrays as JSON."""
    if value.__class__ is str:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return exact_json(value).decode() if isinstance(value, dict | list) else str(value)


def _whole_numbers(kind: FlinkType) -> Read:
    least, most = bounds(kind.kind)

    def read(value: Any) -> int:
        return value if value.__class__ is int and least <= value <= most else _whole(value, kind)

    return read


def _whole(value: Any, kind: FlinkType) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise ValueError(f"not a number, as {kind} needs it")  # noqa: TRY004 - of a record
    if isinstance(value, Decimal) and value.adjusted() > _MOST_DIGITS:
        raise ValueError(f"a number beyond the range of {kind}")  # written out it fills the memory
    try:
        number = int(_digits(value) if isinstance(value, str) else value)
    except (ValueError, InvalidOperation):
        raise ValueError(f"not a number, as {kind} needs it") from None
    if number != wrap_around(kind.kind, number):
        raise ValueError(f"a number beyond the range of {kind}")
    return number


def _digits(text: str) -> str:
    """Python reads `1_000` as a number, and Java does not."""
    if "_" in text:
        raise ValueError("not a number")
    return text.strip()


def _decimal(value: Any) -> Decimal:
    if value.__class__ is Decimal:
        return value
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise ValueError("not a number, as DECIMAL needs it")  # noqa: TRY004 - of a record
    try:
        number = Decimal(_digits(value) if isinstance(value, str) else value)
    except (ValueError, InvalidOperation):
        raise ValueError("not a number, as DECIMAL needs it") from None
    if not number.is_finite():
        raise ValueError("not a number, as DECIMAL needs it")
    return number


def _double(value: Any) -> float:
    if value.__class__ is Decimal or value.__class__ is int:
        return float(value)
    if not isinstance(value, str):
        raise ValueError("not a number, as DOUBLE needs it")  # noqa: TRY004 - of a record
    number: float = _double_of_text(value)
    return number


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except binascii.Error:
        raise ValueError("not base64, as BYTES needs it") from None


def _boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else _text(value).strip().lower() == "true"


_SIMPLE: Mapping[str, Read] = {
    "BOOLEAN": _boolean,
    "DOUBLE": _double,
    "FLOAT": lambda value: single(_double(value)),
    "VARBINARY": _bytes,
}


def _read_nested(kind: FlinkType, layout: FlinkLayout) -> Read:
    inner = [_part(reader(one, layout), layout) for one in kind.items]
    if kind.kind == "ARRAY":
        return lambda value: [inner[0](one) for one in _is(value, list, "array")]
    if kind.kind == "MAP":
        return lambda value: {
            inner[0](name): inner[1](one) for name, one in _is(value, dict, "object").items()
        }
    pairs = list(zip(kind.names, inner, strict=True))

    def read(value: Any) -> list[Any]:
        members = _is(value, dict, "object")
        if layout.fail_on_missing:
            _check_fields(members, kind.names)
        return [one(members.get(name)) for name, one in pairs]

    return read


def _part(read: Read, layout: FlinkLayout) -> Read:
    """An item or field, null where it is null, or cannot be read and errors are ignored."""
    if not layout.ignore_errors:
        return or_null(read)

    def lenient(value: Any) -> Any:
        try:
            return None if value is None else read(value)
        except (ValueError, OverflowError):
            return None

    return lenient


def _check_fields(body: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if name not in body:
            raise ValueError(f"the field {name} is missing")


def _is(value: Any, wanted: type, name: str) -> Any:
    if not isinstance(value, wanted):
        raise ValueError(f"not a JSON {name}")  # noqa: TRY004
    return value


def _of_text(kind: FlinkType, layout: FlinkLayout) -> Read:
    """A cell of CSV; an empty one is an empty text, and an error for everything else."""
    if kind.text:
        return _text
    if kind.kind == "ARRAY":
        inner, between = _part(_of_text(kind.items[0], layout), layout), layout.array_delimiter
        null = layout.null_literal

        def items(cell: str) -> list[Any]:
            parts = (one.strip() for one in cell.split(between))
            return [inner(None if one == null else one) for one in parts] if cell else []

        return items
    if kind.moment or kind.kind in ("BOOLEAN", "DATE", "DECIMAL", "TIME", "VARBINARY"):
        return reader(kind, layout)
    change = cast(STRING, kind, _UTC)
    assert change is not None, "was looked at when the file was loaded"  # noqa: S101
    return lambda cell: change(cell.strip())
