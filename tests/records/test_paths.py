"""Paths: a table of what gjson and sjson do, ours besides, and the laws of reading and writing."""

from __future__ import annotations

import pickle
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.paths.queries import glob
from dataflow_assets.records.record import MISSING, NotJson, encode, parse
from dataflow_assets.spec import Spec
from tests.examples import examples

PEOPLE = """
{"name": {"first": "Tom", "last": "Anderson"}, "age": 37, "children": ["Sara", "Alex", "Jack"],
 "fav.movie": "Deer Hunter", "none": null, "@timestamp": "now", "#": "sharp",
 "friends": [
   {"first": "Dale", "last": "Murphy", "age": 44, "nets": ["ig", "fb", "tw"]},
   {"first": "Roger", "last": "Craig", "age": 68, "nets": ["fb", "tw"]},
   {"first": "Jane", "last": "Murphy", "age": 47, "nets": ["ig", "tw"]}],
 "vals": [{"a": 1, "b": "data"}, {"a": 2, "b": true}, {"a": 3, "b": false}, {"a": 4, "b": "0"},
   {"a": 5, "b": 0}, {"a": 6, "b": "1"}, {"a": 7, "b": 1}, {"a": 8, "b": "true"},
   {"a": 9, "b": null}, {"a": 10}],
 "nested": [1, [2], [3, [4, 5]]], "years": {"0": "zero", "2024": 1}, "text": "{\\"id\\": 7}"}
"""

NOTHING = "MISSING"

