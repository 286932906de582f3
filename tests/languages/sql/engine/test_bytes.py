"""Bytes of formats, one by one: CSV by Jackson's rules, raw texts, floating numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.bytes.csv import joiner, splitter
from dataflow_assets.languages.sql.engine.bytes.layout import FlinkLayout
from dataflow_assets.languages.sql.engine.bytes.write import encoder, writer
from dataflow_assets.languages.sql.engine.types import DOUBLE, STRING, FlinkType


def layout(kind: str, *types: FlinkType, **options: Any) -> FlinkLayout:
    names = tuple(f"c{at}" for at in range(len(types)))
    return FlinkLayout(kind, names, types, (True,) * len(types), **options)  # type: ignore[arg-type]


CSV = layout("csv", STRING, STRING)


@pytest.mark.parametrize(
    ("text", "cells", "options"),
    [
        ("a,b", ["a", "b"], {}),
        ("a,", ["a", ""], {}),
        ("", [""], {}),
        ('"a,b","c""d"', ["a,b", 'c"d'], {}),
        ('"a" ,b', ["a", "b"], {}),
        (' "a",b', [' "a"', "b"], {}),
        ('a"b,c', ['a"b', "c"], {}),
        ('"a\nb",c', ["a\nb", "c"], {}),
        ("a,b\r\n", ["a", "b"], {}),
        ('"a', None, {}),
        ('"a"b,c', None, {}),
        ("a,b\nc,d", None, {}),
        (r"a\,b,\n", ["a,b", "\n"], {"escape": "\\"}),
        (r'"a\"b",c', ['a"b', "c"], {"escape": "\\"}),
        ('"a"\t"b"', ["a", "b"], {"delimiter": "\t"}),
        ('"a",b', ['"a"', "b"], {"quote": None}),
        ("~,b", [None, "b"], {"null_literal": "~"}),
        ('"' + "x" * 200_000 + '",b', ["x" * 200_000, "b"], {}),
    ],
)
def test_csv_is_split_as_jackson_does(
    text: str, cells: list[str | None] | None, options: dict[str, Any]
) -> None:
    split = splitter(layout("csv", STRING, STRING, **options))
    if cells is None:
        with pytest.raises(ValueError, match="not CSV"):
            split(text)
    else:
        assert split(text) == cells


@pytest.mark.parametrize(
    ("value", "cell", "options"),
    [
        ("a-b", "a-b", {}),
        ("", "", {}),
        ("a b", '"a b"', {}),
        ("a+b", '"a+b"', {}),
        ('a"b', '"a""b"', {}),
        ("x" * 24, "x" * 24, {}),
        ("x" * 25, '"' + "x" * 25 + '"', {}),
        ("a1", '"a1"', {"delimiter": ";"}),
        ("a\\b", '"a\\\\b"', {"escape": "\\"}),
        ("a b", "a b", {"quote": None}),
    ],
)
def test_csv_is_quoted_as_jackson_does(value: str, cell: str, options: dict[str, Any]) -> None:
    join = joiner(layout("csv", STRING, **options))
    assert join({"c0": value}) == cell.encode()


@pytest.mark.parametrize(
    ("kind", "value", "cell", "options"),
    [
        (FlinkType("INT"), -12, "-12", {"delimiter": ";"}),
        (DOUBLE, 1e20, "1.0E20", {}),
        (DOUBLE, "-Infinity", "-Infinity", {"delimiter": ";"}),
        (FlinkType("FLOAT"), 0.1, "0.1", {}),
        (FlinkType("BOOLEAN"), True, "true", {}),
        (FlinkType("ARRAY", items=(FlinkType("INT"),)), [1, None, 2], "1;;2", {}),
    ],
)
def test_numbers_are_never_quoted(
    kind: FlinkType, value: object, cell: str, options: dict[str, Any]
) -> None:
    assert joiner(layout("csv", kind, **options))({"c0": value}) == cell.encode()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    cells=st.lists(st.text(max_size=30), min_size=2, max_size=2),
    delimiter=st.sampled_from(",;\t|"),
    escape=st.sampled_from([None, "\\"]),
)
def test_csv_that_was_written_is_read_again(
    cells: list[str], delimiter: str, escape: str | None
) -> None:
    given = layout("csv", STRING, STRING, delimiter=delimiter, escape=escape)
    text = joiner(given)(dict(zip(given.names, cells, strict=True))).decode()
    assert splitter(given)(text) == cells


def test_a_text_that_the_charset_lacks_is_a_rejected_record() -> None:
    """And not the end of its partition."""
    encode = encoder(layout("raw", STRING, charset="ISO-8859-1"))
    assert encode({"c0": "é"}) == b"\xe9"
    with pytest.raises(RejectedRecord, match="ISO-8859-1 lacks a character of the text"):
        encode({"c0": "€"})


def test_a_float_is_written_with_its_own_digits() -> None:
    write = writer(FlinkType("FLOAT"), "SQL")
    assert write is not None
    assert write(0.10000000149011612) == 0.1
