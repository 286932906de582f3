"""YAML as kubectl reads it: values, places, and every trap as a finding that echoes nothing."""

from textwrap import dedent

import pytest

from dataflow_assets.languages.common.documents import Document, parse


def documents(text: str) -> list[Document]:
    found, findings = parse(dedent(text), "f.yaml")
    assert findings == []
    return found


def complaints(text: str) -> list[str]:
    return [str(finding) for finding in parse(dedent(text), "f.yaml")[1]]


VALUES = [
    ("a: 1", {"a": 1}),
    ("a: 0x10", {"a": 16}),
    ("a: 012", {"a": 12}),
    ("a: 1.5", {"a": 1.5}),
    ("a: yes", {"a": True}),
    ("a: Off", {"a": False}),
    ("a: n", {"a": "n"}),
    ("a: 'no'", {"a": "no"}),
    ("on: 1", {"on": 1}),
    ("1: x", {"1": "x"}),
    ("a: 2024-01-01", {"a": "2024-01-01"}),
    ("a: '1'", {"a": "1"}),
    ("a: ~", {}),
    ("a:", {}),
    ("a: [1, null]", {"a": [1, None]}),
    ("a: !!str 5", {"a": "5"}),
    ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
    ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
    ("a: &x {b: 1, d: 2}\nc:\n  <<: *x\n  d: 3", {"a": {"b": 1, "d": 2}, "c": {"b": 1, "d": 3}}),
    ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
    ("\ufeffa: 1", {"a": 1}),
    ('{"a": {"b": [1, 2]}}', {"a": {"b": [1, 2]}}),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values(text: str, value: object) -> None:
    assert [document.value for document in documents(text)] == [value]


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# only a note\n", "---\n---\n# x\n", "%YAML 1.2\n---\n"]
)
def test_nothing_is_nothing(text: str) -> None:
    assert documents(text) == []


SECRET = "hunter2-s3cret"
BAD = "document: not valid YAML:"
INDENTED = "line 2 is indented by 2, line 1 by 0: keys of one block start in the same column"
TAG = "a value that begins with `!` must be in quotes; YAML tags are not supported"

MISTAKES = [
    ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: a: is written twice; first in line 1"),
    (
        "a:\n  b: 1\n  b: 1\n",
        "f.yaml:3:3: a.b: is written twice; first in line 2",
    ),
    ("a:\n\tb: 1\n", "f.yaml:2:1: document: not valid YAML: a tab cannot indent YAML: use spaces"),
    (
        f"a: [{SECRET}\nb: 1\n",
        "f.yaml:2:2: document: not valid YAML: a bracket is not closed, or a comma is missing",
    ),
    (
        f"a: '{SECRET}\n",
        "f.yaml:2:1: document: not valid YAML: a quote or bracket is never closed",
    ),
    (
        f"a: @{SECRET}\n",
        f"f.yaml:1:4: {BAD} a value cannot begin with this character: put it in quotes",
    ),
    (
        f"a: x: {SECRET}\n",
        f"f.yaml:1:5: {BAD} a `:` does not belong here: mind indentation and quotes",
    ),
    (
        f"a: *{SECRET}\n",
        f"f.yaml:1:4: {BAD} text that begins with `*` must be in quotes, an alias needs an anchor",
    ),
    (
        f'a: "{SECRET}\\q"\n',
        f"f.yaml:1:20: {BAD} an unknown escape sequence: use single quotes to keep a backslash",
    ),
    (
        f"a: 1\n  {SECRET}: 1\n",
        f"f.yaml:2:17: {BAD} {INDENTED}",
    ),
    (
        f"a: !Ref {SECRET}\n",
        f"f.yaml:1:4: a: {TAG}",
    ),
    (f"a: !!int {SECRET}\n", "f.yaml:1:4: a: the value does not fit its tag"),
    (f"? [{SECRET}]\n: 1\n", "f.yaml:1:3: document: a key is text"),
    (f"a:\n  <<: {SECRET}\n", "f.yaml:2:7: a: `<<` takes a mapping, or a list of them"),
    (
        "a: &x [*x]\n",
        "f.yaml:1:1: document: is nested too deeply, or an alias is inside its own anchor",
    ),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
def test_mistakes(text: str, expected: str) -> None:
    found = complaints(text)
    assert found == [expected]
    assert SECRET not in "".join(found)


def test_a_broken_document_does_not_hide_the_next() -> None:
    text = "a: 1\n---\nb: [\n---\nc: 3\n...\n---\nd: {\n"
    found, findings = parse(text, "f.yaml")
    assert [document.value for document in found] == [{"a": 1}, {"c": 3}]
    assert [finding.line for finding in findings] == [4, 9]


def test_places_are_those_of_the_text() -> None:
    (document,) = documents("""\
        ---
        spec:
          list:
            - x: 1
            - [2, 3]
        """)
    assert (document.places["spec", "list", 0, "x"].line) == 4
    assert (document.places["spec", "list", 0, "x"].column) == 10
    assert (document.places["spec", "list", 0, "x"].key_column) == 7
    assert (document.places["spec", "list", 1, 1].column) == 11


def test_what_explodes_or_never_ends_is_a_finding() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    bomb = complaints("\n".join(lines))
    assert len(bomb) == 1
    assert "grows" in bomb[0]
    deep = complaints("[" * 500)
    assert "too deeply" in deep[0]
    assert "too deeply" in complaints("a: " + "[" * 150 + "]" * 150)[0]