READS = [
    ("name.last", '"Anderson"'),
    ("$.name.last", '"Anderson"'),
    ("$name.last", '"Anderson"'),
    ("children.1", '"Alex"'),
    ("children.01", '"Alex"'),
    ("friends.1.first", '"Roger"'),
    ("none", "null"),
    ("nothing", NOTHING),
    ("name.first.x", NOTHING),
    ("children.3", NOTHING),
    ("children.-1", NOTHING),
    ("children.99999999999999999999999999", NOTHING),
    ("years.0", '"zero"'),
    ("years.2024", "1"),
    # wildcards: the first key that fits, and has what follows
    ("child*.2", '"Jack"'),
    ("c?ildren.0", '"Sara"'),
    ("*.last", '"Anderson"'),
    ("f*.0.age", "44"),
    ("z*", NOTHING),
    ("children.*", NOTHING),
    (r"fav\.movie", '"Deer Hunter"'),
    (r"\*", NOTHING),
    # arrays
    ("children.#", "3"),
    ("friends.#.age", "[44,68,47]"),
    ("friends.#.nope", "[]"),
    ("friends.#.nets.0", '["ig","fb","ig"]'),
    ("friends.#.nets.#", "[3,2,2]"),
    ("age.#", NOTHING),
    ("#", '"sharp"'),
    # queries
    ('friends.#(last=="Murphy").first', '"Dale"'),
    ('friends.#(last=="Murphy")#.first', '["Dale","Jane"]'),
    ("friends.#(last=='Murphy')#.first", '["Dale","Jane"]'),
    ("friends.#(last=Murphy)#.first", '["Dale","Jane"]'),
    ('friends.#( last == "Murphy" )#.first', '["Dale","Jane"]'),
    ('friends.#(last!="Murphy").first', '"Roger"'),
    ("friends.#(age>45)#.last", '["Craig","Murphy"]'),
    ("friends.#(age>=47)#.age", "[68,47]"),
    ("friends.#(age<47.5)#.age", "[44,47]"),
    ("friends.#(age<=44)#.age", "[44]"),
    ("friends.#(age==x)#", "[]"),
    ("friends.#(age!=x)#.age", "[44,68,47]"),
    ('friends.#(first%"D*").last', '"Murphy"'),
    ('friends.#(first!%"D*").last', '"Craig"'),
    ('children.#(!%"*a*")', '"Alex"'),
    ('children.#(%"*a*")#', '["Sara","Jack"]'),
    ('friends.#(nets.#(=="fb"))#.first', '["Dale","Roger"]'),
    ("friends.#(nope)#", "[]"),
    ("friends.#(nope)", NOTHING),
    ("friends.#(nope).@keys", NOTHING),
    ('friends.#(first=="A.b|c)").x', NOTHING),
    ("name.#(first)", NOTHING),
    ("vals.#(b==~true)#.a", "[2,6,7,8]"),
    ("vals.#(b==~false)#.a", "[3,4,5,9,10]"),
    ("vals.#(b==~null)#.a", "[9,10]"),
    ("vals.#(b==~*)#.a", "[1,2,3,4,5,6,7,8,9]"),
    ("vals.#(b!=~*)#.a", "[10]"),
    ("vals.#(b==true)#.a", "[2,8]"),
    ("vals.#(b!=true)#.a", "[1,3,4,5,6,7]"),
    # pipes
    ("friends|0|first", '"Dale"'),
    ("friends|#", "3"),
    ('friends.#(last="Murphy")#|first', NOTHING),
    ('friends.#(last="Murphy")#.0', "[]"),
    ('friends.#(last="Murphy")#|0.age', "44"),
    ('friends.#(last="Murphy")#.#', "[]"),
    ('friends.#(last="Murphy")#|#', "2"),
    ("friends.#.nets|0.1", '"fb"'),
    # modifiers; any other @word is a key
    ("@this.age", "37"),
    ("@timestamp", '"now"'),
    ("children.@reverse", '["Jack","Alex","Sara"]'),
    ("children.@reverse.0", '"Jack"'),
    ("name.@reverse", '{"last":"Anderson","first":"Tom"}'),
    ("name.@keys", '["first","last"]'),
    ("name.@values", '["Tom","Anderson"]'),
    ("friends.#.nets.@reverse", '[["tw","fb","ig"],["tw","fb"],["tw","ig"]]'),
    ("nested.@flatten", "[1,2,3,[4,5]]"),
    ('nested.@flatten:{"deep":true}', "[1,2,3,4,5]"),
    ('nested.@flatten:{"deep":true}.#', "5"),
    ("friends.@join.first", '"Jane"'),
    ("children.@join", "{}"),
    ("children.@keys", "[null,null,null]"),
    ("name.@tostr", r'"{\"first\":\"Tom\",\"last\":\"Anderson\"}"'),
    ("text.@fromstr.id", "7"),
    ("age.@fromstr", NOTHING),
    # brackets are ours
    ("$.friends[0].first", '"Dale"'),
    ("friends[1].nets[1]", '"tw"'),
    ("friends[*].age", "[44,68,47]"),
    ("friends[*].nets[0]", '["ig","fb","ig"]'),
    ("children[*]", '["Sara","Alex","Jack"]'),
    ("name[*]", NOTHING),
    ("$['fav.movie']", '"Deer Hunter"'),
    ('name["first"]', '"Tom"'),
    ("years['0']", '"zero"'),
    ("children['0']", NOTHING),
    ("years.:0", '"zero"'),
    ("children.:0", NOTHING),
]


@pytest.mark.parametrize(("path", "found"), READS)
def test_reading(path: str, found: str) -> None:
    body = parse(PEOPLE.encode())
    value = Path.parse(path).getter()(body)
    assert (NOTHING if value is MISSING else encode(value).decode()) == found
    assert body == parse(PEOPLE.encode())


@pytest.mark.parametrize("path", ["a", "0", "a.b", "a.b.c", "*", "#", "@this", "@keys", "[*]"])
@pytest.mark.parametrize("body", [NotJson(b"x"), NotJson(None), NotJson(b"")])
def test_nothing_is_found_in_what_is_no_json(path: str, body: NotJson) -> None:
    assert Path.parse(path).getter()(body) is MISSING


