"""Aggregate functions and their types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dataflow_assets.languages.sql.engine.expressions import Expression
from dataflow_assets.languages.sql.engine.types import BIGINT, MOST_DIGITS, FlinkType

ONLY = "ONLY"
"""In place of a name: the one row that a group has. No query can write it."""
_COMPARED = ("CHAR", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a SELECT."""

    name: str
    type: FlinkType
    argument: Expression | None = None
    """None: COUNT(*)."""
    distinct: bool = False
    condition: Expression | None = None
    """Of FILTER (WHERE ...)."""

    @property
    def argument_type(self) -> FlinkType:
        """The type of what is aggregated; where rows are counted a boolean, which is true."""
        return FlinkType("BOOLEAN") if self.argument is None or self.counts else self.argument.type

    @property
    def counts(self) -> bool:
        """Returns whether it counts rows, whatever is in them."""
        return self.name == "COUNT" and not self.distinct

    def over(self, expressions: Iterator[Expression]) -> Aggregate:
        """Returns the aggregate with the next expressions in place of its own."""
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
        "COUNT(*), COUNT([DISTINCT] a)",
        "How many rows, or rows whose a is not null. A BIGINT, never null.",
    ),
    "SUM": Usage(
        "SUM([DISTINCT] a)",
        "The type is that of a; whole numbers overflow as in Java. Of a decimal DECIMAL(38, s), "
        "and null if the sum needs more digits. Null if every a is null.",
    ),
    "AVG": Usage(
        "AVG([DISTINCT] a)",
        "The type is that of a: the average of whole numbers is cut to a whole number. Of a "
        "decimal DECIMAL(38, s) with at least 6 digits after the point.",
    ),
    "MIN": Usage("MIN(a)", "The smallest number, text or time; -0.0 is smaller than 0.0."),
    "MAX": Usage("MAX(a)", "The largest number, text or time; NaN is larger than all numbers."),
}


def result_of(name: str, given: FlinkType) -> FlinkType:
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
    return FlinkType("DECIMAL", MOST_DIGITS, scale)
