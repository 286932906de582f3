"""Aggregate functions and their types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dataflow_assets.sql.expressions import Expression
from dataflow_assets.sql.types import BIGINT, MOST_DIGITS, Type

ONLY = "ONLY"
"""In place of a name: the one row that a group has. No query can write it."""
_COMPARED = ("CHAR", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a SELECT."""

    name: str
    type: Type
    argument: Expression | None = None
    """None: COUNT(*)."""
    distinct: bool = False
    condition: Expression | None = None
    """Of FILTER (WHERE ...)."""

    @property
    def given(self) -> Type:
        """The type of what is aggregated; where rows are counted a boolean, which is true."""
        return Type("BOOLEAN") if self.argument is None or self.counts else self.argument.type

    @property
    def counts(self) -> bool:
        """Whether it counts rows, whatever is in them."""
        return self.name == "COUNT" and not self.distinct

    def over(self, expressions: Iterator[Expression]) -> Aggregate:
        """The same with the next expressions in place of its own."""
        argument = None if self.argument is None else next(expressions)
        condition = None if self.condition is None else next(expressions)
        return replace(self, argument=argument, condition=condition)


@dataclass(frozen=True)
class Usage:
    """For the reference."""

    usage: str
    says: str


AGGREGATES: Mapping[str, Usage] = {
    "COUNT": Usage(
        "COUNT(*), COUNT([DISTINCT] a)", "Rows, or those whose a is not null. Never null; BIGINT."
    ),
    "SUM": Usage(
        "SUM([DISTINCT] a)",
        "Of the type of a, where whole numbers overflow as in Java; of a decimal DECIMAL(38, s), "
        "and null where it needs more digits. Null where every a is null.",
    ),
    "AVG": Usage(
        "AVG([DISTINCT] a)",
        "Of the type of a: of whole numbers the fraction is cut. Of a decimal DECIMAL(38, s) with "
        "at least 6 digits of a fraction.",
    ),
    "MIN": Usage("MIN(a)", "The smallest: of numbers, texts and times. -0.0 is before 0.0."),
    "MAX": Usage("MAX(a)", "The largest; NaN is larger than all numbers."),
}


def result_of(name: str, given: Type) -> Type:
    """The type of a result. Raises ValueError where the function does not take the argument."""
    if name == "COUNT":
        return BIGINT
    if name in ("MIN", "MAX"):
        if not (given.numeric or given.kind in _COMPARED):
            raise ValueError(f"the argument is of type {given}; allowed: numbers, texts and times")
        return given
    if not given.numeric:
        raise ValueError(f"the argument is of type {given}; allowed: numbers")
    if given.kind != "DECIMAL":
        return given
    scale = max(6, given.scale) if name == "AVG" else given.scale
    return Type("DECIMAL", MOST_DIGITS, scale)