@pytest.mark.parametrize(
    ("path", "body", "found"),
    [
        ("1", "[5,6]", "6"),
        ("$[1]", "[5,6]", "6"),
        ("a", "7", None),
        ("#", "[1]", "1"),
        ("a", '"a"', None),
    ],
)
def test_the_root_may_be_any_json(path: str, body: str, found: str | None) -> None:
    value = Path.parse(path).getter()(parse(body.encode()))
    assert (None if value is MISSING else encode(value).decode()) == found


UNREADABLE = [
    ("", "is empty"),
    ("$", "is empty"),
    ("$.", "is empty"),
    ("a..b", "column 3: `..`, for any depth"),
    ("$.a.", "column 5: an empty key"),
    ("$..a", "column 3: `..`, for any depth"),
    ("|a", "column 1: an empty key"),
    ("a.\\", "column 3: a \\"),
    ("ab\\", "column 3: a \\"),
    ("a[", "column 2: [ is written"),
    ("a[-1]", "column 2: [ is written"),
    ("a[?(@.b>1)]", "column 2: [ is written"),
    ("[a,b]", "column 1: [ is written"),
    ("a[0]b", "column 5: text after ]"),
    ("{a,b}", "column 1: { builds new JSON"),
    ("a.@pretty", "column 3: not supported: @pretty; allowed: @flatten"),
    ("a.@keys:1", "column 8: an argument"),
    ('a.@flatten:{"deep":false}', "column 11: an argument"),
    ("a.#(b==1", "column 3: a query without its )"),
    ('a.#(b=="1)', 'column 8: a " that is not closed'),
    ("a.#()", "column 3: an empty query"),
    ("a.#(b!1)", "column 6: no operator"),
    ("a.#(b==~maybe)", "column 6: after == and !="),
    ("a.#(b>~true)", "column 6: after == and !="),
    ("$.a.#( b..c==1)", "column 10: `..`, for any depth"),
    ("a.#(b)x", "column 7: text after a query"),
    ("a.#[b]", "column 3: a query is written #(...)"),
    (".".join("a" * 101), "more than 100 parts"),
    ("#(" * 12 + "a" + ")" * 12, "more than 10 queries"),
]


