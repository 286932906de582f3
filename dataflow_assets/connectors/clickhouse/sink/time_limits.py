"""Times that a column would take and turn into others: the table must not be asked."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.clickhouse.type_names import Type
from dataflow_assets.connectors.clickhouse.types import CLICKHOUSE_TYPE

_DAYS = (date(1970, 1, 1), date(2149, 6, 6))
_SECONDS = (datetime(1970, 1, 1, tzinfo=UTC), datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC))
_LIMITS = {"Date": _DAYS, "DateTime": _SECONDS, "DateTime32": _SECONDS}


def beyond(rows: pa.RecordBatch, schema: pa.Schema) -> dict[int, str]:
    """By row: why a time does not fit its column."""
    found: dict[int, str] = {}
    for field in schema:
        limits = _LIMITS.get(_bare(field))
        if limits is None or not pa.types.is_temporal(field.type):
            continue
        low, high = (pa.scalar(limit, field.type) for limit in limits)
        column = rows.column(field.name)
        wrong = pc.or_(pc.less(column, low), pc.greater(column, high)).fill_null(False)
        for at in np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist():
            reason = f"{column[at]} lies outside {limits[0]} to {limits[1]}"
            found.setdefault(at, f"column {field.name}: {reason}")
    return found


def _bare(field: pa.Field) -> str:
    text = (field.metadata or {}).get(CLICKHOUSE_TYPE, b"").decode()
    return Type.of(text).bare.name if text else ""
