"""Texts in usual forms: what is parsed here is what PostgreSQL makes of the same text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import devservers
from dataflow_assets.connectors.postgresql.client import BinaryLink
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.sink.encode_copy import copy_rows
from dataflow_assets.connectors.postgresql.sink.parse_texts import PARSERS, Parser, parse_values
from dataflow_assets.connectors.postgresql.table.column import PARSED
from dataflow_assets.connectors.postgresql.table.table import DRIVER, find
from dataflow_assets.languages.justone.postgresql.session import text_schema
from tests.examples import examples

INTEGERS = """
0 -0 7 -7 007 000000000000000000000000001 32767 32768 -32768 -32769 2147483647 2147483648
-2147483648
9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
"""
FRACTIONS = """
0.1 -0.30 1. .5 -.5 -0.0 0. 1e5 1E-5 1.5e+3 0e5 0e-999 1e400 -1e400 1e-400 1e-310 4.9e-324 2e-324
1.7976931348623157e308 1.7976931348623159e308 2.2250738585072014e-308 2.2250738585072011e-308
3.4028235e38 3.4028236e38 1.17549435e-38 1.1754943e-38 1e-46 1.401298464324817e-45 16777217
16777217.0000001 9007199254740993 0.1000000000000000055511151231257827
123456789012345678901234567890
"""
DATES = """
2026-11-21 0001-01-01 0000-01-01 9999-12-31 1582-10-10 2024-02-29 2026-02-29 2026-02-30 2026-13-01
2026-00-10 2026-01-00 -0001-01-01 12026-01-01 2026-1-1 26-01-01 20260101 0001-12-31
"""
TIMES = """
00:00:00 23:59:59 23:59:59.999999 23:59:59.9999999 24:00:00 23:59:60 10:00:00.5 10:00:00. 1:00:00
10:00 25:00:00 10:60:00 00:00:00.000001
"""
ZONES = ["", "Z", "z", " Z", "+00", "-00:00", "+02:00", "-0330", "+14:59", "-14:59", "+15:59",
         "+16:00", "+2", "+02:60", "+02:00:30", " UTC"]  # fmt: skip
ZONED = re.compile(r"(Z|[+-][0-9:]+)$", re.ASCII)  # of a moment with a time
MOMENTS = [
    f"{day}{between}{time}{zone}"
    for day in ("2026-11-21", "0001-01-01", "0000-01-01", "9999-12-31", "2026-02-30")
    for between in "T t"
    for time in TIMES.split()
    for zone in ZONES
]
WORDS = ["", " ", " 1", "1 ", "+1", "--1", "1-", "-", ".", "1.2.3", "1e", "e5", "1_000", "0x1F",
         "x",
         "0b1", "0o7", "NaN", "nan", "Infinity", "-inf", "infinity", "today", "now", "null", "t",
         "true", "TRUE", "True", "truE", "false", "1", "0", "yes", "on", "tr", "٣", "1\n", "\t1",
         "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
         "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "a0eebc999c0b4ef8bb6d6bb9bd380a11"]  # fmt: skip
ODD = [*INTEGERS.split(), *FRACTIONS.split(), *DATES.split(), *TIMES.split(), *MOMENTS, *WORDS]
TYPES = {
    "bool": ["boolean"],
    "int2": ["smallint"],
    "int4": ["integer"],
    "int8": ["bigint"],
    "float4": ["real"],
    "float8": ["double precision"],
    "numeric": ["numeric", "numeric(6,2)"],
    "uuid": ["uuid"],
    "date": ["date"],
    "time": ["time", "time(2)"],
    "timestamp": ["timestamp", "timestamp(3)"],
    "timestamptz": ["timestamptz", "timestamptz(0)"],
}
USUAL = {
    "bool": ["true", "false"],
    "int2": ["0", "-32768", "32767"],
    "int4": ["0", "-2147483648", "2147483647"],
    "int8": ["0", "-9223372036854775808", "9223372036854775807"],
    "float4": ["1.5", "-0.25", "1e-7", "3.4e38", "0", "-0.0"],
    "float8": ["1.5", "-0.25", "1e-07", "1.7e308", "0", "-0.0"],
    "numeric": ["1.50", "-0.25", "12345678901234567890.5"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "date": ["2026-11-21", "0001-01-01", "9999-12-31"],
    "time": ["10:00:00", "10:00:00.25"],
    "timestamp": ["2026-11-21T10:00:00", "2026-11-21 10:00:00.123456", "2026-11-21T10:00:00Z"],
    "timestamptz": ["2026-11-21T10:00:00Z", "2026-11-21 10:00:00.5+02:00"],
}  # fmt: skip


@pytest.fixture(scope="module")
def link(postgresql: devservers.PostgreSQL) -> Iterator[BinaryLink]:
    with closing(BinaryLink(postgresql.dsn(), "tests")) as made:
        yield made


def _check(link: BinaryLink, base: str, texts: Sequence[str]) -> None:
    """What is parsed here is valid for PostgreSQL, and stored and refused as by text COPY."""
    for usual in _blocks(_usual(texts, base), base):
        for declared in TYPES[base]:
            fits = _fits(link, usual, declared)
            assert all(fits) or declared.endswith(")"), [*zip(usual, fits, strict=True)]
            kept = [text for text, fit in zip(usual, fits, strict=True) if fit]
            assert (
                parse_values(_column(kept, base)) is not None
            )  # else text COPY is compared with itself
            assert _stored(link, declared, kept, base) == _stored(link, declared, kept, None)
            for text, fit in zip(usual, fits, strict=True):
                if not fit:
                    with pytest.raises(PostgresqlFailure):
                        _stored(link, declared, [text], base)


def _blocks(usual: Sequence[str], base: str) -> list[list[str]]:
    """Of texts that are parsed: those that are parsed together, which zones beside none are not."""
    if base != "timestamptz":
        return [[*usual]]
    return [
        [text for text in usual if bool(ZONED.search(text)) is zoned] for zoned in (True, False)
    ]


def _usual(texts: Sequence[str], base: str) -> list[str]:
    return [text for text in texts if parse_values(_column([text], base)) is not None]


def _column(texts: Sequence[str | None], base: str | None) -> pa.RecordBatch:
    field = pa.field("v", pa.string(), metadata={PARSED: base.encode()} if base else None)
    return pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=pa.schema([field]))


def _fits(link: BinaryLink, texts: Sequence[str], declared: str) -> list[bool]:
    query = "SELECT pg_input_is_valid(v, $2) FROM unnest($1::text[]) WITH ORDINALITY t (v, n)"
    return [row[0] for row in link.execute(f"{query} ORDER BY n", list(texts), declared)]


def _stored(
    link: BinaryLink, declared: str, texts: Sequence[str], base: str | None
) -> list[tuple[Any, ...]]:
    """As text, with a null in the middle; by binary COPY where `base` is given, else by text."""
    link.execute(f"CREATE TEMP TABLE t (n serial, v {declared})")
    try:
        rows = _column([*texts[:1], None, *texts[1:]], base)
        if base is None:
            link.load_text(None, "t", rows)
        else:
            copy_rows(link, (None, "t"), list(rows.schema), rows)
        return link.execute("SELECT n, v::text FROM t ORDER BY n")
    finally:
        link.execute("DROP TABLE t")


@pytest.mark.parametrize("base", PARSERS)
def test_usual_texts_go_by_binary_copy(base: str) -> None:
    found = parse_values(_column([*USUAL[base] * 50, None], base))
    assert found is not None
    assert not pa.types.is_string(found.column(0).type)
    assert found.column(0).null_count == 1
    # Where the column begins makes no difference, nor do nulls alone.
    again = parse_values(_column(["x", *USUAL[base] * 50, None], base).slice(1))
    assert again is not None
    assert again.column(0).equals(found.column(0))
    nothing = parse_values(_column([None, None], base))
    assert nothing is not None
    assert nothing.column(0).null_count == 2


@pytest.mark.parametrize("base", PARSERS)
def test_texts_of_any_form_are_as_postgresql_reads_them(link: BinaryLink, base: str) -> None:
    _check(link, base, [*dict.fromkeys([*ODD, *USUAL[base]])])


def test_moments_with_and_without_a_zone_make_it_text_copy(link: BinaryLink) -> None:
    mixed = ["2026-11-21 10:00:00", "2026-11-21T10:00:00+02:00"]
    assert all(parse_values(_column([text], "timestamptz")) is not None for text in mixed)
    assert parse_values(_column(mixed, "timestamptz")) is None
    stored = _stored(link, "timestamptz", mixed, "timestamptz")
    assert stored == _stored(link, "timestamptz", mixed, None)


@pytest.mark.parametrize("base", ["timestamp", "timestamptz"])
def test_a_wrong_moment_is_noticed(
    link: BinaryLink, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison with PostgreSQL is one: a parser that is an hour off fails it."""

    def later(texts: pa.Array, right: Parser = PARSERS[base]) -> pa.Array | None:
        found = right(texts)
        hour = pa.scalar(3_600_000_000, pa.duration("us"))
        return None if found is None else pc.add(found, hour)

    monkeypatch.setitem(cast("dict[str, Parser]", PARSERS), base, later)
    with pytest.raises(AssertionError, match="2026-11-21 11:00:00"):
        _check(link, base, USUAL[base])