@pytest.mark.parametrize(("path", "why"), UNREADABLE)
def test_what_cannot_be_read_is_an_error_with_its_place(path: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        Path.parse(path)


SETS = [
    ("a", "{}", '{"a":9}'),
    ("a", '{"b":1,"a":2,"c":3}', '{"b":1,"a":9,"c":3}'),
    ("a.b", "{}", '{"a":{"b":9}}'),
    ("a.b", '{"a":{"c":1}}', '{"a":{"c":1,"b":9}}'),
    ("a.b", '{"a":null}', '{"a":{"b":9}}'),
    ("a.b.c", '{"a":{"x":1}}', '{"a":{"x":1,"b":{"c":9}}}'),
    ("a.0", "{}", '{"a":[9]}'),
    ("a.2", "{}", '{"a":[null,null,9]}'),
    ("a.2.b", "{}", '{"a":[null,null,{"b":9}]}'),
    ("a.:2.b", "{}", '{"a":{"2":{"b":9}}}'),
    ("a['2'].b", "{}", '{"a":{"2":{"b":9}}}'),
    ("a.0", '{"a":{"b":1}}', '{"a":{"b":1,"0":9}}'),
    ("a.1", '{"a":[1,2,3]}', '{"a":[1,9,3]}'),
    ("a[1]", '{"a":[1,2,3]}', '{"a":[1,9,3]}'),
    ("a.3", '{"a":[1]}', '{"a":[1,null,null,9]}'),
    ("a.-1", '{"a":[1]}', '{"a":[1,9]}'),
    ("a.-1.b", "{}", '{"a":[{"b":9}]}'),
    ("a.-1", '{"a":{"b":1}}', '{"a":{"b":1,"-1":9}}'),
    ("a.1.b", '{"a":[0,{"c":1}]}', '{"a":[0,{"c":1,"b":9}]}'),
    ("0", "{}", '{"0":9}'),
    ("1", "[1]", "[1,9]"),
    ("a", "null", '{"a":9}'),
    (r"a\.b", "{}", '{"a.b":9}'),
    ("@timestamp", "{}", '{"@timestamp":9}'),
]


@pytest.mark.parametrize(("path", "given", "written"), SETS)
def test_writing(path: str, given: str, written: str) -> None:
    body = parse(given.encode())
    assert encode(Path.parse(path).setter()(body, 9)).decode() == written
    assert body == parse(given.encode())


@pytest.mark.parametrize(
    ("path", "given", "why"),
    [
        ("a.b", '{"a":[1]}', "a.b: there is an array where an object is needed"),
        ("a.b", '{"a":"text"}', "a.b: the parent is not an object"),
        ("a.b.c", '{"a":{"b":false}}', "a.b.c: the parent is not an object"),
        ("a.0", '{"a":5}', "a.0: the parent is not an object"),
        ("a", "5", "a: the parent is not an object"),
        ("a.:0", '{"a":[1]}', "there is an array where an object is needed"),
        ("a.10002", '{"a":[1]}', "places past the end"),
        ("a.99999999999999999999", "{}", "places past the end"),
        ("a", "no json", "the body is not valid JSON"),
        ("a.b", "", "the body is not valid JSON"),
    ],
)
def test_what_cannot_be_written_rejects_the_record(path: str, given: str, why: str) -> None:
    with pytest.raises(RejectedRecord, match=why):
        Path.parse(path).setter()(parse(given.encode()), 9)


REMOVES = [
    ("a", '{"a":1,"b":2}', '{"b":2}'),
    ("a.b", '{"a":{"b":1},"c":2}', '{"a":{},"c":2}'),
    ("a.b.c", '{"a":{"b":{"c":1,"d":2}}}', '{"a":{"b":{"d":2}}}'),
    ("a.1", '{"a":[1,2,3]}', '{"a":[1,3]}'),
    ("a.-1", '{"a":[1,2,3]}', '{"a":[1,2]}'),
    ("a.1.b", '{"a":[1,{"b":2}]}', '{"a":[1,{}]}'),
    ("0", '{"0":1}', "{}"),
    ("0", "[1]", "[]"),
]


@pytest.mark.parametrize(("path", "given", "left"), REMOVES)
def test_removing(path: str, given: str, left: str) -> None:
    body = parse(given.encode())
    assert encode(Path.parse(path).remover()(body)).decode() == left
    assert body == parse(given.encode())


@pytest.mark.parametrize(
    "path", ["x", "a.x", "a.b.x", "c.9", "c.x", "d.-1", "a.:0", "c.:0", "c.0.x"]
)
@pytest.mark.parametrize("given", ['{"a":{"b":1},"c":[1],"d":[]}', "5", "[]", "no json", ""])
def test_where_nothing_is_the_same_object_is_left(path: str, given: str) -> None:
    body = parse(given.encode())
    assert Path.parse(path).remover()(body) is body


@pytest.mark.parametrize("path", ["a*", "a.#", "a.#.b", "a[*].b", "a.#(b)", "a.@this", "a|b", "?"])
def test_only_keys_and_indexes_are_written(path: str) -> None:
    for use in (Path.check_writable, Path.setter, Path.remover):
        with pytest.raises(ValueError, match="cannot be written"):
            use(Path.parse(path))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a", "a"),
        ("$.a.b", "b"),
        (r"a.b\.c", "b.c"),
        ("a.#.b", "b"),
        ("a[*].b", "b"),
        ("a[*]", "a"),
        ("a.0", "0"),
        ("a[0]", "0"),
        ("a['x y']", "x y"),
        ("a.#", "#"),
        ("a.#(b.c==1)", "a"),
        ("a.b.@keys", "b"),
        ("n*", "n*"),
        ("@this", "_"),
        ("@timestamp", "@timestamp"),
    ],
)
def test_the_name_of_the_column(path: str, name: str) -> None:
    assert Path.parse(path).name == name


