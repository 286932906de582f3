"""Conditions of `when`, `filter` and `router`, with our additions.

| Test | Holds |
|---|---|
| `$.a` | truth: not false, 0, null, `""` or `"false"`; objects and arrays always |
| `$.a == 'x'`, `!=` | the text forms are equal, or not: `5`, `'5'` and `"5"` are one value |
| `$.a < 5`, `<=`, `>`, `>=` | both are numbers or texts of numbers, compared exactly |
| `$.a in [x, 'y', 3]` | the text form is one of the list |
| `$.a =~ '^x'` | Python's regular expression is found in the text form |

A test is false when the field is missing; every field of a body that is not JSON is missing. null
exists, and its text is empty. `!` inverts what follows: `!$.a == 'x'` holds where `a` is missing.
`&&` binds tighter than `||`; parentheses group. `metadata.k` is a key of the metadata (null:
missing), the field of the body is `$.metadata.k`.

A regular expression that backtracks without end cannot be stopped: avoid `(a+)+`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from typing_extensions import override

from dataflow_assets.errors.likely_names import likely
from dataflow_assets.records.conditions.grammar import Node, Not, Test, read
from dataflow_assets.records.conditions.holding import holds
from dataflow_assets.records.record import Record
from dataflow_assets.spec import Written

_SLASHES = re.compile(r"/.+/[a-z]*")
_WORDS = frozenset({"true", "false", "True", "False", "null"})


@dataclass(frozen=True)
class Condition(Written):
    """A condition as the manifest writes it; equal texts are equal conditions."""

    text: str

    @classmethod
    @override
    def parse(cls, text: str) -> Condition:
        """Raises ValueError with the column of what cannot be read, and what is allowed there."""
        read(text)
        return cls(text)

    def reads(self) -> frozenset[str]:
        return frozenset(test.key for test in _tests(read(self.text)) if test.path is None)

    def fields(self) -> frozenset[str]:
        """The fields of the body that it looks into; without those that a pattern may name."""
        paths = (test.path for test in _tests(read(self.text)) if test.path is not None)
        return frozenset(path.top for path in paths if path.top is not None)

    @property
    def by_metadata(self) -> bool:
        return all(test.path is None for test in _tests(read(self.text)))

    @override
    def remarks(self) -> Iterator[str]:
        """Yields remarks on what is allowed and most likely a mistake: it filters every record."""
        for test in _tests(read(self.text)):
            yield from _field_remarks(test)
            yield from _value_remarks(test)

    def compile(self) -> Callable[[Record], bool]:
        """Record -> whether it holds; made once per task."""
        return holds(read(self.text))


def _field_remarks(test: Test) -> Iterator[str]:
    field = test.written
    name, dot, _ = field.partition(".")
    if not test.sign and field in _WORDS:
        yield f"`{field}` is read as the field `{field}` of the record, not as a value"
    elif dot and name != "metadata" and likely(name, ["metadata"]):
        yield "the field is looked up in the body; did you mean metadata, as in metadata.topic?"


def _value_remarks(test: Test) -> Iterator[str]:
    (value,) = test.values if test.bare and len(test.values) == 1 else ("",)
    if value in {"True", "False"}:
        yield f"compares with the text {value}, not with JSON's: did you mean {value.lower()}?"
    elif value in {"null", "None"}:
        yield f"compares with the text {value}: a null has the empty text '', a missing field none"
    elif test.sign == "=~" and _SLASHES.fullmatch(value):
        yield "the pattern matches only with its slashes: write it without them"


def _tests(node: Node) -> Iterator[Test]:
    if isinstance(node, Test):
        yield node
        return
    for inner in (node.inner,) if isinstance(node, Not) else node.terms:
        yield from _tests(inner)
