"""Layout of rows in a new table, as a manifest says it: `bucket(16, id)`, `id desc`.

Parsed without PyIceberg, so that checking a manifest stays quick.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket", "truncate")
_EXAMPLES = (
    "created_at, year(created_at), month(..), day(..), hour(..), bucket(16, id) or "
    "truncate(10, name)"
)
_COLUMN = r"`(?:[^`]|``)+`|[^\s(),`]+"
_TERM = re.compile(
    rf"\s*(?:(?P<name>\w+)\s*\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<inner>{_COLUMN})\s*\)|(?P<bare>{_COLUMN}))\s*"
)
_ORDER = re.compile(
    rf"\s*(?P<column>{_COLUMN})(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*",
    re.IGNORECASE,
)
_NUMBERED = {"bucket": "number of buckets", "truncate": "width"}
_MOST = 2**31 - 1


@dataclass(frozen=True)
class Term:
    """One partition transform of one column."""

    column: str
    transform: str = "identity"
    number: int | None = None

    @property
    def iceberg(self) -> str:
        return self.transform if self.number is None else f"{self.transform}[{self.number}]"

    @property
    def name(self) -> str:
        """Returns what the partition field is called, as Spark calls it."""
        if self.transform == "identity":
            return self.column
        return f"{self.column}_{'trunc' if self.transform == 'truncate' else self.transform}"


@dataclass(frozen=True)
class IcebergOrder:
    """One column that rows are sorted by."""

    column: str
    descending: bool
    nulls_first: bool


def parse_term(text: str) -> Term:
    """The transform that the text names. Raises ValueError with what is allowed."""
    match = _TERM.fullmatch(text)
    if match is None:
        raise ValueError(f"cannot read {text!r}; write {_EXAMPLES}")
    if match["bare"]:
        return Term(_unquote(match["bare"]))
    name = match["name"].lower()
    name = name[:-1] if name in ("years", "months", "days", "hours") else name
    if name not in TRANSFORMS:
        raise ValueError(f"{text!r}: unknown transform {name!r}; write {_EXAMPLES}")
    return Term(_unquote(match["inner"]), name, _number(text, name, match["number"]))


def _unquote(column: str) -> str:
    """The column's name; in backticks, a backtick of its own stands twice."""
    return column[1:-1].replace("``", "`") if column.startswith("`") else column


def _number(text: str, name: str, digits: str | None) -> int | None:
    if name not in _NUMBERED:
        if digits is not None:
            raise ValueError(f"{text!r}: {name} takes a column alone, like {name}(created_at)")
        return None
    if digits is None:
        raise ValueError(f"{text!r}: {name} needs a {_NUMBERED[name]}, like {name}(16, id)")
    if not 1 <= int(digits) <= _MOST:
        raise ValueError(f"{text!r}: the {_NUMBERED[name]} must be from 1 to {_MOST}")
    return int(digits)


def parse_order(text: str) -> IcebergOrder:
    """The column and its direction. Nulls come first when ascending, last when descending."""
    match = _ORDER.fullmatch(text)
    if match is None:
        raise ValueError(
            f"cannot read {text!r}; write a column, then asc or desc, then nulls first or nulls "
            "last, like `created_at desc nulls last`; a name with spaces is put in backticks"
        )
    descending = (match["way"] or "asc").lower() == "desc"
    first = not descending if match["nulls"] is None else match["nulls"].lower() == "first"
    return IcebergOrder(_unquote(match["column"]), descending, first)
