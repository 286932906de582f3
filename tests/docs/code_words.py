"""Rules for names and docstrings of the program, and what breaks them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tests import ROOT

PROGRAM = ROOT / "dataflow_assets"
Kind = Literal["module", "class", "function", "variable"]
Entry = tuple[str, str]
"""A module and a path of names in it, as the list of offenders has them."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IRREGULAR = (
    "began begun bent bought broken brought built caught chosen dealt done drawn driven eaten "
    "fallen felt forgotten found frozen given gone grown heard held hidden kept known laid led "
    "left lent lost made meant met paid risen said seen sent shaken shown sold sought spelt spent "
    "spoken stolen stood taken taught thought thrown told took torn understood won worn written"
)
_PARTICIPLE = re.compile(
    rf"_?(?:[a-z]+ed|(?:fore|mis|over|re|un|with)?(?:{_IRREGULAR.replace(' ', '|')}))"
)
_NO_PARTICIPLE = re.compile(
    r"_?(?:bed|bleed|breed|deed|embed|exceed|feed|heed|need|proceed|red|seed|shed|speed|succeed)"
)
_FRAGMENT = re.compile(
    r"(?:What|Whether|How|Where|Of|As|By|Those|Who|Whose|Behind|In front|None|The same)\b"
)
_PRIVATE = (
    "told said meant lacking begun anew aside fares whoever somebody nobody insists complaints "
    "buried"
)
_PRIVATE_OF_DEFINITIONS = "asked found given made wanted"
"""These are private as well; too many variables have them to list each."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LAG = re.compile(r"bool|int|float|float \| None|int \| None")


@dataclass(frozen=True)
class Name:
    """A name that a module defines."""

    module: str
    """The file, below the program's folder."""
    path: str
    """The name with those around it, `Class.method`."""
    line: int
    kind: Kind
    docstring: str = ""
    returns: str = ""

    @property
    def last(self) -> str:
        """The name alone."""
        return self.path.rpartition(".")[2]

    @property
    def entry(self) -> Entry:
        """The name in the list of offenders."""
        return self.module, self.path

    def __str__(self) -> str:
        """The place and the name, for a message."""
        return f"dataflow_assets/{self.module}:{self.line} {self.path}"


@dataclass(frozen=True)
class Rule:
    """A rule that names keep."""

    says: str
    instead: str
    broken_by: Callable[[Sequence[Name]], Iterable[Name]]


@cache
def names() -> tuple[Name, ...]:
    """Reads the program once for all rules."""
    paths = sorted(PROGRAM.rglob("*.py"))
    return tuple(
        name
        for path in paths
        for name in names_in(path.relative_to(PROGRAM).as_posix(), path.read_text("utf-8"))
    )


def names_in(module: str, source: str) -> Iterator[Name]:
    """Reads all names of a module: itself, classes, functions, parameters, variables, fields."""
    tree = ast.parse(source)
    yield Name(module, "(module)", 1, "module", _docstring(tree))
    inside: list[tuple[ast.AST, str]] = [(child, "") for child in tree.body]
    while inside:
        node, around = inside.pop()
        if isinstance(node, _DEFINITIONS):
            yield _definition(module, around + node.name, node)
            around += f"{node.name}."
        elif isinstance(node, ast.arg):
            yield Name(module, around + node.arg, node.lineno, "variable")
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            last = node.id if isinstance(node, ast.Name) else node.attr
            yield Name(module, around + last, node.lineno, "variable")
        if not isinstance(node, ast.Name | ast.Constant):
            inside.extend([(child, around) for child in ast.iter_child_nodes(node)])


def _definition(
    module: str, path: str, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> Name:
    if isinstance(node, ast.ClassDef):
        return Name(module, path, node.lineno, "class", _docstring(node))
    returns = ast.unparse(node.returns) if node.returns else ""
    return Name(module, path, node.lineno, "function", _docstring(node), returns)


def _docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> str:
    return (ast.get_docstring(node, clean=False) or "").lstrip()


def _participles(all_names: Sequence[Name]) -> Iterator[Name]:
    for name in all_names:
        is_one = _PARTICIPLE.fullmatch(name.last) and not _NO_PARTICIPLE.fullmatch(name.last)
        if name.kind == "function" and is_one:
            yield name


def _fragments(all_names: Sequence[Name]) -> Iterator[Name]:
    return (name for name in all_names if _FRAGMENT.match(name.docstring))


def _private_words(all_names: Sequence[Name]) -> Iterator[Name]:
    of_variables = frozenset(_PRIVATE.split())
    of_definitions = of_variables | frozenset(_PRIVATE_OF_DEFINITIONS.split())
    for name in all_names:
        module = name.module.rpartition("/")[2].removesuffix(".py")
        words = _words(module if name.kind == "module" else name.last)
        private = of_variables if name.kind == "variable" else of_definitions
        if words & private or _means_after(name, words):
            yield name


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))


def _means_after(name: Name, words: frozenset[str]) -> bool:
    """A lag is a truth or a number, and what is left behind remains."""
    if name.kind != "function" or "behind" not in words or "left" in words:
        return False
    return not _LAG.fullmatch(name.returns)


def _twins(all_names: Sequence[Name]) -> Iterator[Name]:
    classes = [(_in_connector(name), name) for name in all_names if name.kind == "class"]
    often = Counter(key for key, _ in classes)
    return (name for key, name in classes if key and often[key] > 1)


def _in_connector(name: Name) -> tuple[str, str] | None:
    folders = name.module.split("/")
    inside = folders[0] == "connectors" and len(folders) > 2
    return (folders[1], name.last.removeprefix("_")) if inside else None


RULES = {
    "participles": Rule(
        "the name of a function is not a bare participle",
        "a verb (`raise_if_failed`, `suggest_name`) or a noun of the field (`retractions`)",
        _participles,
    ),
    "fragments": Rule(
        "a docstring does not begin as a fragment (What, Whether, How, Where, Of, As, By, Those, "
        "Who, Whose, Behind, In front, None, The same)",
        "a sentence that a stranger understands without the code, or no docstring",
        _fragments,
    ),
    "private_words": Rule(
        f"a name has no private word ({_PRIVATE}; of functions, classes and modules also "
        f"{_PRIVATE_OF_DEFINITIONS}), and `behind` means that something lags: such a function "
        "returns a truth or a number",
        "the word that English or the field has for it (`after` for the other `behind`)",
        _private_words,
    ),
    "twins": Rule(
        "no two classes of a connector have the same name, `_Reader` and `Reader` are one",
        "a name that says which of them it is (`SlotReader`, `SnapshotReader`)",
        _twins,
    ),
}
