"""Values at the edge of what others can hold, without a server: none ends a task unexplained."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.decode import batches
from dataflow_assets.connectors.trino.source.dialect import TrinoDialect
from dataflow_assets.connectors.trino.source.relation import TrinoColumn
from dataflow_assets.connectors.trino.table.table import Column
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.rows import moments
from dataflow_assets.sdk.sql_table import SqlRelation
from dataflow_assets.sdk.sql_table.conditions import Conditions
from dataflow_assets.sdk.sql_table.positions import Rows

DAY = 24 * 3600


def read(kind: str, values: list[Any]) -> pa.Array:
    column = Column("c", kind)
    (batch,) = batches(iter([[[value] for value in values]]), [(column, types.field("c", kind))])
    return batch.column("c")


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("date", ["+12345-01-01", "-0044-03-15", "2020-02-29", None]),
        ("timestamp(6)", ["+12345-01-01 00:00:00.123456", "-0044-03-15 00:00:00.000000", None]),
        ("timestamp(0)", ["+12345-01-01 00:00:00", "0001-01-01 00:00:00"]),
        ("timestamp(3) with time zone", ["+12345-01-01 00:00:00.123"]),
        ("array(timestamp(6) with time zone)", [["+12345-01-01 00:00:00.000000 UTC", None]]),
    ],
)
def test_years_of_more_and_of_less_than_four_digits(kind: str, texts: list[Any]) -> None:
    """As Trino writes them, and as rows write them."""
    found = read(kind, texts)
    flat, wanted = (found.values, texts[0]) if kind.startswith("array") else (found, texts)
    shown = [None if one is None else moments(flat)[at] for at, one in enumerate(wanted)]
    assert shown == [None if one is None else _plain(one) for one in wanted]


def _plain(text: str) -> str:
    text = text.removeprefix("+").removesuffix(" UTC")
    if " " not in text:
        return text
    text = text.replace(" ", "T")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp(9)", "2300-01-01 00:00:00.000000000"),
        ("timestamp(9) with time zone", "1600-01-01 00:00:00.000000000"),
        ("timestamp(6)", "+300000-01-01 00:00:00.000000"),
        ("array(timestamp(6) with time zone)", ["+300000-01-01 00:00:00.000000 UTC"]),
    ],
)
def test_a_time_that_nobody_else_can_hold_is_a_sentence(kind: str, value: Any) -> None:
    """It would be read again and again: the query must cast it."""
    with pytest.raises(PermanentError, match=r"column c has a value that is none of .*`query`"):
        read(kind, ["2020-01-01 00:00:00" if isinstance(value, str) else [], value])


@pytest.mark.parametrize("kind", ["real", "double"])
def test_nan_has_no_place_in_the_order_of_a_table(kind: str) -> None:
    """As NULL has none: a comparison with NaN would leave the row out of every part."""
    relation = SqlRelation("t", (), TrinoColumn("v", kind))
    conditions = Conditions(relation, TrinoDialect())
    first = conditions.of(Rows(upto=(None, "2.0"), load=True))
    assert first.endswith('OR (if(is_nan("v"), NULL, "v") IS NULL))')
