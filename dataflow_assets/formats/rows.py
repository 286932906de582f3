"""Typed rows as JSON: for steps, for bodies that are stored whole, for rejected rows.

| Arrow | JSON |
|---|---|
| integers, decimals, KIND numeric | number with all its digits; NaN and infinities as text |
| float32, float64 | the shortest number that reads back the same; NaN and infinities as text |
| timestamp | RFC 3339 in UTC, as many digits of a second as it has; a naive one counts as UTC |
| date32, time64 | `2026-01-31`, `23:59:59.5` |
| infinite dates and timestamps | `infinity`, `-infinity` |
| binary | base64 |
| KIND json | the JSON itself |
| string, KIND uuid, KIND text | text |
| duration | ISO 8601: `PT3600.5S` |
| list, struct and map | array, object |
"""

from __future__ import annotations

import base64
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import ABSENT, SYSTEM_COLUMNS, Kind, Note, kind_of, system_name
from dataflow_assets.formats.iso_forms import DAY
from dataflow_assets.records.record import exact_json, parse

INFINITY, MINUS_INFINITY = "infinity", "-infinity"

_DIGITS = r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$"


def is_beside(field: pa.Field) -> bool:
    """Tells columns that travel with the rows from the table's own: metadata, place, absence."""
    return not {Note.LACKS, Note.METADATA, Note.PLACE, Note.UNFIT}.isdisjoint(field.metadata or ())


def table_columns(schema: pa.Schema) -> list[pa.Field]:
    return [f for f in schema if f.name not in SYSTEM_COLUMNS and not is_beside(f)]


def objects(batch: pa.RecordBatch) -> list[bytes]:
    """Each row as a JSON object, keys in the order of the columns, absent values left out."""
    fields = table_columns(batch.schema)
    names = [field.name for field in fields]
    columns = [cells(batch.column(field.name), field) for field in fields]
    for row, values in unfit_values(batch).items():
        for name, value in values.items():
            columns[names.index(name)][row] = value
    if not columns:
        return [b"{}"] * batch.num_rows
    rows = zip(*columns, strict=True)
    if ABSENT not in batch.schema.names:
        return [exact_json(dict(zip(names, row, strict=True))) for row in rows]
    masks = batch.column(ABSENT).to_pylist()
    return [
        exact_json(_present_values(names, row, mask)) for row, mask in zip(rows, masks, strict=True)
    ]


def _present_values(names: Sequence[str], row: Sequence[Any], mask: bytes | None) -> dict[str, Any]:
    absent = int.from_bytes(mask or b"", "little")
    pairs = enumerate(zip(names, row, strict=True))
    return {name: value for at, (name, value) in pairs if not absent >> at & 1}


def unfit_column(values: Mapping[int, Mapping[str, Any]], rows: int) -> tuple[pa.Field, pa.Array]:
    """The column marked UNFIT. Called by sources, where they make batches of typed rows.

    Args:
        values: by row and column, as the JSON encoder takes them.
        rows: how many the batch has.
    """
    texts = [exact_json(values[row]) if row in values else None for row in range(rows)]
    field = pa.field(system_name("unfit"), pa.binary(), metadata={Note.UNFIT: b"1"})
    return field, pa.array(texts, pa.binary())


def unfit(batch: pa.RecordBatch) -> pa.Array | None:
    """The column marked UNFIT; None where all values fit."""
    at = next((at for at, one in enumerate(batch.schema) if Note.UNFIT.marks(one)), None)
    return None if at is None else batch.column(at)


def unfit_values(batch: pa.RecordBatch) -> dict[int, dict[str, msgspec.Raw]]:
    """Returns the values that do not fit, by row and column."""
    texts = unfit(batch)
    if texts is None:
        return {}
    return {
        row: msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        for row, text in enumerate(texts.to_pylist())
        if text is not None
    }


def values(column: pa.Array, field: pa.Field) -> list[Any]:
    return [parse(bytes(v)) if isinstance(v, msgspec.Raw) else v for v in cells(column, field)]


def cells(column: pa.Array, field: pa.Field) -> list[Any]:
    """The values as the JSON encoder takes them."""
    kind, arrow = kind_of(field), field.type
    if kind == Kind.JSON:
        return [None if text is None else msgspec.Raw(text.encode()) for text in column.to_pylist()]
    if kind == Kind.NUMERIC:
        return _numbers(column)
    if pa.types.is_floating(arrow):
        return [None if value is None else fraction(value) for value in _floats(column)]
    if pa.types.is_binary(arrow):
        items = column.to_pylist()
        return [None if value is None else base64.b64encode(value).decode() for value in items]
    if pa.types.is_duration(arrow):
        counts = column.cast(pa.duration("us")).cast(pa.int64()).to_pylist()
        return [None if count is None else _iso(count) for count in counts]
    if pa.types.is_temporal(arrow):
        return moments(column)
    return _nested_cells(column, arrow) if pa.types.is_nested(arrow) else column.to_pylist()


