"""How ClickHouse spells types: a name, and what stands in its parentheses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from dataflow_assets.sdk.types.table import arguments

_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f"}
_WRAPPERS = ("Nullable", "LowCardinality")
_ELEMENT = re.compile(r"^(`(?:[^`\\]|\\.)*`|\w+)\s+(.+)$", re.DOTALL)


@dataclass(frozen=True)
class ClickhouseType:
    """A type as ClickHouse spells it: a name and what stands in its parentheses."""

    name: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> ClickhouseType:
        name, _, rest = text.strip().partition("(")
        return cls(name.strip(), tuple(split_list(rest.rstrip().removesuffix(")"))) if rest else ())

    @property
    def nullable(self) -> bool:
        if self.name in {"Dynamic", "Variant", "Nullable"}:
            return True
        return self.name == "LowCardinality" and ClickhouseType.of(self.arguments[0]).nullable

    @property
    def bare(self) -> ClickhouseType:
        """Without what says only how it is stored, or that it may be NULL."""
        if self.name in _WRAPPERS:
            return ClickhouseType.of(self.arguments[0]).bare
        if self.name == "SimpleAggregateFunction":
            return ClickhouseType.of(self.arguments[1]).bare
        return self

    @property
    def spelling(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})" if self.arguments else self.name

    def names(self) -> tuple[str, ...]:
        """Of an enumeration: the texts that it takes."""
        return tuple(_text(argument.rpartition("=")[0].strip()) for argument in self.arguments)

    def elements(self) -> Iterator[tuple[str, ClickhouseType]]:
        """Of a tuple: names, counted from 1 where there are none, and types."""
        for number, argument in enumerate(self.arguments, 1):
            match = _ELEMENT.match(argument.strip())
            name = unquote(match[1]) if match else str(number)
            yield name, ClickhouseType.of(match[2] if match else argument)

    def inside(self) -> Iterator[ClickhouseType]:
        """This type and all it is made of, bare."""
        bare = self.bare
        yield bare
        if bare.name in {"Array", "Map"}:
            yield from chain.from_iterable(
                ClickhouseType.of(each).inside() for each in bare.arguments
            )
        elif bare.name in {"Tuple", "Nested"}:
            yield from chain.from_iterable(each.inside() for _, each in bare.elements())


def unquote(name: str) -> str:
    """A name as the catalogue spells it, without its backticks."""
    return _text(name) if name.startswith("`") else name


def _text(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), quoted[1:-1])


def split_list(text: str, comma: str = ",") -> Iterator[str]:
    """Returns what stands between commas that are in no parentheses and no quotes."""
    return arguments(text, "'`", comma, escapes=True)
