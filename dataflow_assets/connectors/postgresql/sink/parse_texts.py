"""Texts as the values that PostgreSQL reads in them, where they have a usual form.

What a number, a date or a time means is for PostgreSQL to say, and to parse it costs PostgreSQL
more than to store it. A text of these forms has one meaning in all of its versions and under all of
its settings, so it is parsed here, a column at once. Arrow reads other forms too, and some of them
otherwise: each parser refuses those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.sink.encode_numerics import usual
from dataflow_assets.connectors.postgresql.sink.encode_uuids import canonical
from dataflow_assets.connectors.postgresql.table.column import PARSED
from dataflow_assets.formats.text_forms import all_have

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_ZONE = "(Z|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)"
_ZERO = r"^-?0*\.?0*$"
_FIRST_DAY = -719_162  # 0001-01-01: PostgreSQL refuses the year 0, and counts other ones before it
_FIRST_MOMENT = _FIRST_DAY * 86_400_000_000
_TRIED = 64  # rows whose texts are looked at before all others are

Parser = Callable[[pa.Array], pa.Array | None]


def parse_values(rows: pa.RecordBatch) -> pa.RecordBatch | None:
    """The rows with the columns whose fields have PARSED as values; None: as PostgreSQL reads them.

    Called in tasks, once for each block of rows; a few rows are tried first, for where one block
    has another form, most blocks have.
    """
    few = rows.num_rows > _TRIED and _parse(rows.slice(0, _TRIED)) is None
    return None if few else _parse(rows)


def _parse(rows: pa.RecordBatch) -> pa.RecordBatch | None:
    arrays = []
    for texts, field in zip(rows.columns, rows.schema, strict=True):
        base = (field.metadata or {}).get(PARSED)
        found = texts if base is None else _values(texts, base.decode())
        if found is None:
            return None
        arrays.append(found)
    fields = [field.with_type(a.type) for field, a in zip(rows.schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _values(texts: pa.Array, base: str) -> pa.Array | None:
    try:
        return PARSERS[base](texts)
    except pa.ArrowInvalid:
        return None


def _booleans(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.bool_())  # true, false, 1 and 0


def _integers(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Digits; Arrow reads hexadecimal ones too, and not all versions of PostgreSQL do."""
    present = texts.drop_null()
    if len(present):
        _, offsets, data = present.buffers()
        bounds = np.frombuffer(offsets, np.int32)[present.offset :][: len(present) + 1]
        letters = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
        if letters.max(initial=0) > ord("9"):
            return None
    return texts.cast(kind)


def _floats(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Numbers within range: PostgreSQL refuses those that become infinite, or zero."""
    found = texts.cast(kind)
    sizes = np.abs(found.drop_null().to_numpy())
    limits = np.finfo(sizes.dtype)
    small = pa.array(~((sizes >= limits.tiny) & (sizes <= limits.max)))
    return found if all_have(_ZERO, texts.drop_null().filter(small)) else None


def _dates(texts: pa.Array) -> pa.Array | None:
    return _since(texts.cast(pa.date32()), _FIRST_DAY) if all_have(f"^{_DATE}$", texts) else None


def _times(texts: pa.Array) -> pa.Array | None:
    if not all_have(f"^{_TIME}$", texts):
        return None
    first_day = pc.binary_join_element_wise("1970-01-01", texts, "T")
    return first_day.cast(pa.timestamp("us")).view(pa.int64()).view(pa.time64("us"))


def _naive(texts: pa.Array) -> pa.Array | None:
    """A zone says nothing in this type; behind the UTC of many producers none is looked for."""
    if not all_have(f"^{_DATE}[ T]{_TIME}Z?$", texts):
        return None
    return _since(pc.ascii_rtrim(texts, "Z").cast(pa.timestamp("us")), _FIRST_MOMENT)


def _aware(texts: pa.Array) -> pa.Array | None:
    """All with a zone, or all in that of our sessions."""
    if not all_have(f"^{_DATE}[ T]{_TIME}{_ZONE}?$", texts):
        return None
    try:
        found = texts.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:  # one has no zone
        found = texts.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return _since(found, _FIRST_MOMENT)


def _since(values: pa.Array, first: int) -> pa.Array | None:
    """The values; None where one is before the first that PostgreSQL reads as it is written."""
    numbers = values.view(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    return None if pc.any(pc.less(numbers, first)).as_py() else values


PARSERS: Mapping[str, Parser] = {
    "bool": _booleans,
    "int2": partial(_integers, kind=pa.int16()),
    "int4": partial(_integers, kind=pa.int32()),
    "int8": partial(_integers, kind=pa.int64()),
    "float4": partial(_floats, kind=pa.float32()),
    "float8": partial(_floats, kind=pa.float64()),
    "numeric": usual,
    "uuid": canonical,
    "date": _dates,
    "time": _times,
    "timestamp": _naive,
    "timestamptz": _aware,
}
"""By base type; each gives None, or raises ArrowInvalid, where one text has another form."""