def moments(column: pa.Array) -> list[str | None]:
    endless = infinite(column)
    texts: list[str | None] = _moment_texts(without(column, endless)).to_pylist()
    for row, text in enumerate(texts):
        if text is not None and text.startswith("<"):  # Arrow writes none beyond the year 32767
            texts[row] = _far(column[row])
    for row, text in endless.items():
        texts[row] = text
    return texts


def _far(value: pa.Scalar) -> str:
    """A moment that Arrow has no text for; of times of day that is midnight at the day's end."""
    if pa.types.is_time(value.type):
        return "24:00:00"
    if pa.types.is_date(value.type):
        return str(np.datetime64(value.value, "D"))
    text = str(np.array([value.value]).astype(f"datetime64[{value.type.unit}]")[0])
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z"


def _moment_texts(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        texts = pc.cast(column.cast(pa.timestamp(column.type.unit)), pa.string())
        texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(_short(texts), "Z", "")
    texts = pc.cast(column, pa.string())
    return _short(texts) if pa.types.is_time(column.type) else texts


def _short(texts: pa.Array) -> pa.Array:
    """Without the zeros at the end of a fraction."""
    texts = pc.replace_substring_regex(texts, r"(\.\d*[1-9])0+$", r"\1")
    return pc.replace_substring_regex(texts, r"\.0+$", "")


def infinite(column: pa.Array) -> dict[int, str]:
    """Which rows of a date or timestamp column are infinite, and how that is written."""
    if pa.types.is_time(column.type) or len(column) == 0:
        return {}
    whole = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    limits = np.iinfo(whole.to_pandas_dtype())
    numbers = pc.fill_null(column.view(whole), 0).to_numpy()
    low, high = np.flatnonzero(numbers == limits.min), np.flatnonzero(numbers == limits.max)
    return {int(row): MINUS_INFINITY for row in low} | {int(row): INFINITY for row in high}


def endless(column: pa.Array) -> dict[int, str]:
    """Which rows hold what few systems store: infinite moments, and midnight at a day's end."""
    if not pa.types.is_time64(column.type) or column.type.unit != "us":
        return infinite(column)
    late = pc.greater_equal(column.view(pa.int64()), DAY).fill_null(False)
    return dict.fromkeys(np.flatnonzero(late.to_numpy(zero_copy_only=False)).tolist(), "24:00:00")


def without(column: pa.Array, rows: Collection[int]) -> pa.Array:
    """The column with null in these rows."""
    if not rows:
        return column
    mask = np.zeros(len(column), bool)
    mask[list(rows)] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, column.type), column)


def _numbers(column: pa.Array) -> list[Any]:
    proper = pc.fill_null(pc.match_substring_regex(column, _DIGITS), True).to_pylist()
    return [
        msgspec.Raw(text.encode()) if text is not None and number else text
        for text, number in zip(column.to_pylist(), proper, strict=True)
    ]


def _floats(column: pa.Array) -> Sequence[float | None]:
    """A float32 as the shortest decimal that reads back the same, not with a double's digits."""
    if column.type == pa.float64():
        return column.to_pylist()  # type: ignore[no-any-return]
    floats = column.cast(pa.float32()).to_pylist()
    return [None if value is None else float(str(np.float32(value))) for value in floats]


def short_fraction(value: float) -> float | str:
    """A float of 32 bits as JSON: the shortest decimal that reads back the same."""
    return float(str(np.float32(value))) if math.isfinite(value) else fraction(value)


def fraction(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _nested_cells(column: pa.Array, arrow: pa.DataType) -> list[Any]:
    valid = column.is_valid().to_pylist()
    if pa.types.is_struct(arrow):
        children = [cells(column.field(i), arrow.field(i)) for i in range(arrow.num_fields)]
        names = [field.name for field in arrow]
        rows = zip(*children, strict=True) if children else [()] * len(column)
        structs = [dict(zip(names, row, strict=True)) for row in rows]
        return [row if there else None for row, there in zip(structs, valid, strict=True)]
    bounds = column.offsets.to_pylist()
    spans = zip(bounds[:-1], bounds[1:], valid, strict=True)
    if pa.types.is_map(arrow):
        keys = map(_name, cells(column.keys, arrow.key_field))
        pairs = list(zip(keys, cells(column.items, arrow.item_field), strict=True))
        return [dict(pairs[start:end]) if there else None for start, end, there in spans]
    items = cells(column.values, arrow.value_field)
    return [items[start:end] if there else None for start, end, there in spans]


def _name(key: Any) -> str:
    return key if isinstance(key, str) else exact_json(key).decode()


def _iso(count: int) -> str:
    """Microseconds as a duration of ISO 8601."""
    sign, (seconds, rest) = "-" if count < 0 else "", divmod(abs(count), 1_000_000)
    return f"{sign}PT{seconds}" + (f".{rest:06}".rstrip("0") if rest else "") + "S"
