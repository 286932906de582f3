"""Names and docstrings of the program keep the rules; those that do not yet are listed."""

from __future__ import annotations

import pytest

from tests.docs import offenders
from tests.docs.code_words import RULES, Entry, Name, names, names_in
from tests.docs.offenders import COMMAND, FILE

LISTED = offenders.load(FILE.read_text("utf-8"))
GOOD = '''"""Reads slots."""


class Reader:
    """Reads one slot."""

    found = 1

    def read_all(self, feed: int) -> bool:
        """Reads everything."""

    def behind(self) -> bool: ...

    def left_behind(self) -> str: ...

    def proceed(self, missing: int) -> None: ...
'''


def function(name: str, docstring: str = "Reads.", returns: str = "None") -> str:
    return f'def {name}() -> {returns}:\n    """{docstring}"""\n'


def broken(source: str, module: str = "connectors/kafka/slots.py") -> dict[str, list[str]]:
    """Maps the rules that a module breaks to the names that break them."""
    by_rule = offenders.by_rule([*names_in(module, source)])
    return {rule: [name.path for name in wrong] for rule, wrong in by_rule.items() if wrong}


@pytest.mark.parametrize("rule", RULES)
def test_a_new_name_keeps_the_rule(rule: str) -> None:
    assert len(names()) > 10_000
    wrong = offenders.message(rule, offenders.added(LISTED[rule], offenders.today()[rule]))
    assert not wrong, f"{wrong}\nif it only moved, `{COMMAND}` follows it in {FILE.name}"


@pytest.mark.parametrize("rule", RULES)
def test_a_name_that_keeps_the_rule_is_not_listed(rule: str) -> None:
    gone = sorted(LISTED[rule] - {name.entry for name in offenders.today()[rule]})
    lines = "".join(f"\n  {module} {path}" for module, path in gone)
    assert not gone, f"take them out of {FILE.name}, `{COMMAND}` does:{lines}"


def test_the_list_is_in_order() -> None:
    assert FILE.read_text("utf-8") == offenders.dump(LISTED), f"`{COMMAND}` sorts it"


def test_good_names_break_nothing() -> None:
    assert broken(GOOD) == {}


@pytest.mark.parametrize("name", ["_shared", "rewritten", "made", "unknown", "left", "took"])
def test_a_bare_participle(name: str) -> None:
    assert broken(function(name))["participles"] == [name]
    assert "participles" not in broken(function(f"{name}_rows") + f"class A:\n    {name} = 1")


@pytest.mark.parametrize("text", ["What it has.", "\n    As declared.", "None yet.", "In front."])
def test_a_fragment(text: str) -> None:
    assert broken(function("read", text)) == {"fragments": ["read"]}
    assert broken(f'"""{text}"""\n') == {"fragments": ["(module)"]}
    assert broken(f'class A:\n    """{text}"""\n') == {"fragments": ["A"]}
    assert broken(function("read", f"Says. {text}")) == {}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (function("check_begun"), "check_begun"),
        (function("all_found"), "all_found"),
        ("class NotBegun: ...", "NotBegun"),
        ("class A:\n    told: int = 1", "A.told"),
        ("class A:\n    def go(self) -> None:\n        self._told = 1", "A.go._told"),
        ("def read(said: int) -> None: ...", "read.said"),
        ("if (MOST_TOLD := 1):\n    pass", "MOST_TOLD"),
        (function("rows_behind", returns="Position"), "rows_behind"),
    ],
)
def test_a_private_word(source: str, name: str) -> None:
    assert broken(source) == {"private_words": [name]}


def test_a_module_with_a_private_name() -> None:
    assert broken("", "runs/complaints.py") == {"private_words": ["(module)"]}


def test_twins_are_of_one_connector() -> None:
    one, other = "connectors/kafka/source/a.py", "connectors/kafka/sink/b.py"
    reader, private = "class Reader: ...", "class _Reader: ..."
    twins = RULES["twins"].broken_by([*names_in(one, reader), *names_in(other, private)])
    assert [name.module for name in twins] == [one, other]
    for elsewhere in ("connectors/files/sink/b.py", "connectors/b.py", "kafka/b.py"):
        apart = [*names_in(one, reader), *names_in(elsewhere, private)]
        assert list(RULES["twins"].broken_by(apart)) == []


def entries(*paths: str, module: str = "a.py") -> frozenset[Entry]:
    return frozenset((module, path) for path in paths)


def now(*paths: str, module: str = "a.py") -> list[Name]:
    return [Name(module, path, 7, "function") for path in paths]


def test_what_keeps_the_rule_leaves_the_list() -> None:
    assert offenders.shrunk(entries("told", "A.told"), now("told")) == (entries("told"), [])


def test_what_moved_stays_listed_where_it_is() -> None:
    moved = now("B.told", module="b/a.py")
    assert offenders.shrunk(entries("A.told"), moved) == (entries("B.told", module="b/a.py"), [])


def test_the_list_never_grows() -> None:
    new = now("B.told", "made", module="b.py")
    kept = entries("A.told")
    assert offenders.shrunk(kept, [*now("A.told"), *new]) == (kept, new)
    assert offenders.shrunk(kept, new) == (entries("B.told", module="b.py"), new[1:])


def test_the_message_says_where_which_rule_and_what_instead() -> None:
    said = offenders.message("participles", now("A.told"))
    assert "dataflow_assets/a.py:7 A.told" in said
    assert "bare participle" in said
    assert "a verb" in said
