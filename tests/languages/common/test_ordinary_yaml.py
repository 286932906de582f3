"""Ordinary YAML is read by libyaml: every node is where and what the other parser says."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode

from dataflow_assets.languages.common import documents, ordinary_yaml, yaml_nodes
from dataflow_assets.languages.common.yaml_bounds import Work
from tests import ROOT

EXAMPLES = [
    text
    for file in sorted((ROOT / "examples").rglob("*.yaml"))
    for _, text in yaml_nodes.chunks(file.read_text())
]
ORDINARY = [text for text in EXAMPLES if ordinary_yaml.reads(text)]
SIGNS = [
    *": ,[]{}#-'\"\n?|>&*!%@`~.=<\t01_aTNye",
    *("  ", "\n  ", "\n    ", ": ", "- ", "''", "null", "0o7", "0x1", "1e3", "1_0", "0b1", "017"),
    *("<<: ", "---", "...", "http://a:b", " #", "{a:b}", '{"a":1}', "[a:b, c]", "12:30:00"),
    *('":*a', '":!!float 1', '":&a 1', '":1', "':x"),
    *("yes", "off", "2026-11-23", ".inf", ".nan", "+1", "-.5", "=", "Null", "TRUE"),
]


def plain(node: Any) -> Any:
    """All that the manifests' reader looks at."""
    if node is None:
        return None
    mark = node.start_mark
    at = mark.line, mark.column, mark.pointer, str(node.tag)
    if isinstance(node, ScalarNode):
        return *at, node.value, node.style or None
    return (
        *at,
        node.flow_style,
        [
            tuple(map(plain, child)) if isinstance(child, tuple) else plain(child)
            for child in node.value
        ],
    )


def other(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the other parser makes of it."""
    with monkeypatch.context() as patch:
        patch.setattr(ordinary_yaml, "reads", lambda _: False)
        return plain(yaml_nodes.composed(text, Work()))


def changed(text: str, chance: random.Random) -> str:
    """With one to four signs more, less, or others."""
    text = text[: chance.choice([60, 200, 1_500])]
    for _ in range(chance.randint(1, 4)):
        at, kind = chance.randrange(len(text) + 1), chance.randrange(3)
        sign = "" if kind == 0 else chance.choice(SIGNS)
        text = text[:at] + sign + text[at + (kind != 1) * chance.randint(0, 3) :]
    return text


@pytest.mark.parametrize("value", ["*x", "!!float 5", "!!binary aGk=", "&a 5", "!x 5"])
def test_what_follows_a_key_without_a_space_is_seen(value: str) -> None:
    text = f'a: {{"b":{value}}}\n'
    assert not ordinary_yaml.reads(text)
    documents.parse(text, "f.yaml")  # raises nothing, whatever it finds


def test_an_alias_that_was_not_seen_is_refused() -> None:
    with pytest.raises(ordinary_yaml.Refused):
        ordinary_yaml.composed("a: &x 1\nb: *x\n", Work())


def test_most_examples_are_ordinary() -> None:
    assert len(ORDINARY) > len(EXAMPLES) / 2


@pytest.mark.parametrize("text", ORDINARY)
def test_both_parsers_agree_about_the_examples(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain(ordinary_yaml.composed(text, Work())) == other(text, monkeypatch)


@pytest.mark.parametrize("seed", range(8))
def test_both_parsers_agree_about_everything_that_libyaml_takes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, taken = random.Random(seed), 0
    while taken < 40:
        text = changed(chance.choice(ORDINARY), chance)
        if not text.strip() or not ordinary_yaml.reads(text):
            continue
        try:
            found = plain(ordinary_yaml.composed(text, Work()))
        except ordinary_yaml.Refused:
            continue
        taken += 1
        try:
            expected = other(text, monkeypatch)
        except YAMLError as error:
            pytest.fail(f"only libyaml takes {text!r}: {error}")
        assert found == expected, text
