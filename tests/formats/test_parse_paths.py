"""Parse paths of JustOne's connector: their grammar, and the text that each value becomes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from dataflow_assets.languages.justone.messages.message_format import ParsePathsFormat
from dataflow_assets.languages.justone.messages.parse_path import ParsePath
from tests.examples import examples

MESSAGE = (
    b'{"identity":71293145,"location":{"latitude":51.5009449, "longitude":-2.4773414},'
    b'"acceleration":[0.01,0.0,0.0]}'
)
"""Of the connector's own page."""


def texts(body: bytes, *paths: str) -> list[str | None]:
    form = ParsePathsFormat(tuple(f"c{number}" for number in range(len(paths))), paths)
    found = form.columns(pa.array([body], pa.binary()))
    assert found.refused == {}
    (group,) = found.groups
    assert group.at.tolist() == [0]
    return [column[0].as_py() for column in group.rows.columns]


def refused(body: bytes, path: str = "/@a") -> str:
    found = ParsePathsFormat(("c",), (path,)).columns(pa.array([body], pa.binary()))
    assert not found.groups
    return found.refused[0]


@pytest.mark.parametrize(
    ("path", "items"),
    [
        ("/@identity", ("identity",)),
        ("/@location/@longitude", ("location", "longitude")),
        ("/@acceleration/#0", ("acceleration", 0)),
        ("|@a/b|@c,d|#12", ("a/b", "c,d", 12)),
        ("@@a", None),
        (".@a b.@", ("a b", "")),
        ("/#007", (7,)),
        ("", None),
        ("/", ()),
        ("|", ()),
        ("@", None),
        (" ", None),
        ("//", None),
        (" /@a", None),
        ("@a", None),
        ("#0", None),
        ("/@a/", None),
        ("/a", None),
        ("/#-1", None),
        ("/#x", None),
        ("/#٣", None),
        ("//@a", None),
    ],
)
def test_the_first_character_is_the_delimiter(path: str, items: tuple[Any, ...] | None) -> None:
    if items is None:
        with pytest.raises(ValueError, match=r".+"):
            ParsePath.parse(path)
    else:
        assert ParsePath.parse(path).items == items


def test_the_pages_own_examples() -> None:
    paths = ("/@identity", "/@location/@longitude", "/@acceleration/#0", "/@location", "/@foo/@bar")
    assert texts(MESSAGE, *paths) == [
        "71293145",
        "-2.4773414",
        "0.01",
        '{"latitude":51.5009449, "longitude":-2.4773414}',
        None,
    ]


@pytest.mark.parametrize(
    ("body", "path", "found"),
    [
        (b'{"a": null}', "/@a", None),
        (b'{"a": "null"}', "/@a", "null"),
        (b'{"a": ""}', "/@a", ""),
        (b'{"a": true}', "/@a", "true"),
        (b'{"a": 1.50}', "/@a", "1.50"),
        (b'{"a": 1e3}', "/@a", "1e3"),
        (b'{"a": 123456789012345678901234567890}', "/@a", "123456789012345678901234567890"),
        (b'{"a": "x\\"y\\n\\u00e4\\\\"}', "/@a", 'x"y\nä\\'),
        (b'{"a": "\\"in quotes\\""}', "/@a", '"in quotes"'),
        ('{"a": "ä 😀"}'.encode(), "/@a", "ä 😀"),
        (b'{"a": [1, "x", null]}', "/@a", '[1, "x", null]'),
        (b'{"a": {"b": "x\\"y"}}', "/@a", '{"b": "x\\"y"}'),
        (b'{"a": [[1, 2], {"b": "c"}]}', "/@a/#1/@b", "c"),
        (b'{"a": [[1, 2], {"b": "c"}]}', "/@a/#0/#1", "2"),
        (b'{"a": [1]}', "/@a/#1", None),
        (b'{"a": {"0": 1}}', "/@a/#0", None),
        (b'{"a": 5}', "/@a/@b", None),
        (b'{"a": null}', "/@a/@b", None),
        (b'{"a": [1]}', "/@a/@b", None),
        (b'{"a": "text"}', "/@a/#0", None),
        (b"[1, 2]", "/#1", "2"),
        (b"[1, 2]", "/@a", None),
        (b'"text"', "/@a", None),
        (b"{}", "/@a", None),
        (b'{"": 1}', "/@", "1"),
        (b'{"a": 1, "a": 2}', "/@a", "2"),
        (b' \n{"a" : 1 }\n', "/@a", "1"),
    ],
)
def test_what_a_value_becomes(body: bytes, path: str, found: str | None) -> None:
    assert texts(body, path) == [found]
    # The same where others are read from the same message, at the same place and below it.
    assert texts(body, path, "/@other", f"{path}/@deeper", f"{path}/#0")[0] == found


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty value"),
        (b"  ", "empty value"),
        (b"no json", "is not JSON"),
        (b'{"a": 1', "is not JSON"),
        (b'{"a": 1} x', "is not JSON"),
        (b'{"a": "\xff"}', "invalid UTF-8"),
        (b'{"a": "\\ud800"}', "is not JSON"),
        (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", ""),
    ],
)
def test_what_is_no_json_is_refused(body: bytes, reason: str) -> None:
    if reason:
        assert reason in refused(body)
    else:  # nested deeply, and not looked into
        assert refused(body) == "nested too deeply"


