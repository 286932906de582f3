"""DataFrames into tables of Trino: times that a column would round are refused by its name."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.trino.frames.digits import refuse_rounding
from dataflow_assets.connectors.trino.table.table import Column
from dataflow_assets.errors import PermanentError

LATE = datetime(2026, 1, 1, 23, 59, 59, 999999, UTC)
EARLY = datetime(1906, 1, 1, 23, 59, 59, 999000, UTC)


def column_of(kind: str, values: list[Any]) -> tuple[pa.RecordBatch, Column]:
    """A batch as rows of a sink travel."""
    column = Column("My col", kind)
    return pa.record_batch([pa.array(values, column.field.type)], names=[column.name]), column


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp(3)", LATE),
        ("timestamp(0) with time zone", LATE),
        ("time(5)", time(23, 59, 59, 999999)),
        ("array(timestamp(3))", [LATE.replace(microsecond=0), None, LATE]),
        ("map(varchar, timestamp(3))", [("k", EARLY), ("l", LATE)]),
        ("row(a integer, b array(time(3)))", {"a": 1, "b": [time(0, 0, 0, 1)]}),
    ],
)
def test_digits_of_a_second_that_would_be_rounded_are_refused(kind: str, value: Any) -> None:
    batch, column = column_of(kind, [None, value])
    with pytest.raises(PermanentError, match=r"column My col: .*digits of a second than "):
        refuse_rounding("hive.s.t", batch, [column])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp(3) with time zone", EARLY),
        ("timestamp(6)", LATE),
        ("time(0)", time(23, 59, 59)),
        ("array(timestamp(3))", []),
        ("map(varchar, timestamp(3))", [("k", EARLY)]),
        ("decimal(10, 2)", None),
    ],
)
def test_what_the_column_keeps_is_left_alone(kind: str, value: Any) -> None:
    batch, column = column_of(kind, [None, value])
    refuse_rounding("hive.s.t", batch, [column])
    assert column.field.type == batch.schema.types[0]