NAMES = ["uuid", "int4", "bool", "date", "numeric", "jsonb", "text"]


def test_an_enum_with_the_name_of_a_built_in_type_is_an_enum(link: BinaryLink) -> None:
    """Its labels are text, and nothing is parsed in them."""
    link.execute("CREATE SCHEMA made")
    try:
        for name in NAMES:
            link.execute(f"CREATE TYPE made.{name} AS ENUM ('x', '1')")
        link.execute(f"CREATE TABLE made.t ({', '.join(f'c_{n} made.{n}' for n in NAMES)})")
        table = find(link, "made", "t")
        assert table is not None
        schema = text_schema(table, tuple(f"c_{name}" for name in NAMES), "here")
        assert {str(field.type) for field in table.schema(())} == {"string"}
        assert schema.metadata[DRIVER] == b"binary"
        rows = pa.record_batch([pa.array(["x", "1"])] * len(NAMES), schema=schema)
        copy_rows(link, ("made", "t"), list(schema), rows)
        assert link.execute("SELECT count(*), count(DISTINCT t) FROM made.t") == [(2, 2)]
    finally:
        link.execute("DROP SCHEMA made CASCADE")


def test_what_versions_of_postgresql_read_otherwise_is_left_to_them() -> None:
    """Before version 16 hexadecimal digits and `_` are no integers."""
    assert all(parse_values(_column([text], "int8")) is None for text in ("0x1F", "-0X1f", "1_000"))