def test_one_bad_message_hurts_no_neighbour() -> None:
    form = ParsePathsFormat(("a", "b"), ("/@a", "/@n/@b"))
    bodies = [b'{"a": 1}', b"{", None, b'{"n": {"b": "x"}}', b'{"a": "\xff"}', b'{"n": 3}']
    found = form.columns(pa.array(bodies, pa.binary()))
    assert sorted(found.refused) == [1, 4]
    (group,) = found.groups
    assert group.at.tolist() == [0, 3, 5]
    assert group.rows.to_pylist() == [
        {"a": "1", "b": None},
        {"a": None, "b": "x"},
        {"a": None, "b": None},
    ]
    shown = form.texts(pa.array(bodies, pa.binary())).texts.to_pylist()
    assert shown[3] == b'{"a":null,"b":"x"}'
    assert [shown[1], shown[2]] == [None, None]


def test_strings_are_decoded_as_such_until_another_value_comes() -> None:
    """Escapes are read, and what cannot be decoded is refused, as in the first batch."""
    form = ParsePathsFormat(("a", "b"), ("/@a", "/@n/@b"))
    batches: list[list[tuple[bytes, tuple[str | None, str | None] | None]]] = [
        [(b'{"a": "x", "n": {"b": "y"}}', ("x", "y")), (b'{"a": null}', (None, None))],
        [(b'{"a": "\\u00e4\\"", "n": {"b": null}}', ('ä"', None)), (b'{"n": null}', (None, None))],
        [
            (b'{"a": "\xff"}', None),
            (b'{"a": "\\ud800"}', None),
            (b'{"a": "s"}', ("s", None)),
            (b"{", None),
        ],
        [(b'{"a": 1.50, "n": {"b": "z"}}', ("1.50", "z")), (b'{"a": "1.5"}', ("1.5", None))],
        [(b'{"a": -0, "n": {"b": [ 1 ]}}', ("-0", "[ 1 ]")), (b"[]", (None, None))],
        [(b'{"a": "x", "n": {"b": "\\n"}}', ("x", "\n"))],
    ]
    for batch in batches:
        found = form.columns(pa.array([body for body, _ in batch], pa.binary()))
        assert sorted(found.refused) == [at for at, (_, row) in enumerate(batch) if row is None]
        (group,) = found.groups
        expected = [row for _, row in batch if row is not None]
        assert list(zip(*(c.to_pylist() for c in group.rows.columns), strict=True)) == expected


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b' \n{"a" : [1] }\n', '{"a" : [1] }'),
        (b"\t[1, 2]", "[1, 2]"),
        (b' "x\\"y" ', 'x"y'),
        (b" null ", None),
        (b" 1.50\n", "1.50"),
    ],
)
def test_a_delimiter_alone_is_the_whole_message(body: bytes, found: str | None) -> None:
    assert texts(body, "/") == [found]
    assert texts(body, "/@b", "|", "/@a/#1") == [None, found, None]


def test_the_whole_message_is_a_column_beside_others_and_of_sound_messages_alone() -> None:
    form = ParsePathsFormat(("document", "a"), ("/", "/@a"))
    sent = [b'{"a": "x"}', b"", b'{"a": ', b'{"a": "\xff"}', b"[]", b'{"a": {"b": "y"}}', b""]
    found = form.columns(pa.array(sent, pa.binary()))
    (group,) = found.groups
    assert sorted(found.refused) == [1, 2, 3, 6]
    assert group.rows.to_pylist() == [
        {"document": '{"a": "x"}', "a": "x"},
        {"document": "[]", "a": None},
        {"document": '{"a": {"b": "y"}}', "a": '{"b": "y"}'},
    ]


def test_nothing_is_no_error() -> None:
    form = cloudpickle.loads(cloudpickle.dumps(ParsePathsFormat(("a",), ("/@a",))))  # type: ignore[no-untyped-call]
    for bodies in ([], [None]):
        found = form.columns(pa.array(bodies, pa.binary()))
        assert (list(found.groups), found.refused) == ([], {})


KEYS = st.sampled_from(["a", "b", "c", ""])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
ITEMS = KEYS.map(lambda key: f"/@{key}") | st.integers(0, 2).map("/#{}".format)
PATHS = st.lists(ITEMS, min_size=1)


STRINGS = st.dictionaries(KEYS, st.text() | st.none() | st.dictionaries(KEYS, st.text()))
"""Of such messages columns become strings, until another one comes."""


@settings(max_examples=examples(150), deadline=None)
@given(
    batches=st.lists(st.lists(STRINGS, min_size=1) | st.lists(JSON, min_size=1), min_size=1),
    paths=st.lists(PATHS.map("".join) | st.just("/"), min_size=1, max_size=5),
    escaped=st.booleans(),
)
def test_structs_and_walking_agree_with_json(
    batches: list[list[Any]], paths: list[str], escaped: bool
) -> None:
    """Of surrogates there are none: hypothesis' texts have them only where that is asked."""
    form = ParsePathsFormat(tuple(map(str, range(len(paths)))), tuple(paths))
    for bodies in batches:
        _agree(form, bodies, escaped=escaped)


def _agree(form: ParsePathsFormat, bodies: list[Any], *, escaped: bool) -> None:
    sent = [json.dumps(body, ensure_ascii=escaped).encode() for body in bodies]
    found = form.columns(pa.array(sent, pa.binary()))
    assert found.refused == {}
    (group,) = found.groups
    for path, column in zip(form.paths, group.rows.columns, strict=True):
        expected = [_expected(body, ParsePath.parse(path).items) for body in bodies]
        got = [_read(text, want) for text, want in zip(column.to_pylist(), expected, strict=True)]
        assert got == expected, path


def _expected(value: Any, way: tuple[Any, ...]) -> Any:
    for item in way:
        kind = dict if isinstance(item, str) else list
        try:
            value = value[item] if isinstance(value, kind) else {}[item]
        except LookupError:
            return None
    return value


def _read(text: str | None, like: Any) -> Any:
    return text if text is None or isinstance(like, str) else json.loads(text)
