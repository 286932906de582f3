"""Java properties: what Java reads, and where keys and values are."""

from __future__ import annotations

import pytest

from dataflow_assets.languages.common.properties import decode, parse


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("  a=1", {"a": "1"}),
        ("# a=1\n! b=2\nc=3", {"c": "3"}),
        ("a=1\\\n   2", {"a": "12"}),
        ("a\\ b=1", {"a b": "1"}),
        ("a\\=b=1", {"a=b": "1"}),
        ("a=\\u00e4\\t\\\\", {"a": "ä\t\\"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\n\n\n", {"a": "1"}),
        ("a=#1", {"a": "#1"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_what_java_reads(text: str, found: dict[str, str]) -> None:
    read = parse(text, "f.properties")
    assert read.findings == ()
    assert read.document.value == found


@pytest.mark.parametrize(
    ("text", "key", "place"),
    [
        ("a=1", "a", (1, 3, 1, 1)),
        ("# c\n\n  db.host = x", "db.host", (3, 13, 3, 3)),
        ("a=1\\\n 2\nb: 3", "b", (3, 4, 3, 1)),
        ("a=\\\n   2", "a", (2, 4, 1, 1)),
        ("x=1\r\ny=2\rz=3", "z", (3, 3, 3, 1)),
        ("a\\=b = 1", "a=b", (1, 8, 1, 1)),
    ],
)
def test_where_a_key_and_its_value_are(
    text: str, key: str, place: tuple[int, int, int, int]
) -> None:
    found = parse(text, "f.properties").document.places[key,]
    assert (found.line, found.column, found.key_line, found.key_column) == place


def test_a_key_that_is_written_twice_is_noted() -> None:
    (hint,) = parse("a=1\nb=2\na=3", "f.properties").hints
    said = "is written twice: line 1 has no effect, the later one counts"
    assert str(hint) == f"f.properties:3:1: a: {said}"


def test_a_broken_escape_is_found() -> None:
    (finding,) = parse("a=1\nb=\\u12\nc=3", "f.properties").findings
    assert (finding.line, finding.message[:30]) == (2, "not valid properties: \\u must ")


def test_text_is_utf8_or_latin() -> None:
    assert decode("a=ä".encode()) == "a=ä"
    assert decode("a=ä".encode("latin-1")) == "a=ä"
    assert decode(b"\xef\xbb\xbfa=1") == "a=1"