@pytest.mark.parametrize(
    "text", ["$.a.b", "$a", "$.$oid", "$$oid", r"\$oid", "$[0]", "a.#(b==1)#.c"]
)
def test_a_path_read_again_is_the_same_path(text: str) -> None:
    path = Path.parse(text)
    assert Path.parse(path.text) == path
    assert pickle.loads(pickle.dumps(path)) == path  # noqa: S301
    assert hash(Path.parse(text)) == hash(path)


def test_a_key_with_a_dollar_is_found() -> None:
    assert Path.parse("$.$oid").getter()({"$oid": 1}) == 1
    assert Path.parse("id.$oid").getter()({"id": {"$oid": 1}}) == 1


class _Declared(Spec):
    at: Path


def test_a_path_in_a_manifest() -> None:
    declared = _Declared.model_validate({"at": "$.a.b"})
    assert declared.model_dump() == {"at": "a.b"}
    assert _Declared.model_validate(declared.model_dump()) == declared
    with pytest.raises(ValueError, match=r"column 3: `\.\.`, for any depth"):
        _Declared.model_validate({"at": "a..b"})


# Laws.

NAMES = st.sampled_from(
    ["a", "b", "c.d", "0", "1", "*", "#", "", "é", "-1", "$", "'", "\\", "@this"]
)
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def _in_brackets(name: str) -> str:
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{quoted}']"


KEYS = st.one_of(NAMES.map(_in_brackets), st.integers(0, 4).map(lambda n: f"[{n}]"))
PATHS = st.lists(KEYS, min_size=1, max_size=4).map("".join)

laws = settings(derandomize=True, deadline=None, max_examples=examples(300))


@laws
@given(OBJECTS, PATHS, VALUES)
def test_what_is_written_is_read(body: Any, text: str, value: Any) -> None:
    path = Path.parse(text)
    before = encode(body)
    try:
        written = path.setter()(body, value)
    except RejectedRecord:
        assert "[" in before.decode()
        return
    found = path.getter()(written)
    assert found is value or (type(found), found) == (type(value), value)
    assert encode(body) == before
    assert path.setter()(written, value) == written


@laws
@given(OBJECTS, st.lists(NAMES.map(_in_brackets), min_size=1, max_size=4).map("".join))
def test_what_is_removed_is_gone(body: Any, text: str) -> None:
    path = Path.parse(text)
    before = encode(body)
    left = path.remover()(body)
    assert path.getter()(left) is MISSING
    assert (left is body) == (path.getter()(body) is MISSING)
    assert encode(body) == before


@laws
@given(OBJECTS, PATHS)
def test_what_is_not_there_is_not_removed(body: Any, text: str) -> None:
    path = Path.parse(text)
    if path.getter()(body) is MISSING:
        assert path.remover()(body) is body


@laws
@given(VALUES, st.text(alphabet="ab01.#*?@|\\[]()='\"$:-", max_size=12))
def test_any_text_is_a_path_or_an_error(body: Any, text: str) -> None:
    try:
        path = Path.parse(text)
    except ValueError:
        return
    path.getter()(body)
    assert Path.parse(path.text) == path
    assert path.name


@laws
@given(st.text(alphabet="ab*?", max_size=7), st.text(alphabet="ab\n", max_size=7))
def test_wildcards_match_like_those_of_file_names(pattern: str, key: str) -> None:
    assert bool(glob(pattern).fullmatch(key)) is fnmatchcase(key, pattern)


@laws
@given(NAMES, VALUES)
def test_what_is_off_the_path_is_shared_not_copied(name: str, value: Any) -> None:
    other = {"deep": [value]}
    body = {"other": other, "in": {"x": 1}}
    written = Path.parse(f"in{_in_brackets(name)}.z").setter()(body, value)
    assert written["other"] is other


def test_arrays_in_arrays_are_flattened_however_deep() -> None:
    body = parse(b"[" * 900 + b"1" + b"]" * 900)
    assert Path.parse('@flatten:{"deep":true}').getter()(body) == [1]