@pytest.mark.parametrize("base", PARSERS)
def test_one_other_text_makes_it_text_copy(link: BinaryLink, base: str) -> None:
    """At any place of a block: PostgreSQL refuses it, and says so by its text."""
    for at in (0, 1, 100):
        texts = USUAL[base] * 50
        texts[at:at] = ["neither"]
        assert parse_values(_column(texts, base)) is None
        with pytest.raises(PostgresqlFailure, match='"neither"'):
            _stored(link, TYPES[base][0], texts, base)


DIGITS = st.from_regex(r"-?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
FLOATS = st.floats().map(repr) | st.floats(width=32).map(repr)
POINTS = st.datetimes() | st.datetimes(timezones=st.timezones())
WRITTEN = st.builds(lambda at, between: at.isoformat(between), POINTS, st.sampled_from("T "))
DAYS = st.dates().map(str) | st.times().map(str)
ANY = st.text(st.sampled_from("0123456789-+.:eETZ x_"), max_size=12)
TEXTS = DIGITS | FLOATS | WRITTEN | DAYS | ANY | st.integers().map(str) | st.uuids().map(str)


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(texts=st.lists(TEXTS, min_size=50, max_size=100))
def test_any_text_is_as_postgresql_reads_it(link: BinaryLink, texts: list[str]) -> None:
    for base in PARSERS:
        _check(link, base, texts)
