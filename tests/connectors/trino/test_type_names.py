"""Names of types as Trino spells them: it shows the names of fields without quotes. No server."""

from __future__ import annotations

import pytest

from dataflow_assets.connectors.trino.type_names import TrinoType


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("timestamp(6) with time zone", '"field1" timestamp(6) with time zone'),
        ("timestamp with time zone", '"field1" timestamp with time zone'),
        ("timestamp timestamp(6) with time zone", '"timestamp" timestamp(6) with time zone'),
        ("timestamp timestamp with time zone", '"timestamp" timestamp with time zone'),
        ("time time(6)", '"time" time(6)'),
        ("time", '"field1" time'),
        ("double double", '"double" double'),
        ("double precision", '"field1" double precision'),
        ("interval day to second", '"field1" interval day to second'),
        ("interval interval day to second", '"interval" interval day to second'),
        ("interval varchar", '"interval" varchar'),
        ("first name varchar(20)", '"first name" varchar(20)'),
        ("decimal(10, 2)", '"field1" decimal(10, 2)'),
        ("net (eur) decimal(10, 2)", '"net (eur)" decimal(10, 2)'),
        ("array(row(time time(3)))", '"field1" array(row("time" time(3)))'),
        ("row row(a b c bigint)", '"row" row("a b c" bigint)'),
        ('"b, c" varchar', '"b, c" varchar'),
    ],
)
def test_a_field_of_a_row(text: str, spelled: str) -> None:
    assert TrinoType.of(f"row({text})").spelling == f"row({spelled})"
    both = TrinoType.of(f"row({text}, last bigint)")
    assert both.spelling == f'row({spelled}, "last" bigint)'
